// What the ranks of a job exchange in a step: gradients in buckets beside the backward pass, the
// step's sums, and with a sharded optimizer the updated weights.
//
//   own stream      |  forward, backward . . . . . . . . . . . . . . | norm, clip, update
//   second stream   |            bucket 0 | bucket 1 | ... | sums  -> |
//
// With whole gradients that is the last micro-batch of a step. With divided ones (ShardLevel) it is
// each of them: a bucket's gradients are made in a slot, summed over the ranks, and each rank adds
// its part to what it keeps. Before backward begins a bucket whose slot had another one in this
// pass, the own stream waits until the second is done with that:
//
//   own stream      | 0 in slot 0 | 1 in slot 1 | waits for 0; 2 in slot 0 | waits for 1; 3 ...
//   second stream   |             | sums of 0   | sums of 1                | sums of 2
//
// On a GPU operations go to a second stream, forked from and joined to the ops' stream by events,
// so that all of it can be recorded into the step's graphs. On the CPU each blocks.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/spec/plan/gradient_buckets.h"
#include "kernels/cuda/device.h"
#include "worker/trainer/comm/collective.h"
#include "worker/trainer/model/pass.h"
#include "worker/trainer/step/engine.h"
#include "worker/trainer/step/gradient_sums.h"

namespace hearth::trainer {

// kStepSums: for measuring what waiting for one another costs by itself. Gradients and weights stay
// each rank's own, so the ranks drift apart.
enum class Exchanged : uint8_t { kGradients, kStepSums };

// What a pass exchanges.
struct PassExchange {
  // Every weight the forward pass reads comes from its owner first (only if sharded).
  bool gather = false;
  bool first = false;  // of the step: divided gradients begin their sums
  bool last = false;   // of the step
  // This rank sits out a round of divided gradients: it writes none, and adds zeros to the sums.
  bool idle = false;
};

// All ranks make the same calls in the same order. Engine and collective outlive it; destroy graphs
// that hold its launches first, and it before the collective. Not thread-safe.
class GradientExchange : public PassHook, public WholeGradients {
 public:
  static absl::StatusOr<std::unique_ptr<GradientExchange>> New(Engine& engine,
                                                               Collective& comm,
                                                               Exchanged what);
  ~GradientExchange() override;

  // For the pass that follows. In the step's last the gradients of its backward and all before it
  // are summed over the ranks; with sharding each rank gets the sums of what it owns. Divided
  // gradients are so in every pass.
  absl::Status BeginPass(const kernels::Exec& exec, const PassExchange& pass);
  absl::Status BeforeForward(const kernels::Exec& exec, int32_t moment) override;
  absl::Status BeforeBackward(const kernels::Exec& exec, int32_t moment) override;
  absl::Status AfterBackward(const kernels::Exec& exec, int32_t moment) override;
  // After the step's last pass: sums of loss and weight, what ranks were asked, the largest
  // activations of delayed scaling. Then, as after each pass that sums gradients, the ops' stream
  // waits for everything. Writes StepState's time stamps.
  absl::Status FinishPass(const kernels::Exec& exec);

  // With fused updates: begins to sum loss and weight over the ranks. FinishPass then skips them.
  absl::Status ReduceLoss(const kernels::Exec& exec);
  // With slots: later launches on `exec` wait for bucket b's sums, and with fused updates also for
  // the loss's.
  absl::Status AwaitSums(const kernels::Exec& exec, size_t b);

  bool sharded() const { return sharded_; }
  // Sharded: squares of the parts, summed over the ranks; non-finite counts and whether a rank has
  // begun to update, their maximum.
  absl::Status ReduceNorm(const kernels::Exec& exec);
  // Sharded, with whole weights: every weight from its owner.
  absl::Status GatherWeights(const kernels::Exec& exec);
  // The second stream; on the CPU the ops' own.
  const kernels::Exec& beside() const { return beside_; }
  // Sharded: the largest weight over the ranks, each of which knows its part.
  absl::Status ReduceWeightAmax(const kernels::Exec& exec);

  // Sharded: of the group's buckets with a gradient that the optimizer needs whole.
  absl::Status Gather(const kernels::Exec& exec, int group) override;
  absl::Status SumPieces(const kernels::Exec& exec, int group) override;

  // Bytes this rank sends in a step of `passes`: (W - 1) / W of the gradients in the format of
  // reduce_dtype's parts, and as much of what is handed round: their sums in that format's, or
  // sharded, the weights in their own unless they are divided too (DividedWeights counts those);
  // twice as much again, in their own format, for gradients that the optimizer needs whole. Divided
  // gradients go as often as there are passes.
  int64_t bytes_per_step(int64_t passes) const;

 private:
  GradientExchange(Engine& engine, Collective& comm);
  // The slot of bucket `b` is ready to be written.
  absl::Status OpenSlot(const kernels::Exec& exec, size_t b);
  absl::Status ReduceBucket(const kernels::Exec& exec, size_t b);
  // Beside: adds the rank's part of a bucket's sums over the ranks to what it keeps of it.
  absl::Status AddToSums(size_t b, const kernels::TensorView& part);
  // On the second stream, for each bucket of the group of which the optimizer needs some whole.
  template <typename Operation>
  absl::Status ForEachWhole(const kernels::Exec& exec, int group, const Operation& operation);
  // Beside: loss, weight, what ranks were asked, the largest activations of delayed scaling.
  absl::Status ReduceStepSums();
  // Beside: loss and weight alone.
  absl::Status SumLoss();
  // The second stream goes on from where the first is now, and the other way round.
  absl::Status Fork(const kernels::Exec& exec);
  absl::Status Join(const kernels::Exec& exec);
  // Part of a bucket's gradients that this rank owns.
  kernels::TensorView Owned(const kernels::TensorView& gradients) const;
  kernels::TensorView Gradients(const spec::GradientBucket& bucket) const;

  Engine& engine_;
  Collective& comm_;
  const bool sharded_;
  const bool by_bucket_;      // WholeGradients' groups are the buckets, each in a slot
  const bool hands_weights_;  // sharded, and every rank has whole weights
  const std::unique_ptr<GradientSums> sums_;
  std::vector<spec::GradientBucket> buckets_;  // none: kStepSums
  std::vector<bool> whole_;                    // by bucket: the optimizer needs some of it whole
  // By block of the model: the last one whose weights are read when its own are. A layer whose
  // weights come in units is read whole at its first block.
  std::vector<int32_t> read_with_;
  bool divided_ = false;                                // gradients; false: kStepSums
  std::vector<std::vector<kernels::TensorView>> gaps_;  // by bucket, if divided: SlotGaps
  kernels::Exec beside_;                                // the second stream; on the CPU exec itself
  std::unique_ptr<kernels::Event> forked_;
  std::unique_ptr<kernels::Event> joined_;
  std::vector<std::unique_ptr<kernels::Event>> gathered_;  // by bucket
  // By bucket made in a slot: its sums are there, and if divided, where they are kept.
  std::vector<std::unique_ptr<kernels::Event>> summed_;
  std::vector<const kernels::Event*> busy_;  // by slot: free from then on; null: in this pass free
  PassExchange pass_;
  bool reduce_ = false;
  size_t reduced_ = 0;  // buckets of this pass launched
  size_t waited_ = 0;   // buckets from here on have their weights
};

}  // namespace hearth::trainer
