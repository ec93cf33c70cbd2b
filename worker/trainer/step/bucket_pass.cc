#include "worker/trainer/step/bucket_pass.h"

#include <algorithm>

#include "absl/types/span.h"
#include "common/base/status_macros.h"
#include "common/spec/plan/training_plan.h"
#include "kernels/cuda/device.h"
#include "kernels/grad_norm/grad_norm.h"
#include "kernels/step_gate/step_gate.h"
#include "worker/trainer/step/slot_gaps.h"

namespace hearth::trainer {

BucketPass::BucketPass(Engine& engine, GradientExchange* exchange)
    : engine_(engine),
      exchange_(exchange),
      time_(spec::TimelineOf(engine.shape())),
      gaps_(SlotGaps(engine.parameters(), engine.gradient_buckets())) {
  for (const spec::GradientBucket& bucket : engine.gradient_buckets()) {
    int32_t& after = free_after_.emplace_back(-1);
    for (const spec::GradientBucket& before : engine.gradient_buckets()) {
      if (before.slot == bucket.slot && before.ready < bucket.begins) {
        after = std::max(after, before.ready);
      }
    }
  }
}

absl::Status BucketPass::Begin(const kernels::Exec& /*exec*/) {
  taken_ = 0;
  return absl::OkStatus();
}

absl::Status BucketPass::BeforeForward(const kernels::Exec& exec, int32_t moment) {
  return exchange_ == nullptr ? absl::OkStatus() : exchange_->BeforeForward(exec, moment);
}

absl::Status BucketPass::BeforeBackward(const kernels::Exec& exec, int32_t moment) {
  const std::vector<spec::GradientBucket>& buckets = engine_.gradient_buckets();
  for (size_t b = 0; b < buckets.size(); ++b) {
    if (buckets[b].begins != moment) {
      continue;
    }
    HEARTH_RETURN_IF_ERROR(TakeUpTo(exec, free_after_[b]));
    for (const kernels::TensorView& gap : gaps_[b]) {
      HEARTH_RETURN_IF_ERROR(kernels::Zero(exec, gap.data, gap.bytes()));
    }
  }
  return exchange_ == nullptr ? absl::OkStatus() : exchange_->BeforeBackward(exec, moment);
}

absl::Status BucketPass::AfterBackward(const kernels::Exec& exec, int32_t moment) {
  if (exchange_ == nullptr) {
    return TakeUpTo(exec, moment);
  }
  HEARTH_RETURN_IF_ERROR(exchange_->AfterBackward(exec, moment));
  // A bucket that is complete only now is summed beside the next part of backward.
  return TakeUpTo(exec, moment - 1);
}

absl::Status BucketPass::Finish(const kernels::Exec& exec) {
  HEARTH_RETURN_IF_ERROR(TakeUpTo(exec, time_.EmbeddingBackward()));
  return taken_ == engine_.gradient_buckets().size()
             ? absl::OkStatus()
             : absl::InternalError("a gradient bucket was not taken");
}

absl::Status BucketPass::TakeUpTo(const kernels::Exec& exec, int32_t moment) {
  // Buckets are in the order in which backward makes them ready.
  const std::vector<spec::GradientBucket>& buckets = engine_.gradient_buckets();
  for (; taken_ < buckets.size() && buckets[taken_].ready <= moment; ++taken_) {
    HEARTH_RETURN_IF_ERROR(exchange_ != nullptr ? exchange_->AwaitSums(exec, taken_)
                                                : absl::OkStatus());
    HEARTH_RETURN_IF_ERROR(Take(exec, taken_));
  }
  return absl::OkStatus();
}

absl::Status BucketPass::AddSquares(const kernels::Exec& exec, size_t b) {
  kernels::StepState* const state = engine_.step_state();
  kernels::SumSquaresArgs norm;
  norm.tensors = absl::MakeConstSpan(engine_.parameters().owned_gradients()).subspan(b, 1);
  norm.sum_squares = &state->part_squares;
  norm.nonfinite = &state->part_nonfinite;
  HEARTH_RETURN_IF_ERROR(kernels::SumSquares(exec, norm));
  return kernels::JudgePart(exec, state);
}

UpdateArgs BucketPass::Update() const {
  kernels::StepState* const state = engine_.step_state();
  UpdateArgs update;
  update.inputs = engine_.step_inputs();
  update.grad_scale = &state->grad_scale;
  update.skip = &state->skip;
  update.whole = engine_.parameters().sharded() ? exchange_ : nullptr;
  return update;
}

}  // namespace hearth::trainer
