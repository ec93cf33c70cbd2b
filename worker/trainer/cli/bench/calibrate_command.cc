// `bench --calibrate`: what products, attention, copies and launches reach on a GPU, and the watts
// that they take, as a file of configs/calibration. The rest of such a file is not measured here:
// tests/bench/plan_accuracy.py compares whole jobs.
#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"
#include "common/base/version.h"
#include "common/spec/feasibility/speed/calibration.h"
#include "common/spec/gpus/gpus.h"
#include "common/time/clock.h"
#include "worker/trainer/cli/bench/kernel_meter.h"
#include "worker/trainer/cli/machine/gpu_scratch.h"
#include "worker/trainer/cli/machine/measured_gpu.h"
#include "worker/trainer/cli/verbs.h"
#include "worker/trainer/device/rank_device.h"

namespace hearth::trainer {
namespace {

using kernels::DType;

constexpr double kProductSeconds = 40;  // for all products; a minute with the rest
constexpr double kWattsSeconds = 1.5;
constexpr size_t kCopyBytes = size_t{1} << 30;
constexpr int64_t kSquare = 8192;

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

class Calibrator {
 public:
  Calibrator(kernels::CudaContext& context, const kernels::Exec& exec)
      : context_(context), exec_(exec), measured_(MeasuredGpu::Open(context)) {}

  absl::Status Run() {
    const spec::GpuRow* const row = spec::FindGpu(context_.gpu().name);
    if (row == nullptr) {
      return absl::NotFoundError(
          absl::StrCat(context_.gpu().name, " is not in configs/gpus.yaml: give it a row first"));
    }
    Print(*row);
    HEARTH_RETURN_IF_ERROR(Copy());
    HEARTH_RETURN_IF_ERROR(Launch());
    HEARTH_RETURN_IF_ERROR(Attention());
    HEARTH_RETURN_IF_ERROR(Watts());
    return Products();
  }

 private:
  // Copied from what the program has of this GPU: no kernel alone shows it. But products and
  // attention are measured back to back, at the clock that the power limit leaves them: a step
  // stretches them no further.
  static void PrintShared(const spec::Calibration& c) {
    absl::PrintF(
        "# Not measured by this program: as they were.\nelementwise: %g\noptimizer: %g\n"
        "emulated: %g\nparallel: {link: %g, not_hidden: %g, lockstep: %g}\n"
        "# The rates below are those at the power limit.\nstretch: {other: 1}\n",
        c.elementwise, c.optimizer, c.emulated, c.link, c.not_hidden, c.lockstep);
    for (const spec::CodedRate& rate : c.coded) {
      absl::PrintF("%s[%g, %g]", &rate == c.coded.data() ? "coded_state: [" : ", ", rate.bits,
                   rate.values * 1e-9);
    }
    absl::PrintF("%s", c.coded.empty() ? "" : "]\n");
  }

  void Print(const spec::GpuRow& row) const {
    absl::PrintF("# Written by hearth-trainer bench --calibrate, commit %s; %s, %s.\ngpu: %s\n",
                 std::string(GitCommit()), context_.gemm_version(), context_.attention_version(),
                 row.name);
    absl::PrintF("source: hearth-trainer bench --calibrate on %s, commit %s\n", context_.gpu().name,
                 std::string(GitCommit()));
    PrintShared(spec::CalibrationFor(row));
  }

  double Joules() const {
    return measured_.gpu == nullptr ? 0 : measured_.gpu->EnergyJoules().value_or(0);
  }
  std::function<double()> Counter() const {
    return [this] { return Joules(); };
  }

  absl::Status Copy() {
    HEARTH_ASSIGN_OR_RETURN(const auto from, DeviceBuffer::Random(exec_, kCopyBytes, false));
    HEARTH_ASSIGN_OR_RETURN(const auto to, DeviceBuffer::Random(exec_, kCopyBytes, false));
    const auto copy = [&] { return kernels::Copy(exec_, to->data(), from->data(), kCopyBytes); };
    HEARTH_ASSIGN_OR_RETURN(const double ms, TimeKernel(exec_, copy));
    absl::PrintF("copy_gbs: %.0f\n", 2e-6 * static_cast<double>(kCopyBytes) / ms);
    HEARTH_ASSIGN_OR_RETURN(memory_watts_, WattsOf(exec_, copy, Counter(), kWattsSeconds));
    return absl::OkStatus();
  }

  // The smallest node of a graph, and the gap before it.
  absl::Status Launch() {
    HEARTH_ASSIGN_OR_RETURN(const auto word, DeviceBuffer::Random(exec_, 256, false));
    const auto zero = [&] { return kernels::Zero(exec_, word->data(), 4); };
    HEARTH_ASSIGN_OR_RETURN(const double ms, TimeKernel(exec_, zero));
    absl::PrintF("launch_us: %.2f\n", ms * 1e3);
    HEARTH_ASSIGN_OR_RETURN(gap_watts_, WattsOf(exec_, zero, Counter(), kWattsSeconds));
    return absl::OkStatus();
  }

  absl::Status Attention() {
    const kernels::AttentionDims shapes[] = {{18, 2048, 12, 3, 64},
                                             {32, 1024, 14, 2, 64},
                                             {16, 1024, 12, 2, 128},
                                             {8, 4096, 16, 4, 128}};
    std::string rows;
    for (const kernels::AttentionDims& dims : shapes) {
      HEARTH_ASSIGN_OR_RETURN(const AttentionTime time,
                              TimeAttention(exec_, dims, DType::kBF16, Counter(), kWattsSeconds));
      const double flops = AttentionProductFlops(dims);
      absl::StrAppendFormat(&rows, "%s[%d, %d, %.0f, %.0f]", rows.empty() ? "" : ", ",
                            dims.head_dim, dims.sequence, 2e-9 * flops / time.forward_ms,
                            5e-9 * flops / time.backward_ms);
      attention_watts_ = time.watts;
    }
    absl::PrintF("# head_dim, sequence, forward, backward in TFLOP/s\nattention: [%s]\n", rows);
    return absl::OkStatus();
  }

  absl::Status Watts() {
    double watts = 0;
    HEARTH_RETURN_IF_ERROR(
        TimeProduct(exec_, Bf16(kSquare, kSquare, kSquare), Counter(), kWattsSeconds, watts)
            .status());
    absl::PrintF("watts: {products: %.0f, attention: %.0f, memory: %.0f, gaps: %.0f}\n", watts,
                 attention_watts_, memory_watts_, gap_watts_);
    return absl::OkStatus();
  }

  static ProductShape Bf16(int64_t m, int64_t n, int64_t k) {
    return {m, n, k, DType::kBF16, DType::kBF16, DType::kBF16, false, true, false, false};
  }

  // The three products of a weight, as the engine has them (step_floor.cc).
  static std::vector<ProductShape> ProductsOf(const Weight& w,
                                              int64_t tokens,
                                              const spec::Recipe& recipe) {
    const bool fp8 = recipe.tensor_scaled();
    const DType x = recipe.fprop.a.dtype;
    const DType dy = recipe.dgrad.a.dtype;
    return {
        {tokens, w.out, w.in, x, recipe.fprop.b.dtype, recipe.fprop.output, false, true, fp8, fp8},
        {tokens, w.in, w.out, dy, recipe.dgrad.b.dtype, recipe.dgrad.output, false, fp8, fp8,
         false},
        {w.out, w.in, tokens, dy, x, DType::kF32, !fp8, fp8, fp8, false}};
  }

  absl::Status Products() {
    const absl::Duration end = Clock::Real().Monotonic() + absl::Seconds(kProductSeconds);
    const int capability = context_.gpu().major * 10 + context_.gpu().minor;
    const spec::Recipe& plain = spec::PlainRecipe();
    const spec::Recipe& narrow = spec::TensorScaledRecipe();
    std::vector<const spec::Recipe*> recipes;
    std::vector<std::string> formats;
    for (const spec::Recipe* recipe : {&plain, &narrow}) {
      if (const auto units = spec::UnitsFor(*recipe, capability); units.has_value()) {
        recipes.push_back(recipe);
        formats.emplace_back(spec::MatrixFormatName(*units));
      }
    }
    std::vector<std::string> rows(formats.size());
    for (const int64_t tokens : kTokens) {
      for (const Weight& weight : kWeights) {
        const int64_t m = weight.out >= 32768 ? std::min(tokens, kMostHeadTokens) : tokens;
        for (size_t f = 0; f < formats.size(); ++f) {
          for (const ProductShape& product : ProductsOf(weight, m, *recipes[f])) {
            if (Clock::Real().Monotonic() > end) {
              return PrintProducts(formats, rows);
            }
            HEARTH_ASSIGN_OR_RETURN(const double ms, TimeProduct(exec_, product));
            absl::StrAppendFormat(&rows[f], "    - [%d, %d, %d, %.0f]\n", product.m, product.n,
                                  product.k, product.flops() / ms * 1e-9);
          }
        }
      }
    }
    return PrintProducts(formats, rows);
  }

  static absl::Status PrintProducts(const std::vector<std::string>& formats,
                                    const std::vector<std::string>& rows) {
    absl::PrintF("# m, n, k, TFLOP/s\ngemm:\n");
    for (size_t f = 0; f < formats.size(); ++f) {
      absl::PrintF("  %s:\n%s", formats[f], rows[f]);
    }
    return absl::OkStatus();
  }

  kernels::CudaContext& context_;
  const kernels::Exec& exec_;
  const MeasuredGpu measured_;
  double memory_watts_ = 0;
  double gap_watts_ = 0;
  double attention_watts_ = 0;
};

absl::Status Calibrate(const std::string& device) {
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<kernels::CudaContext> context,
                          OpenGpu(device.empty() ? "cuda:0" : device, false));
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
