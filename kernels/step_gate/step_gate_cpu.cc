#include <chrono>

#include "kernels/step_gate/judge.h"
#include "kernels/step_gate/step_gate.h"

namespace hearth::kernels {
namespace {

uint64_t NowNs() {
  // tidy: allow(banned): the CPU's counterpart of a GPU's timer; nothing is decided by it
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

}  // namespace

namespace cpu {

absl::Status BeginStep(const Exec&, const StepInputs* inputs, StepState* state) {
  ResetState(*inputs, NowNs(), *state);
  return absl::OkStatus();
}

absl::Status JudgeStep(const Exec&, const StepInputs* inputs, StepState* state) {
  JudgeState(*inputs, *state);
  return absl::OkStatus();
}

absl::Status JudgeLoss(const Exec&, const StepInputs* inputs, StepState* state) {
  JudgeLossState(*inputs, *state);
  return absl::OkStatus();
}

absl::Status JudgePart(const Exec&, StepState* state) {
  JudgePartState(*state);
  return absl::OkStatus();
}

absl::Status StampTime(const Exec&, uint64_t* where) {
  *where = NowNs();
  return absl::OkStatus();
}

}  // namespace cpu

}  // namespace hearth::kernels
