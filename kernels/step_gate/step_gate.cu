#include "kernels/cuda/util.cuh"
#include "kernels/step_gate/judge.h"
#include "kernels/step_gate/step_gate.h"

namespace hearth::kernels::cuda {
namespace {

constexpr char kOp[] = "step_gate";

__device__ uint64_t NowNs() {
  uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

// One thread each: a handful of doubles.
__global__ void BeginKernel(const StepInputs* inputs, StepState* state) {
  ResetState(*inputs, NowNs(), *state);
}

__global__ void JudgeKernel(const StepInputs* inputs, StepState* state) {
  JudgeState(*inputs, *state);
}

__global__ void JudgeLossKernel(const StepInputs* inputs, StepState* state) {
  JudgeLossState(*inputs, *state);
}

__global__ void JudgePartKernel(StepState* state) {
  JudgePartState(*state);
}

__global__ void StampKernel(uint64_t* where) {
  *where = NowNs();
}

}  // namespace

absl::Status BeginStep(const Exec& exec, const StepInputs* inputs, StepState* state) {
  BeginKernel<<<1, 1, 0, StreamOf(exec)>>>(inputs, state);
  return HEARTH_CUDA_LAUNCHED(kOp);
}

absl::Status JudgeStep(const Exec& exec, const StepInputs* inputs, StepState* state) {
  JudgeKernel<<<1, 1, 0, StreamOf(exec)>>>(inputs, state);
  return HEARTH_CUDA_LAUNCHED(kOp);
}

absl::Status JudgeLoss(const Exec& exec, const StepInputs* inputs, StepState* state) {
  JudgeLossKernel<<<1, 1, 0, StreamOf(exec)>>>(inputs, state);
  return HEARTH_CUDA_LAUNCHED(kOp);
}

absl::Status JudgePart(const Exec& exec, StepState* state) {
  JudgePartKernel<<<1, 1, 0, StreamOf(exec)>>>(state);
  return HEARTH_CUDA_LAUNCHED(kOp);
}

absl::Status StampTime(const Exec& exec, uint64_t* where) {
  StampKernel<<<1, 1, 0, StreamOf(exec)>>>(where);
  return HEARTH_CUDA_LAUNCHED(kOp);
}

}  // namespace hearth::kernels::cuda
