#include "kernels/harness/harness.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "kernels/core/formats.h"
#include "kernels/core/rng.h"

namespace hearth::kernels::harness {
namespace {

constexpr size_t kGuardBytes = 64;

// A workspace with guard bytes behind it, filled with NaN so that an op that reads it first fails.
class GuardedWorkspace {
 public:
  GuardedWorkspace(const OpCase& op_case, const Buffers& buffers, int threads)
      : bytes_(op_case.workspace ? op_case.workspace(buffers, threads) : 0),
        memory_(static_cast<unsigned char*>(
                    std::aligned_alloc(64, (bytes_ + kGuardBytes + 63) / 64 * 64)),
                std::free) {
    std::memset(memory_.get(), 0xFF, bytes_);
    std::memset(memory_.get() + bytes_, 0xA5, kGuardBytes);
  }
  Exec exec(int threads) const {
    Exec exec;
    exec.threads = threads;
    exec.workspace = {memory_.get(), bytes_};
    return exec;
  }
  bool damaged() const {
    return std::any_of(memory_.get() + bytes_, memory_.get() + bytes_ + kGuardBytes,
                       [](unsigned char byte) { return byte != 0xA5; });
  }

 private:
  size_t bytes_;
  std::unique_ptr<unsigned char, void (*)(void*)> memory_;
};

std::string CompareRepeat(const OpCase& op_case,
                          const Buffers& untouched,
                          const Buffers& first,
                          int threads) {
  const Buffers second = untouched.Clone();
  const std::string error = RunOnCpu(op_case, second, threads);
  if (!error.empty()) {
    return error;
  }
  for (const BufferSpec& spec : op_case.buffers) {
    if (!first.BitEqual(second, spec.name)) {
      return absl::StrCat(spec.name, " differs between a run on 1 thread and one on ", threads);
    }
  }
  return "";
}

constexpr size_t kGroup = 64;

// Root mean square of each group of kGroup elements, at least `all`: what is far off is judged
// among neighbours. The gradients of a long document's first tokens are far above the others, and
// so are their errors.
std::vector<double> LocalSizes(const std::vector<double>& want, double all) {
  std::vector<double> sizes;
  for (size_t first = 0; first < want.size(); first += kGroup) {
    const size_t count = std::min(kGroup, want.size() - first);
    double norm = 0.0;
    for (size_t i = first; i < first + count; ++i) {
      norm += want[i] * want[i];
    }
    sizes.push_back(std::max(all, std::sqrt(norm / static_cast<double>(count))));
  }
  return sizes;
}

// Tolerance class NMSE, and that no single element is far off.
std::string CompareNear(const std::string& name,
                        const std::vector<double>& got,
                        const std::vector<double>& want,
                        double bound) {
  double error = 0.0;
  double norm = 0.0;
  for (size_t i = 0; i < got.size(); ++i) {
    error += (got[i] - want[i]) * (got[i] - want[i]);
    norm += want[i] * want[i];
  }
  const double rms = std::sqrt(norm / static_cast<double>(std::max<size_t>(1, got.size())));
  const std::vector<double> sizes = LocalSizes(want, rms);
  for (size_t i = 0; i < got.size(); ++i) {
    const double size = sizes[i / kGroup];
    if (!(std::fabs(got[i] - want[i]) <= 10.0 * bound * (std::fabs(want[i]) + size))) {
      return absl::StrCat(name, "[", i, "] of ", got.size(), " = ", got[i], ", double gives ",
                          want[i], "; rms here ", size, ", relative error of all ",
                          std::sqrt(error / norm), ", bound ", bound);
    }
  }
  if (!(std::sqrt(error) <= bound * std::sqrt(norm))) {
    return absl::StrCat(name, ": relative error ", std::sqrt(error / norm), ", bound ", bound);
  }
  return "";
}

// Tolerance class exact.
std::string CompareExact(const std::string& name,
                         const std::vector<double>& got,
                         const std::vector<double>& want,
                         DType dtype) {
  for (size_t i = 0; i < got.size(); ++i) {
    const double rounded = dtype == DType::kF64 || dtype == DType::kF32
                               ? want[i]
                               : RoundToFormat(static_cast<float>(want[i]), dtype);
    if (got[i] != rounded && !(std::isnan(got[i]) && std::isnan(rounded))) {
      return absl::StrCat(name, "[", i, "] of ", got.size(), " = ", got[i], ", double gives ",
                          want[i]);
    }
  }
  return "";
}

bool IsNarrow(DType dtype) {
  return dtype == DType::kBF16 || dtype == DType::kE4M3 || dtype == DType::kE5M2;
}

// One element of a quantised copy; NaNs differ in their signs.
std::string CompareCode(
    const std::string& name, int64_t at, uint8_t got, uint8_t want, float value) {
  const bool nan = std::isnan(value) && (got & 0x7F) > 0x7C;
  return got == want || nan ? ""
                            : absl::StrCat(name, "[", at, "] is code ", int{got}, ", of ", value,
                                           " it should be ", int{want});
}

// A QuantView against its definition (core/tensor.h), from the plain buffer as it was stored.
std::string CheckQuant(const BufferSpec& spec, const Buffers& buffers) {
  const std::vector<double> plain = buffers.Values(spec.quant_of);
  const std::string rows = buffers.Bytes(spec.name + ".rows");
  const std::string columns = buffers.Bytes(spec.name + ".columns");
  const float scale = static_cast<float>(buffers.Get(spec.name + ".scale", 0));
  const int64_t C = spec.shape.back();
  const int64_t R = static_cast<int64_t>(plain.size()) / C;
  float amax = 0.0F;
  for (int64_t i = 0; i < R * C; ++i) {
    const float value = static_cast<float>(plain[static_cast<size_t>(i)]);
    amax = std::isnan(value) || std::fabs(value) > amax ? std::fabs(value) : amax;
    const uint8_t want =
        spec.dtype == DType::kE4M3 ? EncodeE4m3(value * scale) : EncodeE5m2(value * scale);
    const uint8_t code = static_cast<uint8_t>(rows[static_cast<size_t>(i)]);
    std::string error = CompareCode(spec.name + ".rows", i, code, want, value);
    if (error.empty() && !columns.empty()) {
      const int64_t at = i % C * R + i / C;
      error = CompareCode(spec.name + ".columns", at,
                          static_cast<uint8_t>(columns[static_cast<size_t>(at)]), want, value);
    }
    if (!error.empty()) {
      return error;
    }
  }
  const double got = buffers.Get(spec.name + ".amax", 0);
  return got == double{amax} ? ""
                             : absl::StrCat(spec.name, ".amax is ", got, ", largest is ", amax);
}

// The gradient check's loss: sum over outputs of value * cotangent.
double Loss(const OpCase& op_case, const Buffers& buffers) {
  double loss = 0.0;
  for (const GradientPair& pair : op_case.outputs) {
    const std::vector<double> values = buffers.Values(pair.value);
    const std::vector<double> cotangents = buffers.Values(pair.gradient);
    for (size_t i = 0; i < values.size(); ++i) {
      loss += values[i] * cotangents[i];
    }
  }
  return loss;
}

// Loss with one element moved; the other buffers are fresh.
double LossAt(const OpCase& op_case, const std::string& input, int64_t element, double delta) {
  Buffers buffers(op_case.buffers, DType::kF64, kSeed, true);
  buffers.Set(input, element, buffers.Get(input, element) + delta);
  const GuardedWorkspace workspace(op_case, buffers, 1);
  const absl::Status status = op_case.forward(workspace.exec(1), buffers);
  return status.ok() ? Loss(op_case, buffers) : std::nan("");
}

std::string CheckInput(const OpCase& op_case, const Buffers& analytic, const GradientPair& pair) {
  constexpr int64_t kProbes = 12;
  constexpr double kStep = 1e-4;
  const int64_t count = analytic[pair.value].numel();
  double scale = 0.0;
  for (double value : analytic.Values(pair.gradient)) {
    scale = std::max(scale, std::fabs(value));
  }
  const RngKey key = {kSeed, RngPurpose::kTest, 1, 0, 0};
  for (int64_t probe = 0; probe < std::min(kProbes, count); ++probe) {
    const int64_t element =
        count <= kProbes ? probe
                         : static_cast<int64_t>(RngWord(key, static_cast<uint64_t>(probe))) % count;
    // Fourth order: error about kStep^4 times the fifth derivative.
    const double numeric = (8.0 * (LossAt(op_case, pair.value, element, kStep) -
                                   LossAt(op_case, pair.value, element, -kStep)) -
                            (LossAt(op_case, pair.value, element, 2 * kStep) -
                             LossAt(op_case, pair.value, element, -2 * kStep))) /
                           (12.0 * kStep);
    const double exact = analytic.Get(pair.gradient, element);
    if (!(std::fabs(numeric - exact) <= 1e-8 + 1e-7 * (std::fabs(exact) + scale))) {
      return absl::StrCat(pair.gradient, "[", element, "] = ", exact, ", finite differences give ",
                          numeric);
    }
  }
  return "";
}

double Fastest(const RunFn& run, const Exec& exec, const Buffers& buffers) {
  if (!run) {
    return 0.0;
  }
  double best = 1e30;
  double total = 0.0;
  for (int i = 0; i < 50 && (i < 3 || total < 0.3); ++i) {
    const auto begin = std::chrono::steady_clock::now();
    if (!run(exec, buffers).ok()) {
      return 0.0;
    }
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    best = std::min(best, seconds);
    total += seconds;
  }
  return best;
}

}  // namespace

std::string RunOnCpu(const OpCase& op_case, const Buffers& buffers, int threads) {
  const GuardedWorkspace workspace(op_case, buffers, threads);
  for (const RunFn& run : {op_case.forward, op_case.backward}) {
    if (!run) {
      continue;
    }
    const absl::Status status = run(workspace.exec(threads), buffers);
    if (!status.ok()) {
      return status.ToString();
    }
  }
  if (workspace.damaged()) {
    return "wrote behind the workspace";
  }
  const std::string damaged = buffers.DamagedGuard();
  return damaged.empty() ? "" : absl::StrCat("wrote outside buffer ", damaged);
}

std::string CheckImage(const OpCase& op_case, const Buffers& buffers) {
  for (const BufferSpec& spec : op_case.buffers) {
    const std::string error =
        spec.quant_of.empty() || buffers.storage() == DType::kF64 ? "" : CheckQuant(spec, buffers);
    if (!error.empty()) {
      return error;
    }
  }
  return op_case.check ? op_case.check(buffers) : "";
}

std::string CompareWithDouble(const OpCase& op_case,
                              const Buffers& got,
                              const Buffers& wide,
                              bool cuda) {
  const bool narrow =
      std::any_of(op_case.buffers.begin(), op_case.buffers.end(), [&](const BufferSpec& spec) {
        return spec.quant_of.empty() && IsNarrow(got.TypeOf(spec.name));
      });
  const double slack = cuda && op_case.cuda_slack >= 0.0 ? op_case.cuda_slack : op_case.slack;
  double bound = slack * 0x1p-24 * std::sqrt(static_cast<double>(op_case.reduction));
  if (narrow && slack > 0.0) {
    bound = std::max(bound, op_case.bf16_slack * 0x1p-8);
  }
  for (const BufferSpec& spec : op_case.buffers) {
    if (spec.role == Role::kInput || !spec.quant_of.empty()) {
      continue;
    }
    std::string error;
    if (spec.dtype == DType::kI64) {
      error = got.BitEqual(wide, spec.name) ? "" : spec.name + " differs from the CPU's";
    } else if (slack == 0.0) {
      error = CompareExact(spec.name, got.Values(spec.name), wide.Values(spec.name),
                           got.TypeOf(spec.name));
    } else {
      error = CompareNear(spec.name, got.Values(spec.name), wide.Values(spec.name), bound);
    }
    if (!error.empty()) {
      return error;
    }
  }
  return "";
}

std::string CheckAgainstDouble(const OpCase& op_case) {
  const Buffers untouched(op_case.buffers, DType::kF32, kSeed, false);
  const Buffers single = untouched.Clone();
  std::string error = RunOnCpu(op_case, single, 1);
  if (error.empty()) {
    error = CheckImage(op_case, single);
  }
  if (error.empty() && op_case.double_reference) {
    const Buffers wide(op_case.buffers, DType::kF64, kSeed, false);
    error = RunOnCpu(op_case, wide, 1);
    if (error.empty()) {
      error = CompareWithDouble(op_case, single, wide, false);
    }
  }
  if (!error.empty()) {
    return error;
  }
  for (const BufferSpec& spec : op_case.buffers) {
    if (spec.role == Role::kInput && !single.BitEqual(untouched, spec.name)) {
      return absl::StrCat("input ", spec.name, " was written");
    }
  }
  error = CompareRepeat(op_case, untouched, single, 1);
  if (!error.empty() || !op_case.thread_invariant) {
    return error;
  }
  return CompareRepeat(op_case, untouched, single, 3);
}

std::string CheckGradients(const OpCase& op_case) {
  const Buffers buffers(op_case.buffers, DType::kF64, kSeed, true);
  const std::string error = RunOnCpu(op_case, buffers, 1);
  if (!error.empty()) {
    return error;
  }
  for (const GradientPair& pair : op_case.inputs) {
    const std::string wrong = CheckInput(op_case, buffers, pair);
    if (!wrong.empty()) {
      return wrong;
    }
  }
  return "";
}

Timing Measure(const OpCase& op_case, int threads) {
  const Buffers buffers(op_case.buffers, DType::kF32, kSeed, true);
  const GuardedWorkspace workspace(op_case, buffers, threads);
  const Exec exec = workspace.exec(threads);
  Timing timing;
  timing.forward_s = Fastest(op_case.forward, exec, buffers);
  timing.backward_s = Fastest(op_case.backward, exec, buffers);
  const double all = static_cast<double>(buffers.TotalBytes());
  timing.forward_bytes =
      op_case.forward_traffic.empty() ? all : buffers.BytesOf(op_case.forward_traffic);
  timing.backward_bytes =
      op_case.backward_traffic.empty() ? all : buffers.BytesOf(op_case.backward_traffic);
  return timing;
}

}  // namespace hearth::kernels::harness
