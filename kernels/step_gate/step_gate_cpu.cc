#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/cuda/dispatch.h"
#include "kernels/step_gate/judge.h"
#include "kernels/step_gate/step_gate.h"

namespace hearth::kernels {
namespace {

constexpr char kOp[] = "step_gate";

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
  ResetState(*inputs, *state);
  return absl::OkStatus();
}

absl::Status JudgeStep(const Exec& exec, const StepInputs* inputs, StepState* state) {
  HEARTH_RETURN_IF_ERROR(Check(inputs, state));
  HEARTH_RUN_ON_CUDA(exec, kOp, JudgeStep(exec, inputs, state));
  HEARTH_RETURN_IF_ERROR(RequireCpu(exec, kOp));
  JudgeState(*inputs, *state);
  return absl::OkStatus();
}

}  // namespace hearth::kernels
