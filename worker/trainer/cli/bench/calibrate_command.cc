// `bench --calibrate`: what products, attention, memory-bound kernels and launches reach on a GPU
// that is as busy, and as warm, as in a step, and the watts that they take, as a file of
// configs/calibration. The rest of such a file is not measured here: tests/bench/plan_accuracy.py
// compares whole jobs.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"
#include "common/base/version.h"
#include "common/spec/feasibility/speed/calibration.h"
#include "common/spec/feasibility/speed/calibration_text.h"
#include "common/spec/gpus/gpus.h"
#include "common/time/clock.h"
#include "kernels/gemm/gemm.h"
#include "worker/trainer/cli/bench/calibration_list.h"
#include "worker/trainer/cli/bench/kernel_meter.h"
#include "worker/trainer/cli/bench/load_meter.h"
#include "worker/trainer/cli/bench/memory_calls.h"
#include "worker/trainer/cli/machine/gpu_scratch.h"
#include "worker/trainer/cli/machine/measured_gpu.h"
#include "worker/trainer/cli/verbs.h"
#include "worker/trainer/device/rank_device.h"
#include "worker/trainer/device/tuned_plan_paths.h"

namespace hearth::trainer {
namespace {

using kernels::DType;

// Seconds since the start. Products that are not tuned by the first are left out, and those that
// are not measured by the second; after it comes what is measured alone.
constexpr double kTunedAfter = 13;
constexpr double kProductsAfter = 44;
constexpr double kMoreForEachScheme = 25;  // as several schemes measure every product
// Seconds of load.
constexpr double kWarmSeconds = 3;     // before anything counts
constexpr double kAmongSeconds = 1.5;  // of memory-bound kernels
constexpr double kAttentionSeconds = 0.3;
constexpr double kProductSeconds = 0.13;
// What is alone also gives watts, for which the GPU's counter is too slow below 3.
constexpr double kAloneSeconds = 3;
constexpr double kLaunchSeconds = 0.5;  // of each of the two copies that say what a launch takes
// A step at the power limit, in rounds: products most of the time, and kernels that memory bounds,
// which take less power and leave some to the others.
constexpr double kStepProductsMs = 6.4;
constexpr double kStepMemoryMs = 1.6;
constexpr int64_t kSquare = 8192;
constexpr double kBufferShare = 1.0 / 10;  // of free memory: what one of six operands may take

ProductShape Bf16(int64_t m, int64_t n, int64_t k) {
  return {m, n, k, DType::kBF16, DType::kBF16, DType::kBF16, false, true, false, false};
}

// What runs beside the kernels that are timed by a scheme.
struct Company {
  const LoadScheme* scheme = nullptr;
  KernelRow products[spec::kMatrixFormatCount];  // by format; no graph: none
  KernelRow memory;

  KernelRows With(spec::MatrixFormat format) const {
    const KernelRow& row = products[static_cast<int>(format)];
    return row.graph == nullptr ? KernelRows{&memory} : KernelRows{&row, &memory};
  }
};

class Calibrator {
 public:
  Calibrator(kernels::CudaContext& context,
             const kernels::Exec& exec,
             const CalibrateOptions& options)
      : context_(context),
        exec_(exec),
        verbose_(options.verbose),
        measured_(MeasuredGpu::Open(context)),
        meter_(exec, [this] { return Joules(); }),
        start_(Clock::Real().Monotonic()),
        capability_(context.gpu().major * 10 + context.gpu().minor) {
    const LoadScheme* const asked = FindLoadScheme(options.scheme);
    schemes_ = {asked == nullptr ? &LoadSchemes().front() : asked};
    for (const LoadScheme& scheme : LoadSchemes()) {
      if (verbose_ && &scheme != schemes_.front()) {
        schemes_.push_back(&scheme);
      }
    }
  }

  absl::Status Run() {
    const spec::GpuRow* const row = spec::FindGpu(context_.gpu().name);
    if (row == nullptr) {
      return absl::NotFoundError(
          absl::StrCat(context_.gpu().name, " is not in configs/gpus.yaml: give it a row first"));
    }
    Begin(*row);
    HEARTH_RETURN_IF_ERROR(MakeOperands());
    HEARTH_RETURN_IF_ERROR(Tune());
    HEARTH_RETURN_IF_ERROR(MakeCompany());
    HEARTH_RETURN_IF_ERROR(meter_.Load(Step(), kWarmSeconds));
    HEARTH_RETURN_IF_ERROR(AmongProducts());
    HEARTH_RETURN_IF_ERROR(Attention());
    HEARTH_RETURN_IF_ERROR(Products());
    HEARTH_RETURN_IF_ERROR(Alone());
    Print(*row);
    return absl::OkStatus();
  }

 private:
  // What the program has of this GPU, except for what is measured here. Rates are those of a step's
  // clock: a step stretches them no further.
  void Begin(const spec::GpuRow& row) {
    const spec::Calibration& old = spec::CalibrationFor(row);
    spec::Calibration c;
    c.measured = true;
    c.source = absl::StrCat("hearth-trainer bench --calibrate on ", context_.gpu().name,
                            ", commit ", std::string(GitCommit()));
    c.coded = old.coded;
    c.emulated = old.emulated;
    c.link = old.link;
    c.not_hidden = old.not_hidden;
    c.lockstep = old.lockstep;
    files_.assign(schemes_.size(), c);
  }

  std::vector<std::string> Notes(const LoadScheme& scheme) const {
    return {
        absl::StrFormat("Written by hearth-trainer bench --calibrate in %.0f s, commit %s; %s, %s.",
                        Elapsed(), std::string(GitCommit()), context_.gemm_version(),
                        context_.attention_version()),
        "`emulated`, `parallel` and `coded_state` are not measured by it: they are as they were.",
        absl::StrFormat("%g s of load first. Products and attention by the scheme `%s`, in rounds:",
                        kWarmSeconds, std::string(scheme.name)),
        absl::StrFormat("%s; attention %g s a direction, each product %g s.", RoundText(scheme),
                        kAttentionSeconds, kProductSeconds),
        absl::StrFormat("Memory-bound kernels in rounds of %g ms after %g ms of products, %g s. "
                        "Medians over the last two thirds of a time.",
                        kStepMemoryMs, kStepProductsMs, kAmongSeconds),
        absl::StrFormat(
            "Copies (a kernel of 1 GiB) and watts: %g s each, afterwards. Launches: what "
            "a copy of 4 MiB takes beside its bytes.",
            kAloneSeconds),
        absl::StrFormat("No pauses, values normal. %d of %d products, the first of the list.",
                        products_done_, products_listed_),
    };
  }

  // The file asked for to stdout; to stderr the others, each line behind its scheme's name.
  void Print(const spec::GpuRow& row) const {
    for (size_t i = 0; i < files_.size(); ++i) {
      const std::string text = spec::CalibrationText(files_[i], row.name, Notes(*schemes_[i]));
      if (i == 0) {
        absl::PrintF("%s", text);
        continue;
      }
      for (const absl::string_view line : absl::StrSplit(text, '\n')) {
        absl::FPrintF(stderr, "%s| %s\n", std::string(schemes_[i]->name), line);
      }
    }
  }

  double Joules() const {
    return measured_.gpu == nullptr ? 0 : measured_.gpu->EnergyJoules().value_or(0);
  }
  double Elapsed() const { return absl::ToDoubleSeconds(Clock::Real().Monotonic() - start_); }
  KernelRows Step() const { return {&step_products_, &step_memory_}; }

  // As the GPU is while kernels run.
  std::string StateText() const {
    const auto sample = measured_.gpu == nullptr
                            ? absl::StatusOr<nvml::GpuSample>(absl::NotFoundError("no NVML"))
                            : measured_.gpu->Sample();
    return sample.ok()
               ? absl::StrFormat(
                     "%.0f MHz, %.0f W, %.0f C", sample->sm_clock_hertz.value_or(0) * 1e-6,
                     sample->power_watts.value_or(0), sample->temperature_celsius.value_or(0))
               : std::string(sample.status().message());
  }

  absl::Status MakeOperands() {
    listed_ = CalibrationProducts(capability_);
    products_listed_ = static_cast<int>(listed_.size());
    int64_t free = 0;
    int64_t total = 0;
    HEARTH_RETURN_IF_ERROR(kernels::DeviceMemory(context_, free, total));
    const double most = kBufferShare * static_cast<double>(free);
    // What runs in any case.
    std::vector<ProductShape> shapes = LayerProducts(spec::PlainRecipe());
    shapes.push_back(Bf16(kSquare, kSquare, kSquare));
    for (const ProductShape& shape : shapes) {
      if (!ProductOperands::Fits(shape, most)) {
        return absl::ResourceExhaustedError(
            absl::StrFormat("%d bytes of %s are free: too few for the products of a layer", free,
                            context_.gpu().name));
      }
    }
    for (const ListedProduct& product : listed_) {
      shapes.push_back(product.shape);
    }
    std::erase_if(listed_, [&](const ListedProduct& product) {
      return !ProductOperands::Fits(product.shape, most);
    });
    HEARTH_ASSIGN_OR_RETURN(operands_, ProductOperands::For(exec_, shapes, most));
    return absl::OkStatus();
  }

  KernelCall CallOf(const ProductShape& shape) const {
    return [this, args = operands_.ArgsOf(shape)] { return kernels::Gemm(exec_, args); };
  }

  // Before anything is timed, because the search for a plan leaves the GPU idle now and then.
  absl::Status Tune() {
    size_t tuned = 0;
    for (; tuned < listed_.size() && Elapsed() < kTunedAfter; ++tuned) {
      HEARTH_RETURN_IF_ERROR(CallOf(listed_[tuned].shape)());
    }
    listed_.resize(tuned);
    return kernels::Synchronize(exec_);
  }

  absl::StatusOr<KernelRow> LayerRow(const spec::Recipe& recipe, double ms) const {
    std::vector<KernelCall> calls;
    for (const ProductShape& shape : LayerProducts(recipe)) {
      calls.push_back(CallOf(shape));
    }
    const KernelCall layer = [&calls] {
      for (const KernelCall& call : calls) {
        HEARTH_RETURN_IF_ERROR(call());
      }
      return absl::OkStatus();
    };
    return meter_.Row(layer, ms);
  }

  absl::Status MakeCompany() {
    HEARTH_ASSIGN_OR_RETURN(passes_, MakeLayerPasses(exec_));
    HEARTH_ASSIGN_OR_RETURN(step_products_, LayerRow(spec::PlainRecipe(), kStepProductsMs));
    HEARTH_ASSIGN_OR_RETURN(step_memory_, meter_.Row(passes_.call, kStepMemoryMs));
    for (const LoadScheme* scheme : schemes_) {
      Company& company = companies_.emplace_back();
      company.scheme = scheme;
      HEARTH_ASSIGN_OR_RETURN(company.memory, meter_.Row(passes_.call, scheme->memory_ms));
      for (const spec::Recipe* recipe : {&spec::PlainRecipe(), &spec::TensorScaledRecipe()}) {
        const auto format = spec::UnitsFor(*recipe, capability_);
        if (format.has_value() && scheme->products_ms > 0) {
          HEARTH_ASSIGN_OR_RETURN(company.products[static_cast<int>(*format)],
                                  LayerRow(*recipe, scheme->products_ms));
        }
      }
    }
    return absl::OkStatus();
  }

  static double BytesPerSecond(const MemoryCalls& calls, const LoadMeter::Rate& rate) {
    return calls.bytes / rate.ms * 1e3;
  }

  // Memory-bound kernels at the clock that products leave.
  absl::Status AmongProducts() {
    const auto speed = [&](const MemoryCalls& calls) -> absl::StatusOr<double> {
      HEARTH_ASSIGN_OR_RETURN(const KernelRow row, meter_.Row(calls.call, kStepMemoryMs, Step()));
      HEARTH_ASSIGN_OR_RETURN(const auto rate,
                              meter_.RepeatAmong(row, {&step_products_}, kAmongSeconds));
      return BytesPerSecond(calls, rate);
    };
    HEARTH_ASSIGN_OR_RETURN(passes_speed_, speed(passes_));
    HEARTH_ASSIGN_OR_RETURN(const MemoryCalls adamw, MakeAdamW(exec_));
    HEARTH_ASSIGN_OR_RETURN(adamw_speed_, speed(adamw));
    return absl::OkStatus();
  }

  // FLOP/s of a call of so many operations in a company.
  absl::StatusOr<double> RateOf(const Company& company,
                                spec::MatrixFormat format,
                                const std::string& what,
                                const KernelCall& call,
                                double flops,
                                double seconds) const {
    HEARTH_ASSIGN_OR_RETURN(const KernelRow row,
                            meter_.Row(call, company.scheme->kernel_ms, Step()));
    std::string state;
    const auto note = [&] { state = StateText(); };
    HEARTH_ASSIGN_OR_RETURN(
        const auto rate,
        meter_.RepeatAmong(row, company.With(format), seconds,
                           verbose_ ? std::function<void()>(note) : std::function<void()>()));
    const double reached = flops / rate.ms * 1e3;
    if (verbose_) {
      absl::FPrintF(stderr, "%-6s %-34s %8.1f TFLOP/s  %s\n", std::string(company.scheme->name),
                    what, reached * 1e-12, state);
    }
    return reached;
  }

  absl::Status Attention() {
    const kernels::AttentionDims shapes[] = {{18, 2048, 12, 3, 64},
                                             {32, 1024, 14, 2, 64},
                                             {16, 1024, 12, 2, 128},
                                             {8, 4096, 16, 4, 128}};
    for (const kernels::AttentionDims& dims : shapes) {
      HEARTH_ASSIGN_OR_RETURN(const AttentionCalls calls,
                              AttentionCalls::Make(exec_, dims, DType::kBF16));
      const double flops = AttentionProductFlops(dims);
      const std::string name = absl::StrCat("attention ", dims.head_dim, " x ", dims.sequence);
      for (size_t i = 0; i < companies_.size(); ++i) {
        const auto rate = [&](const char* direction, const KernelCall& call, double products) {
          return RateOf(companies_[i], spec::MatrixFormat::kBf16, name + direction, call,
                        products * flops, kAttentionSeconds);
        };
        HEARTH_ASSIGN_OR_RETURN(const double forward, rate(" forward", calls.forward, 2));
        HEARTH_ASSIGN_OR_RETURN(const double backward, rate(" backward", calls.backward, 5));
        files_[i].attention.push_back({static_cast<double>(dims.head_dim),
                                       static_cast<double>(dims.sequence), forward, backward});
      }
    }
    return absl::OkStatus();
  }

  absl::Status Products() {
    const double until =
        kProductsAfter + kMoreForEachScheme * static_cast<double>(companies_.size() - 1);
    for (const ListedProduct& product : listed_) {
      if (Elapsed() > until) {
        break;
      }
      const ProductShape& p = product.shape;
      const std::string name = absl::StrFormat(
          "%s %d x %d x %d", std::string(spec::MatrixFormatName(product.format)), p.m, p.n, p.k);
      for (size_t i = 0; i < companies_.size(); ++i) {
        HEARTH_ASSIGN_OR_RETURN(const double rate, RateOf(companies_[i], product.format, name,
                                                          CallOf(p), p.flops(), kProductSeconds));
        files_[i].gemm[static_cast<int>(product.format)].push_back(
            {static_cast<double>(p.m), static_cast<double>(p.n), static_cast<double>(p.k), rate});
      }
      ++products_done_;
    }
    return absl::OkStatus();
  }

  // The rates of a single kind of kernel, and the watts of each: the same in all files.
  absl::Status Alone() {
    HEARTH_ASSIGN_OR_RETURN(const auto product,
                            meter_.Repeat(CallOf(Bf16(kSquare, kSquare, kSquare)), kAloneSeconds));
    HEARTH_ASSIGN_OR_RETURN(const AttentionCalls attention,
                            AttentionCalls::Make(exec_, {18, 2048, 12, 3, 64}, DType::kBF16));
    HEARTH_ASSIGN_OR_RETURN(const auto backward, meter_.Repeat(attention.backward, kAloneSeconds));
    HEARTH_ASSIGN_OR_RETURN(const MemoryCalls copy, MakeCopy(exec_));
    HEARTH_ASSIGN_OR_RETURN(const auto copied, meter_.Repeat(copy.call, kAloneSeconds));
    HEARTH_ASSIGN_OR_RETURN(const MemoryCalls smallest, MakeSmallestKernel(exec_));
    HEARTH_ASSIGN_OR_RETURN(const auto gap, meter_.Repeat(smallest.call, kAloneSeconds));
    HEARTH_ASSIGN_OR_RETURN(const double beside_bytes, MillisecondsBesideBytes());
    for (spec::Calibration& c : files_) {
      c.product_watts = product.watts;
      c.attention_watts = backward.watts;
      c.copy = BytesPerSecond(copy, copied);
      c.memory_watts = copied.watts;
      c.elementwise = passes_speed_ / c.copy;
      c.optimizer = adamw_speed_ / c.copy;
      c.launch_seconds = std::max(gap.ms, beside_bytes) * 1e-3;
      c.gap_watts = gap.watts;
    }
    return absl::OkStatus();
  }

  // What a kernel that fills the GPU takes: two times that of a copy, less that of one twice as
  // large.
  absl::StatusOr<double> MillisecondsBesideBytes() {
    HEARTH_ASSIGN_OR_RETURN(const MemoryCalls one, MakeCachedCopy(exec_, 1));
    HEARTH_ASSIGN_OR_RETURN(const auto once, meter_.Repeat(one.call, kLaunchSeconds));
    HEARTH_ASSIGN_OR_RETURN(const MemoryCalls two, MakeCachedCopy(exec_, 2));
    HEARTH_ASSIGN_OR_RETURN(const auto twice, meter_.Repeat(two.call, kLaunchSeconds));
    return 2 * once.ms - twice.ms;
  }

  kernels::CudaContext& context_;
  const kernels::Exec& exec_;
  const bool verbose_;
  const MeasuredGpu measured_;
  const LoadMeter meter_;
  const absl::Duration start_;
  const int capability_;
  std::vector<const LoadScheme*> schemes_;  // the one that the file is made with, then the others
  std::vector<spec::Calibration> files_;    // of each
  std::vector<ListedProduct> listed_;       // that fit and are tuned
  ProductOperands operands_;
  MemoryCalls passes_;
  KernelRow step_products_, step_memory_;
  std::vector<Company> companies_;  // of each scheme
  double passes_speed_ = 0;         // bytes a second
  double adamw_speed_ = 0;
  int products_listed_ = 0;
  int products_done_ = 0;
};

absl::Status Calibrate(const CalibrateOptions& options) {
  // Jobs have few products, and all of them are tuned.
  HEARTH_ASSIGN_OR_RETURN(TunedPlanPaths plans, FindTunedPlanPaths());
  plans.tuning_seconds = std::numeric_limits<double>::infinity();
  HEARTH_ASSIGN_OR_RETURN(
      const std::unique_ptr<kernels::CudaContext> context,
      OpenGpu(options.device.empty() ? "cuda:0" : options.device, false, plans));
  // Own attention kernels may need more scratch than probes.
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<GpuScratch> scratch,
                          GpuScratch::New(*context, size_t{1} << 30));
  return Calibrator(*context, scratch->exec, options).Run();
}

}  // namespace

int CalibrateCommand(const CalibrateOptions& options) {
  const absl::Status calibrated = Calibrate(options);
  return calibrated.ok() ? 0 : Fail(calibrated);
}

}  // namespace hearth::trainer
