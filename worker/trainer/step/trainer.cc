#include "worker/trainer/step/trainer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"
#include "common/fault/fault.h"
#include "kernels/grad_norm/grad_norm.h"
#include "kernels/round/round.h"

namespace hearth::trainer {

Trainer::Trainer(const Parts& parts, int64_t step)
    : engine_(*parts.engine),
      comm_(*parts.comm),
      train_(*parts.train),
      validation_(parts.validation),
      clock_(*parts.clock),
      batch_(parts.batch),
      spec_(parts.engine->options().spec),
      schedule_(spec::MakeSchedule(spec_)),
      reduce_bf16_(spec_.gradients().reduce_dtype() == "bf16"),
      prefetcher_(*parts.train, parts.batch, parts.comm->rank(), step + 1, *parts.clock),
      guard_(spec_.train().spike_sigma(), spec_.train().spike_window()),
      step_(step) {}

absl::StatusOr<StepResult> Trainer::Step(const ControlRequests& asked) {
  const absl::Duration start = clock_.Monotonic();
  StepResult result;
  result.step = step_ + 1;
  result.learning_rate = spec::LearningRate(schedule_, result.step);

  // Forward and backward of this rank's micro-batches.
  HEARTH_RETURN_IF_ERROR(fault::Check("trainer.step"));
  LossSums sums;
  HEARTH_RETURN_IF_ERROR(AccumulateGradients(result.step, sums));
  result.data_wait_seconds = prefetcher_.TakeWaitSeconds();

  // From here on all ranks hold the same numbers.
  const absl::Duration reduce_start = clock_.Monotonic();
  result.control = asked;
  Verdict seen = std::isfinite(sums.loss) ? Verdict::kGood : Verdict::kNonFinite;
  HEARTH_RETURN_IF_ERROR(fault::Check("trainer.before_allreduce"));
  HEARTH_RETURN_IF_ERROR(AllReduce(sums, result.control, seen));
  HEARTH_RETURN_IF_ERROR(fault::Check("trainer.after_allreduce"));
  result.comm_seconds = absl::ToDoubleSeconds(clock_.Monotonic() - reduce_start);

  // Guard and clip.
  HEARTH_RETURN_IF_ERROR(MeasureGradients(sums, result.facts));
  result.verdict = std::max(seen, guard_.Judge(result.facts));
  skip_update_ = result.verdict == Verdict::kGood ? 0 : 1;
  // Gradients are those of the sum over the weights this batch would have if every token counted.
  const double to_mean = static_cast<double>(batch_.global_tokens()) / sums.weight;
  gradient_scale_ = static_cast<float>(
      to_mean * kernels::ClipFactor(result.facts.grad_norm, spec_.optimizer().grad_clip()));

  UpdateArgs update;
  update.step = result.step;
  update.learning_rate = result.learning_rate;
  update.grad_scale = &gradient_scale_;
  update.skip = &skip_update_;
  HEARTH_RETURN_IF_ERROR(engine_.optimizer().Step(engine_.exec(), update));

  if (result.verdict == Verdict::kGood) {
    step_ = result.step;
    guard_.Record(result.facts.loss);
  }
  result.tokens = tokens();
  result.data_pass = train_.PassesBegun(step_ * batch_.global_sequences());
  result.seconds = absl::ToDoubleSeconds(clock_.Monotonic() - start);
  return result;
}

absl::Status Trainer::AccumulateGradients(int64_t step, LossSums& sums) {
  const kernels::TensorView& gradients = engine_.parameters().flat_gradients();
  std::memset(gradients.data, 0, gradients.bytes());
  const double d_loss = 1.0 / static_cast<double>(batch_.global_tokens());
  for (int64_t round = 0; round < batch_.rounds(); ++round) {
    if (batch_.MicroBatchAt(comm_.rank(), round) < 0) {
      continue;
    }
    int64_t of_step = 0;
    int64_t micro_batch = 0;
    HEARTH_RETURN_IF_ERROR(prefetcher_.Next(engine_.model().batch(), &of_step, &micro_batch));
    if (of_step != step) {
      return absl::InternalError("the data is not that of the step");
    }
    Pass pass;
    pass.seed = static_cast<uint64_t>(spec_.train().seed());
    pass.step = static_cast<uint32_t>(step);
    pass.micro_batch = static_cast<uint32_t>(micro_batch);
    pass.dropout = true;
    HEARTH_RETURN_IF_ERROR(engine_.model().ForwardBackward(engine_.exec(), pass, d_loss, sums));
  }
  return absl::OkStatus();
}

absl::Status Trainer::ReduceGradients() {
  const kernels::TensorView& gradients = engine_.parameters().flat_gradients();
  kernels::RoundToArgs round;
  round.x = round.y = gradients;
  round.to = kernels::DType::kBF16;
  if (reduce_bf16_) {
    HEARTH_RETURN_IF_ERROR(kernels::RoundTo(engine_.exec(), round));
  }
  HEARTH_RETURN_IF_ERROR(comm_.AllReduceSum(
      absl::MakeSpan(gradients.as<float>(), static_cast<size_t>(gradients.numel()))));
  return reduce_bf16_ ? kernels::RoundTo(engine_.exec(), round) : absl::OkStatus();
}

absl::Status Trainer::AllReduce(LossSums& sums, ControlRequests& control, Verdict& verdict) {
  if (comm_.world_size() == 1) {
    return absl::OkStatus();
  }
  HEARTH_RETURN_IF_ERROR(ReduceGradients());
  std::array<double, 2> totals = {sums.loss, sums.weight};
  HEARTH_RETURN_IF_ERROR(comm_.AllReduceSum(absl::MakeSpan(totals)));
  sums = {totals[0], totals[1]};
  // One entry per bit: MAX of each is OR.
  std::array<int32_t, 4> word = {control.save, control.pause, control.stop,
                                 static_cast<int32_t>(verdict)};
  HEARTH_RETURN_IF_ERROR(comm_.AllReduceMax(absl::MakeSpan(word)));
  control = {word[0] != 0, word[1] != 0, word[2] != 0};
  verdict = static_cast<Verdict>(word[3]);
  return absl::OkStatus();
}

absl::Status Trainer::MeasureGradients(const LossSums& sums, StepFacts& facts) {
  double sum_squares = 0;
  kernels::SumSquaresArgs norm;
  norm.tensors = absl::MakeConstSpan(&engine_.parameters().flat_gradients(), 1);
  norm.sum_squares = &sum_squares;
  norm.nonfinite = &facts.nonfinite_gradients;
  HEARTH_RETURN_IF_ERROR(kernels::SumSquares(engine_.exec(), norm));
  facts.loss = sums.loss / sums.weight;
  facts.grad_norm =
      std::sqrt(sum_squares) * static_cast<double>(batch_.global_tokens()) / sums.weight;
  return absl::OkStatus();
}

absl::StatusOr<double> Trainer::Evaluate() {
  if (validation_ == nullptr) {
    return absl::FailedPreconditionError("the job has no data.validation");
  }
  const int64_t windows =
      std::max<int64_t>(1, (validation_->tokens() - 1) / batch_.sequence_length);
  const int64_t samples =
      std::min(spec_.train().eval_batches() * batch_.global_sequences(), windows);
  LossSums sums;
  for (int64_t first = comm_.rank() * batch_.micro_batch; first < samples;
       first += comm_.world_size() * batch_.micro_batch) {
    HEARTH_RETURN_IF_ERROR(
        EvaluateMicroBatch(first, std::min(batch_.micro_batch, samples - first), sums));
  }
  std::array<double, 2> totals = {sums.loss, sums.weight};
  HEARTH_RETURN_IF_ERROR(comm_.AllReduceSum(absl::MakeSpan(totals)));
  return totals[0] / totals[1];
}

absl::Status Trainer::EvaluateMicroBatch(int64_t first, int64_t count, LossSums& sums) {
  const BatchBuffers batch = engine_.model().batch();
  HEARTH_RETURN_IF_ERROR(validation_->Fill(first, count, batch));
  // Rows beyond the held-out data repeat nothing: they do not count.
  const int64_t filled = count * batch_.sequence_length;
  for (int64_t i = filled; i < engine_.model().rows(); ++i) {
    batch.tokens[i] = batch.targets[i] = 0;
    batch.loss_weight[i] = 0.0F;
    batch.position[i] = static_cast<int32_t>(i % batch_.sequence_length);
    batch.segment[i] = 0;
  }
  return engine_.model().ForwardLoss(engine_.exec(), sums);
}

}  // namespace hearth::trainer
