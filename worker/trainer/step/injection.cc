#include "worker/trainer/step/injection.h"

#include "common/base/status_macros.h"
#include "common/fault/fault.h"
#include "common/spec/plan/training_plan.h"
#include "kernels/cuda/device.h"

namespace hearth::trainer {
namespace {

// Copied to a GPU in its own time, so they stay.
constexpr uint16_t kNanBf16 = 0x7fc0;
constexpr uint32_t kNanF32 = 0x7fc00000;
constexpr uint64_t kNanF64 = 0x7ff8000000000000;

}  // namespace

bool SpoilsGradient(int64_t step, int attempt) {
  return !fault::CheckStep("trainer.nan_gradient", step, attempt).ok();
}

bool SpoilsTargets(int64_t step, int attempt) {
  return !fault::CheckStep("trainer.loss_spike", step, attempt).ok();
}

void SpoilTargets(int64_t count, int64_t vocab, const BatchBuffers& batch) {
  for (int64_t i = 0; i < count; ++i) {
    batch.targets[i] = static_cast<int32_t>((batch.targets[i] + vocab / 2 + i % 7) % vocab);
  }
}

absl::Status GradientSpoiler::BeforeForward(const kernels::Exec& exec, int32_t moment) {
  return inner_ == nullptr ? absl::OkStatus() : inner_->BeforeForward(exec, moment);
}

absl::Status GradientSpoiler::BeforeBackward(const kernels::Exec& exec, int32_t moment) {
  return inner_ == nullptr ? absl::OkStatus() : inner_->BeforeBackward(exec, moment);
}

absl::Status GradientSpoiler::AfterBackward(const kernels::Exec& exec, int32_t moment) {
  const spec::StepTimeline time = spec::TimelineOf(engine_.shape());
  if (moment == time.EmbeddingBackward()) {
    const kernels::TensorView gradient =
        engine_.parameters().FindGradient(spec::Slot::kTokenEmbedding, -1);
    const void* nan = &kNanF32;
    if (gradient.dtype == kernels::DType::kBF16) {
      nan = &kNanBf16;
    } else if (gradient.dtype == kernels::DType::kF64) {
      nan = &kNanF64;
    }
    HEARTH_RETURN_IF_ERROR(
        kernels::Copy(exec, gradient.data, nan, kernels::DTypeBytes(gradient.dtype, 1)));
  }
  return inner_ == nullptr ? absl::OkStatus() : inner_->AfterBackward(exec, moment);
}

}  // namespace hearth::trainer
