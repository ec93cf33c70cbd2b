#include "kernels/step_gate/step_gate.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace hearth::kernels {
namespace {

constexpr char kOp[] = "step_gate";

// The buffers that the host has for them (common/spec/plan/training_plan.cc).
static_assert(sizeof(StepInputs) <= 256 && sizeof(StepState) <= 512);

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
  return RunOnDevice<cpu::BeginStep, cuda::BeginStep>(exec, kOp, inputs, state);
}

absl::Status JudgeStep(const Exec& exec, const StepInputs* inputs, StepState* state) {
  HEARTH_RETURN_IF_ERROR(Check(inputs, state));
  return RunOnDevice<cpu::JudgeStep, cuda::JudgeStep>(exec, kOp, inputs, state);
}

absl::Status JudgeLoss(const Exec& exec, const StepInputs* inputs, StepState* state) {
  HEARTH_RETURN_IF_ERROR(Check(inputs, state));
  return RunOnDevice<cpu::JudgeLoss, cuda::JudgeLoss>(exec, kOp, inputs, state);
}

absl::Status JudgePart(const Exec& exec, StepState* state) {
  if (state == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(kOp, ": state is null"));
  }
  return RunOnDevice<cpu::JudgePart, cuda::JudgePart>(exec, kOp, state);
}

absl::Status StampTime(const Exec& exec, uint64_t* where) {
  if (where == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(kOp, ": where is null"));
  }
  return RunOnDevice<cpu::StampTime, cuda::StampTime>(exec, kOp, where);
}

}  // namespace hearth::kernels
