#include "kernels/harness/harness.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "kernels/core/rng.h"

namespace hearth::kernels::harness {
namespace {

constexpr uint64_t kSeed = 20240517;
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

// Forward, then backward where there is one. Empty, or what failed.
std::string RunBoth(const OpCase& op_case, const Buffers& buffers, int threads) {
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

std::string CompareRepeat(const OpCase& op_case, const Buffers& first, int threads) {
  const Buffers second(op_case.buffers, DType::kF32, kSeed, false);
  const std::string error = RunBoth(op_case, second, threads);
  if (!error.empty()) {
    return error;
  }
  for (const BufferSpec& spec : op_case.buffers) {
    if (!first.BitEqual(second, spec.name)) {
      return absl::StrCat(spec.name, " differs between a run on 1 and one on ", threads,
                          " threads");
    }
  }
  return "";
}

std::string CompareValues(const OpCase& op_case,
                          const Buffers& single,
                          const Buffers& wide,
                          const std::string& name) {
  const std::vector<double> got = single.Values(name);
  const std::vector<double> want = wide.Values(name);
  double error = 0.0;
  double norm = 0.0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (op_case.slack == 0.0 && got[i] != want[i]) {
      return absl::StrCat(name, "[", i, "] = ", got[i], ", double gives ", want[i]);
    }
    error += (got[i] - want[i]) * (got[i] - want[i]);
    norm += want[i] * want[i];
  }
  const double bound = op_case.slack * 0x1p-24 * std::sqrt(static_cast<double>(op_case.reduction));
  if (!(std::sqrt(error) <= bound * std::sqrt(norm)) && op_case.slack > 0.0) {
    return absl::StrCat(name, ": relative error ", std::sqrt(error / norm), ", bound ", bound);
  }
  return "";
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

std::string CheckAgainstDouble(const OpCase& op_case) {
  const Buffers single(op_case.buffers, DType::kF32, kSeed, false);
  const Buffers wide(op_case.buffers, DType::kF64, kSeed, false);
  const Buffers untouched(op_case.buffers, DType::kF32, kSeed, false);
  for (const Buffers* buffers : {&single, &wide}) {
    const std::string error = RunBoth(op_case, *buffers, 1);
    if (!error.empty()) {
      return error;
    }
  }
  for (const BufferSpec& spec : op_case.buffers) {
    if (spec.role == Role::kInput && !single.BitEqual(untouched, spec.name)) {
      return absl::StrCat("input ", spec.name, " was written");
    }
    const std::string error =
        spec.role == Role::kInput ? "" : CompareValues(op_case, single, wide, spec.name);
    if (!error.empty()) {
      return error;
    }
  }
  const std::string error = CompareRepeat(op_case, single, 1);
  if (!error.empty() || !op_case.thread_invariant) {
    return error;
  }
  return CompareRepeat(op_case, single, 3);
}

std::string CheckGradients(const OpCase& op_case) {
  const Buffers buffers(op_case.buffers, DType::kF64, kSeed, true);
  const std::string error = RunBoth(op_case, buffers, 1);
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
  timing.bytes = static_cast<double>(buffers.TotalBytes());
  return timing;
}

}  // namespace hearth::kernels::harness
