// `bench --calibrate`: what products, attention, memory-bound kernels and launches reach on a GPU
// that is as busy as in a step, and the watts that they take, as a file of configs/calibration. The
// rest of such a file is not measured here: tests/bench/plan_accuracy.py compares whole jobs.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"
#include "common/base/version.h"
#include "common/spec/feasibility/speed/calibration.h"
#include "common/spec/feasibility/speed/calibration_text.h"
#include "common/spec/gpus/gpus.h"
#include "common/time/clock.h"
#include "kernels/gemm/gemm.h"
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

// Seconds of load. What is alone also gives watts, for which the GPU's counter is too slow below 3.
constexpr double kAloneSeconds = 3;
constexpr double kAmongSeconds = 2.5;  // of memory-bound kernels
constexpr double kAttentionSeconds = 0.5;
constexpr double kProductSeconds = 0.1;
constexpr double kWholeSeconds = 55;  // since the start: products that come later are left out
// A step at the power limit, in rounds: products and attention most of the time, and kernels that
// memory bounds, which take less power and leave some to the others.
constexpr double kComputeMs = 6.4;
constexpr double kMemoryMs = 1.6;
constexpr int64_t kSquare = 8192;
constexpr double kBufferShare = 1.0 / 8;  // of free memory: what one of five operands may take

// Weights of models from 100 M to 7 B parameters, [out, in], and tokens of a micro-batch: the first
// are measured first, and what the time does not suffice for is left out.
struct Weight {
  int64_t out, in;
};
constexpr Weight kWeights[] = {
    {4096, 768},   {768, 2048},   {8192, 1280},  {1280, 4096},  {17920, 1536}, {1536, 8960},
    {22016, 2048}, {2048, 11008}, {1152, 768},   {768, 768},    {1920, 1280},  {1280, 1280},
    {2048, 2048},  {2560, 2048},  {9728, 896},   {896, 4864},   {49152, 768},  {151936, 1536},
    {6144, 4096},  {4096, 4096},  {28672, 4096}, {4096, 14336},
};
constexpr int64_t kTokens[] = {16384, 36864, 4096};
constexpr int64_t kMostHeadTokens = 8192;  // logits come in chunks

ProductShape Bf16(int64_t m, int64_t n, int64_t k) {
  return {m, n, k, DType::kBF16, DType::kBF16, DType::kBF16, false, true, false, false};
}

// The three products of a weight, as the engine has them (step_floor.cc).
std::vector<ProductShape> ProductsOf(const Weight& w, int64_t tokens, const spec::Recipe& recipe) {
  const bool fp8 = recipe.tensor_scaled();
  const DType x = recipe.fprop.a.dtype;
  const DType dy = recipe.dgrad.a.dtype;
  return {
      {tokens, w.out, w.in, x, recipe.fprop.b.dtype, recipe.fprop.output, false, true, fp8, fp8},
      {tokens, w.in, w.out, dy, recipe.dgrad.b.dtype, recipe.dgrad.output, false, fp8, fp8, false},
      {w.out, w.in, tokens, dy, x, DType::kF32, !fp8, fp8, fp8, false}};
}

// A product that is measured, and the table that it goes into.
struct ListedProduct {
  ProductShape shape;
  spec::MatrixFormat format;
};

// The most wanted first.
std::vector<ListedProduct> AllProducts(int capability) {
  std::vector<ListedProduct> all;
  for (const int64_t tokens : kTokens) {
    for (const Weight& weight : kWeights) {
      const int64_t m = weight.out >= 32768 ? std::min(tokens, kMostHeadTokens) : tokens;
      for (const spec::Recipe* recipe : {&spec::PlainRecipe(), &spec::TensorScaledRecipe()}) {
        const auto units = spec::UnitsFor(*recipe, capability);
        if (!units.has_value()) {
          continue;
        }
        for (const ProductShape& shape : ProductsOf(weight, m, *recipe)) {
          all.push_back({shape, *units});
        }
      }
    }
  }
  return all;
}

class Calibrator {
 public:
  Calibrator(kernels::CudaContext& context, const kernels::Exec& exec)
      : context_(context),
        exec_(exec),
        measured_(MeasuredGpu::Open(context)),
        meter_(exec, [this] { return Joules(); }),
        start_(Clock::Real().Monotonic()) {}

  absl::Status Run() {
    const spec::GpuRow* const row = spec::FindGpu(context_.gpu().name);
    if (row == nullptr) {
      return absl::NotFoundError(
          absl::StrCat(context_.gpu().name, " is not in configs/gpus.yaml: give it a row first"));
    }
    Begin(*row);
    HEARTH_RETURN_IF_ERROR(Alone());
    HEARTH_RETURN_IF_ERROR(AmongProducts());
    HEARTH_RETURN_IF_ERROR(Attention());
    HEARTH_RETURN_IF_ERROR(Products());
    absl::PrintF("%s", spec::CalibrationText(c_, row->name, Notes()));
    return absl::OkStatus();
  }

 private:
  // What the program has of this GPU, except for what is measured here. Rates are those of a step's
  // clock: a step stretches them no further.
  void Begin(const spec::GpuRow& row) {
    const spec::Calibration& old = spec::CalibrationFor(row);
    c_.measured = true;
    c_.source = absl::StrCat("hearth-trainer bench --calibrate on ", context_.gpu().name,
                             ", commit ", std::string(GitCommit()));
    c_.coded = old.coded;
    c_.emulated = old.emulated;
    c_.link = old.link;
    c_.not_hidden = old.not_hidden;
    c_.lockstep = old.lockstep;
  }

  std::vector<std::string> Notes() const {
    return {
        absl::StrFormat("Written by hearth-trainer bench --calibrate in %.0f s, commit %s; %s, %s.",
                        Elapsed(), std::string(GitCommit()), context_.gemm_version(),
                        context_.attention_version()),
        "`emulated`, `parallel` and `coded_state` are not measured by it: they are as they were.",
        absl::StrFormat(
            "Copies (a kernel of 1 GiB), launches (a graph of the smallest kernels) and "
            "watts: %g s each.",
            kAloneSeconds),
        absl::StrFormat("The rest in rounds as of a step, of %g ms of products or attention and "
                        "%g ms of memory-bound kernels, medians over the",
                        kComputeMs, kMemoryMs),
        absl::StrFormat(
            "last two thirds of a time under load: memory-bound kernels %g s, attention "
            "%g s a direction, each product %g s.",
            kAmongSeconds, kAttentionSeconds, kProductSeconds),
        absl::StrFormat("No pauses, values random. %d of %d products, the first of the list.",
                        products_done_, products_listed_),
    };
  }

  double Joules() const {
    return measured_.gpu == nullptr ? 0 : measured_.gpu->EnergyJoules().value_or(0);
  }
  double Elapsed() const { return absl::ToDoubleSeconds(Clock::Real().Monotonic() - start_); }

  // The rates of a single kind of kernel, and the watts of each.
  absl::Status Alone() {
    const ProductShape square = Bf16(kSquare, kSquare, kSquare);
    HEARTH_ASSIGN_OR_RETURN(
        square_, ProductOperands::For(exec_, {square}, std::numeric_limits<double>::infinity()));
    square_call_ = [this, args = square_.ArgsOf(square)] { return kernels::Gemm(exec_, args); };
    HEARTH_ASSIGN_OR_RETURN(const auto product, meter_.Repeat(square_call_, kAloneSeconds));
    c_.product_watts = product.watts;
    HEARTH_ASSIGN_OR_RETURN(copy_, MakeCopy(exec_));
    HEARTH_ASSIGN_OR_RETURN(const auto copied, meter_.Repeat(copy_.call, kAloneSeconds));
    c_.copy = BytesPerSecond(copy_, copied);
    c_.memory_watts = copied.watts;
    HEARTH_ASSIGN_OR_RETURN(const MemoryCalls smallest, MakeSmallestKernel(exec_));
    HEARTH_ASSIGN_OR_RETURN(const auto gap, meter_.Repeat(smallest.call, kAloneSeconds));
    c_.launch_seconds = gap.ms * 1e-3;
    c_.gap_watts = gap.watts;
    return absl::OkStatus();
  }

  static double BytesPerSecond(const MemoryCalls& calls, const LoadMeter::Rate& rate) {
    return calls.bytes / rate.ms * 1e3;
  }

  // Memory-bound kernels at the clock that products leave, as shares of the copy.
  absl::Status AmongProducts() {
    HEARTH_ASSIGN_OR_RETURN(const KernelRow products, meter_.Row(square_call_, kComputeMs));
    const auto share = [&](auto make) -> absl::StatusOr<double> {
      HEARTH_ASSIGN_OR_RETURN(const MemoryCalls calls, make(exec_));
      HEARTH_ASSIGN_OR_RETURN(const auto rate,
                              meter_.RepeatAmong(calls.call, kMemoryMs, products, kAmongSeconds));
      return BytesPerSecond(calls, rate) / c_.copy;
    };
    HEARTH_ASSIGN_OR_RETURN(c_.elementwise, share(MakeLayerPasses));
    HEARTH_ASSIGN_OR_RETURN(c_.optimizer, share(MakeAdamW));
    return absl::OkStatus();
  }

  absl::Status Attention() {
    HEARTH_ASSIGN_OR_RETURN(copies_, meter_.Row(copy_.call, kMemoryMs));
    const kernels::AttentionDims shapes[] = {{18, 2048, 12, 3, 64},
                                             {32, 1024, 14, 2, 64},
                                             {16, 1024, 12, 2, 128},
                                             {8, 4096, 16, 4, 128}};
    for (const kernels::AttentionDims& dims : shapes) {
      HEARTH_ASSIGN_OR_RETURN(const AttentionCalls calls,
                              AttentionCalls::Make(exec_, dims, DType::kBF16));
      HEARTH_ASSIGN_OR_RETURN(const auto forward, meter_.RepeatAmong(calls.forward, kComputeMs,
                                                                     copies_, kAttentionSeconds));
      HEARTH_ASSIGN_OR_RETURN(const auto backward, meter_.RepeatAmong(calls.backward, kComputeMs,
                                                                      copies_, kAttentionSeconds));
      const double flops = AttentionProductFlops(dims);
      c_.attention.push_back({static_cast<double>(dims.head_dim),
                              static_cast<double>(dims.sequence), 2e3 * flops / forward.ms,
                              5e3 * flops / backward.ms});
      if (&dims == &shapes[0]) {
        HEARTH_ASSIGN_OR_RETURN(const auto alone, meter_.Repeat(calls.backward, kAloneSeconds));
        c_.attention_watts = alone.watts;
      }
    }
    return absl::OkStatus();
  }

  absl::Status Products() {
    const std::vector<ListedProduct> all =
        AllProducts(context_.gpu().major * 10 + context_.gpu().minor);
    int64_t free = 0;
    int64_t total = 0;
    HEARTH_RETURN_IF_ERROR(kernels::DeviceMemory(context_, free, total));
    const double most = kBufferShare * static_cast<double>(free);
    std::vector<ProductShape> shapes;
    for (const ListedProduct& product : all) {
      shapes.push_back(product.shape);
    }
    HEARTH_ASSIGN_OR_RETURN(const ProductOperands operands,
                            ProductOperands::For(exec_, shapes, most));
    products_listed_ = static_cast<int>(all.size());
    for (const ListedProduct& product : all) {
      if (Elapsed() > kWholeSeconds) {
        break;
      }
      const ProductShape& p = product.shape;
      if (!ProductOperands::Fits(p, most)) {
        continue;
      }
      const auto call = [this, args = operands.ArgsOf(p)] { return kernels::Gemm(exec_, args); };
      HEARTH_ASSIGN_OR_RETURN(const auto rate,
                              meter_.RepeatAmong(call, kComputeMs, copies_, kProductSeconds));
      c_.gemm[static_cast<int>(product.format)].push_back(
          {static_cast<double>(p.m), static_cast<double>(p.n), static_cast<double>(p.k),
           p.flops() / rate.ms * 1e3});
      ++products_done_;
    }
    return absl::OkStatus();
  }

  kernels::CudaContext& context_;
  const kernels::Exec& exec_;
  const MeasuredGpu measured_;
  const LoadMeter meter_;
  const absl::Duration start_;
  spec::Calibration c_;
  ProductOperands square_;
  KernelCall square_call_;
  MemoryCalls copy_;
  KernelRow copies_;
  int products_listed_ = 0;
  int products_done_ = 0;
};

absl::Status Calibrate(const std::string& device) {
  // Jobs have few products, and all of them are tuned.
  HEARTH_ASSIGN_OR_RETURN(TunedPlanPaths plans, FindTunedPlanPaths());
  plans.tuning_seconds = std::numeric_limits<double>::infinity();
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<kernels::CudaContext> context,
                          OpenGpu(device.empty() ? "cuda:0" : device, false, plans));
  // Own attention kernels may need more scratch than probes.
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<GpuScratch> scratch,
                          GpuScratch::New(*context, size_t{1} << 30));
  return Calibrator(*context, scratch->exec).Run();
}

}  // namespace

int CalibrateCommand(const std::string& device) {
  const absl::Status calibrated = Calibrate(device);
  return calibrated.ok() ? 0 : Fail(calibrated);
}

}  // namespace hearth::trainer
