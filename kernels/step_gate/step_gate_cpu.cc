#include <chrono>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/cuda/dispatch.h"
#include "kernels/step_gate/judge.h"
#include "kernels/step_gate/step_gate.h"

namespace hearth::kernels {
namespace {

constexpr char kOp[] = "step_gate";

// The host has one buffer of 256 bytes for each (common/spec/training_plan.cc).
static_assert(sizeof(StepInputs) <= 256 && sizeof(StepState) <= 256);

uint64_t NowNs() {
  // tidy: allow(banned): the CPU's counterpart of a GPU's timer; nothing is decided by it
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

absl::Status Check(const StepInputs* inputs, const StepState* state) {
  if (inputs == nullptr || state == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(kOp, ": ", inputs == nullptr ? "inputs" : "state", " is null"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status BeginStep(const Exec& exec, const StepInputs* inputs, StepState* state) {
  HEARTH_RETURN_IF_ERROR(Check(inputs, state));
  HEARTH_RUN_ON_CUDA(exec, kOp, BeginStep(exec, inputs, state));
  HEARTH_RETURN_IF_ERROR(RequireCpu(exec, kOp));
  ResetState(*inputs, NowNs(), *state);
  return absl::OkStatus();
}

absl::Status JudgeStep(const Exec& exec, const StepInputs* inputs, StepState* state) {
  HEARTH_RETURN_IF_ERROR(Check(inputs, state));
  HEARTH_RUN_ON_CUDA(exec, kOp, JudgeStep(exec, inputs, state));
  HEARTH_RETURN_IF_ERROR(RequireCpu(exec, kOp));
  JudgeState(*inputs, *state);
  return absl::OkStatus();
}

absl::Status StampTime(const Exec& exec, uint64_t* where) {
  if (where == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(kOp, ": where is null"));
  }
  HEARTH_RUN_ON_CUDA(exec, kOp, StampTime(exec, where));
  HEARTH_RETURN_IF_ERROR(RequireCpu(exec, kOp));
  *where = NowNs();
  return absl::OkStatus();
}

}  // namespace hearth::kernels
