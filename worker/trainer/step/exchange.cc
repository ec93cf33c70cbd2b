#include "worker/trainer/step/exchange.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "common/base/status_macros.h"
#include "common/spec/plan/training_plan.h"
#include "kernels/scale/scale.h"
#include "kernels/step_gate/step_gate.h"
#include "worker/trainer/step/slot_gaps.h"

namespace hearth::trainer {

using kernels::DType;
using kernels::TensorView;

namespace {

std::vector<int32_t> ReadWith(const Engine& engine) {
  const int32_t blocks = spec::TimelineOf(engine.shape()).blocks;
  const std::vector<int>& units = engine.parameters().units().of_block;
  std::vector<int32_t> last(static_cast<size_t>(blocks));
  for (int32_t block = blocks; block-- > 0;) {
    const auto b = static_cast<size_t>(block);
    const bool whole = !units.empty() && block + 1 < blocks && units[b] == units[b + 1];
    last[b] = whole ? last[b + 1] : block;
  }
  return last;
}

}  // namespace

GradientExchange::GradientExchange(Engine& engine, Collective& comm)
    : engine_(engine),
      comm_(comm),
      sharded_(engine.shards() > 1),
      by_bucket_(engine.parameters().gradients_in_slots()),
      hands_weights_(sharded_ && !engine.parameters().weights_divided()),
      sums_(NewGradientSums(engine, comm)),
      read_with_(ReadWith(engine)) {}

GradientExchange::~GradientExchange() {
  if (beside_.stream != nullptr && engine_.on_gpu()) {
    static_cast<void>(kernels::Synchronize(beside_));
    kernels::DeleteStream(beside_.stream);
  }
}

absl::StatusOr<std::unique_ptr<GradientExchange>> GradientExchange::New(Engine& engine,
                                                                        Collective& comm,
                                                                        Exchanged what) {
  std::unique_ptr<GradientExchange> made(new GradientExchange(engine, comm));
  GradientExchange& e = *made;
  e.buckets_ = engine.gradient_buckets();
  // A bucket with a tensor that the optimizer needs whole (Muon's matrices) is gathered and summed
  // once more.
  e.whole_.assign(e.buckets_.size(), false);
  const std::vector<spec::Parameter>& table = engine.parameters().table();
  const std::vector<int64_t> offsets = spec::TensorOffsets(table, engine.shards());
  for (size_t b = 0; e.sharded_ && b < e.buckets_.size(); ++b) {
    for (size_t i = 0; i < table.size(); ++i) {
      const bool inside = e.buckets_[b].begin <= offsets[i] && offsets[i] < e.buckets_[b].end;
      e.whole_[b] = e.whole_[b] || (inside && engine.optimizer().NeedsWhole(table[i]));
    }
  }
  if (what == Exchanged::kStepSums) {
    e.buckets_.clear();
  }
  e.divided_ = engine.parameters().gradients_divided() && !e.buckets_.empty();
  if (e.divided_) {
    e.busy_.resize(spec::SlotsOf(e.buckets_).size());
    e.gaps_ = SlotGaps(engine.parameters(), e.buckets_);
  }
  e.beside_ = engine.exec();
  // Both streams run at once, so the second must not use the scratch memory of the first.
  e.beside_.workspace = {};
  if (engine.on_gpu()) {
    e.beside_.stream = nullptr;  // the engine's is not this object's to delete
    HEARTH_ASSIGN_OR_RETURN(e.beside_.stream, kernels::NewStream(*engine.options().cuda,
                                                                 kernels::StreamPriority::kHigh));
  }
  HEARTH_ASSIGN_OR_RETURN(e.forked_,
                          kernels::Event::New(engine.exec(), kernels::Event::Use::kOrder));
  HEARTH_ASSIGN_OR_RETURN(e.joined_,
                          kernels::Event::New(engine.exec(), kernels::Event::Use::kOrder));
  e.gathered_.resize(e.buckets_.size());
  e.summed_.resize(engine.parameters().gradients_in_slots() ? e.buckets_.size() : 0);
  for (auto* const events : {&e.gathered_, &e.summed_}) {
    for (std::unique_ptr<kernels::Event>& event : *events) {
      HEARTH_ASSIGN_OR_RETURN(event,
                              kernels::Event::New(engine.exec(), kernels::Event::Use::kOrder));
    }
  }
  return made;
}

TensorView GradientExchange::Gradients(const spec::GradientBucket& bucket) const {
  return engine_.parameters().GradientRange(bucket.begin, bucket.elements());
}

TensorView GradientExchange::Owned(const TensorView& gradients) const {
  if (!sharded_) {
    return gradients;
  }
  // Buckets are padded so that this divides them: RequirePieces refuses others.
  const int64_t part = gradients.numel() / comm_.world_size();
  return Slice(gradients, comm_.rank() * part, part);
}

absl::Status GradientExchange::Fork(const kernels::Exec& exec) {
  // What the second stream does from here on comes after all that the first has been given so far.
  HEARTH_RETURN_IF_ERROR(forked_->Record(exec));
  return kernels::StreamWait(beside_, *forked_);
}

absl::Status GradientExchange::Join(const kernels::Exec& exec) {
  HEARTH_RETURN_IF_ERROR(joined_->Record(beside_));
  return kernels::StreamWait(exec, *joined_);
}

absl::Status GradientExchange::ReduceBucket(const kernels::Exec& exec, size_t b) {
  HEARTH_RETURN_IF_ERROR(Fork(exec));
  const TensorView data = Gradients(buckets_[b]);
  HEARTH_RETURN_IF_ERROR(sharded_ ? sums_->ReduceScatter(beside_, data)
                                  : sums_->AllReduce(beside_, data));
  HEARTH_RETURN_IF_ERROR(divided_ ? AddToSums(b, Owned(data)) : absl::OkStatus());
  return summed_.empty() ? absl::OkStatus() : summed_[b]->Record(beside_);
}

absl::Status GradientExchange::AddToSums(size_t b, const TensorView& part) {
  const TensorView& sums = engine_.parameters().owned_gradients()[b];
  if (pass_.first) {
    return kernels::Copy(beside_, sums.data, part.data, part.bytes());
  }
  kernels::ScaleArgs add;
  add.x = part;
  add.y = sums;
  add.beta = 1.0;
  add.round = engine_.numerics().Gradient(buckets_[b].format);
  return kernels::Scale(beside_, add);
}

absl::Status GradientExchange::AwaitSums(const kernels::Exec& exec, size_t b) {
  if (!summed_.empty()) {
    return kernels::StreamWait(exec, *summed_[b]);
  }
  // Nobody sums gradients while waits are measured (kStepSums). A stream that is recorded waits for
  // another one only if that follows it.
  HEARTH_RETURN_IF_ERROR(Fork(exec));
  return Join(exec);
}

absl::Status GradientExchange::OpenSlot(const kernels::Exec& exec, size_t b) {
  const auto slot = static_cast<size_t>(buckets_[b].slot);
  if (busy_[slot] != nullptr) {
    HEARTH_RETURN_IF_ERROR(kernels::StreamWait(exec, *busy_[slot]));
  }
  busy_[slot] = summed_[b].get();
  if (pass_.idle) {
    const TensorView all = Gradients(buckets_[b]);
    return kernels::Zero(exec, all.data, all.bytes());
  }
  for (const TensorView& gap : gaps_[b]) {
    HEARTH_RETURN_IF_ERROR(kernels::Zero(exec, gap.data, gap.bytes()));
  }
  return absl::OkStatus();
}

absl::Status GradientExchange::BeginPass(const kernels::Exec& exec, const PassExchange& pass) {
  pass_ = pass;
  reduce_ = pass.last || divided_;
  reduced_ = 0;
  // FinishPass has waited for all that the pass before did with the slots.
  std::fill(busy_.begin(), busy_.end(), nullptr);
  waited_ = pass.gather && hands_weights_ ? buckets_.size() : 0;
  if (waited_ == 0) {
    return absl::OkStatus();
  }
  // The embeddings, which the forward pass reads first, are in the last bucket.
  HEARTH_RETURN_IF_ERROR(Fork(exec));
  for (size_t b = buckets_.size(); b-- > 0;) {
    HEARTH_RETURN_IF_ERROR(
        comm_.AllGather(beside_, engine_.parameters().BucketWeights(buckets_[b])));
    HEARTH_RETURN_IF_ERROR(gathered_[b]->Record(beside_));
  }
  return absl::OkStatus();
}

absl::Status GradientExchange::BeforeForward(const kernels::Exec& exec, int32_t moment) {
  // In forward a moment is the number of its block.
  const spec::StepTimeline time = spec::TimelineOf(engine_.shape());
  const int32_t ready = time.Backward(read_with_[static_cast<size_t>(moment)]);
  const auto bucket =
      std::find_if(buckets_.begin(), buckets_.end(),
                   [ready](const spec::GradientBucket& b) { return b.ready >= ready; });
  const auto index = static_cast<size_t>(bucket - buckets_.begin());
  if (index >= waited_) {
    return absl::OkStatus();
  }
  // Gathers run from the last bucket to the first: this one's end covers those behind it.
  waited_ = index;
  return kernels::StreamWait(exec, *gathered_[index]);
}

absl::Status GradientExchange::BeforeBackward(const kernels::Exec& exec, int32_t moment) {
  for (size_t b = 0; divided_ && b < buckets_.size(); ++b) {
    if (buckets_[b].begins == moment) {
      HEARTH_RETURN_IF_ERROR(OpenSlot(exec, b));
    }
  }
  return absl::OkStatus();
}

absl::Status GradientExchange::AfterBackward(const kernels::Exec& exec, int32_t moment) {
  if (!reduce_) {
    return absl::OkStatus();
  }
  // Buckets are in the order in which backward makes them ready, the same on every rank:
  // collectives must be called in one order.
  for (; reduced_ < buckets_.size() && buckets_[reduced_].ready <= moment; ++reduced_) {
    HEARTH_RETURN_IF_ERROR(ReduceBucket(exec, reduced_));
  }
  return absl::OkStatus();
}

absl::Status GradientExchange::SumLoss() {
  // The loss's two sums and those of each source.
  const int64_t sums = 2 + 2 * int64_t{engine_.sources()};
  return comm_.AllReduceSum(beside_, TensorView(static_cast<void*>(&engine_.step_state()->loss_sum),
                                                DType::kF64, {sums}));
}

absl::Status GradientExchange::ReduceLoss(const kernels::Exec& exec) {
  HEARTH_RETURN_IF_ERROR(Fork(exec));
  return SumLoss();
}

absl::Status GradientExchange::ReduceStepSums() {
  kernels::StepState& state = *engine_.step_state();
  HEARTH_RETURN_IF_ERROR(comm_.GroupBegin());
  // With fused updates the loss was summed before the first of them (ReduceLoss).
  HEARTH_RETURN_IF_ERROR(engine_.fused() ? absl::OkStatus() : SumLoss());
  // What any rank was asked: the maximum makes all act alike after this step.
  HEARTH_RETURN_IF_ERROR(
      comm_.AllReduceMax(beside_, TensorView(static_cast<void*>(state.control), DType::kI32, {4})));
  // All ranks must go on with the same scales, or their weights would drift apart.
  if (engine_.quant().ScalesAreOfEarlierSteps()) {
    HEARTH_RETURN_IF_ERROR(comm_.AllReduceMax(beside_, engine_.quant().ActivationAmax()));
  }
  return comm_.GroupEnd();
}

absl::Status GradientExchange::FinishPass(const kernels::Exec& exec) {
  if (!reduce_) {
    return absl::OkStatus();
  }
  if (reduced_ != buckets_.size()) {
    return absl::InternalError("a gradient bucket was not reduced");
  }
  if (!pass_.last) {
    return Join(exec);
  }
  kernels::StepState& state = *engine_.step_state();
  // On the ops' stream before it waits for the other one: the time between the stamps is what the
  // exchange costs beyond what ran beside backward.
  HEARTH_RETURN_IF_ERROR(kernels::StampTime(exec, &state.backward_ns));
  HEARTH_RETURN_IF_ERROR(Fork(exec));
  HEARTH_RETURN_IF_ERROR(ReduceStepSums());
  HEARTH_RETURN_IF_ERROR(Join(exec));
  return kernels::StampTime(exec, &state.reduced_ns);
}

absl::Status GradientExchange::ReduceNorm(const kernels::Exec& exec) {
  if (!sharded_) {
    return absl::OkStatus();
  }
  kernels::StepState& state = *engine_.step_state();
  HEARTH_RETURN_IF_ERROR(Fork(exec));
  HEARTH_RETURN_IF_ERROR(comm_.GroupBegin());
  HEARTH_RETURN_IF_ERROR(comm_.AllReduceSum(
      beside_, TensorView(static_cast<void*>(&state.sum_squares), DType::kF64, {1})));
  // Its two words: what matters is whether any rank's count is above 0. Behind them `begun`.
  static_assert(offsetof(kernels::StepState, begun) ==
                offsetof(kernels::StepState, nonfinite) + 2 * sizeof(int32_t));
  HEARTH_RETURN_IF_ERROR(comm_.AllReduceMax(
      beside_, TensorView(static_cast<void*>(&state.nonfinite), DType::kI32, {3})));
  HEARTH_RETURN_IF_ERROR(comm_.GroupEnd());
  return Join(exec);
}

absl::Status GradientExchange::GatherWeights(const kernels::Exec& exec) {
  if (!hands_weights_) {
    return absl::OkStatus();
  }
  HEARTH_RETURN_IF_ERROR(Fork(exec));
  for (const spec::GradientBucket& bucket : buckets_) {
    HEARTH_RETURN_IF_ERROR(comm_.AllGather(beside_, engine_.parameters().BucketWeights(bucket)));
  }
  return Join(exec);
}

absl::Status GradientExchange::ReduceWeightAmax(const kernels::Exec& exec) {
  if (!sharded_ || engine_.quant().empty()) {
    return absl::OkStatus();
  }
  HEARTH_RETURN_IF_ERROR(Fork(exec));
  HEARTH_RETURN_IF_ERROR(comm_.AllReduceMax(beside_, engine_.quant().WeightAmax()));
  return Join(exec);
}

template <typename Operation>
absl::Status GradientExchange::ForEachWhole(const kernels::Exec& exec,
                                            int group,
                                            const Operation& operation) {
  HEARTH_RETURN_IF_ERROR(Fork(exec));
  for (size_t b = 0; b < buckets_.size(); ++b) {
    if (whole_[b] && (!by_bucket_ || static_cast<size_t>(group) == b)) {
      HEARTH_RETURN_IF_ERROR(operation(b, Gradients(buckets_[b])));
    }
  }
  return Join(exec);
}

absl::Status GradientExchange::Gather(const kernels::Exec& exec, int group) {
  return ForEachWhole(exec, group, [this](size_t b, const TensorView& gradients) -> absl::Status {
    if (divided_) {
      const TensorView& sums = engine_.parameters().owned_gradients()[b];
      HEARTH_RETURN_IF_ERROR(
          kernels::Copy(beside_, Owned(gradients).data, sums.data, sums.bytes()));
    }
    return comm_.AllGather(beside_, gradients);
  });
}

absl::Status GradientExchange::SumPieces(const kernels::Exec& exec, int group) {
  return ForEachWhole(exec, group, [this](size_t b, const TensorView& gradients) -> absl::Status {
    HEARTH_RETURN_IF_ERROR(comm_.ReduceScatterSum(beside_, gradients));
    if (!divided_) {
      return absl::OkStatus();
    }
    const TensorView& sums = engine_.parameters().owned_gradients()[b];
    return kernels::Copy(beside_, sums.data, Owned(gradients).data, sums.bytes());
  });
}

int64_t GradientExchange::bytes_per_step(int64_t passes) const {
  int64_t parts = 0;
  int64_t sums = 0;
  int64_t whole = 0;
  int64_t weights = 0;
  for (size_t b = 0; b < buckets_.size(); ++b) {
    const TensorView gradients = Gradients(buckets_[b]);
    const int64_t elements = gradients.numel();
    parts += sums_->PartBytes(elements);
    sums += sums_->SumBytes(elements);
    whole += whole_[b] ? 2 * kernels::DTypeBytes(gradients.dtype, elements) : 0;
    weights += hands_weights_
                   ? static_cast<int64_t>(engine_.parameters().BucketWeights(buckets_[b]).bytes())
                   : 0;
  }
  // A ring, as an all-to-all, sends (n - 1) / n of what is summed, and as much to hand the result
  // round: a whole sum is a scatter and a gather.
  const int64_t gathered = buckets_.empty() ? 0 : sharded_ ? weights : sums;
  const int64_t times = divided_ ? passes : 1;
  return (times * parts + gathered + whole) / comm_.world_size() * (comm_.world_size() - 1);
}

}  // namespace hearth::trainer
