// What the ranks of a job exchange in a step: gradients in buckets beside the backward pass, the
// step's sums, and with a sharded optimizer the updated weights.
//
//   own stream      |  forward, backward . . . . . . . . . . . . . . | norm, clip, update
//   second stream   |            bucket 0 | bucket 1 | ... | sums  -> |
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

namespace hearth::trainer {

// kStepSums: for measuring what waiting for one another costs by itself. Gradients and weights stay
// each rank's own, so the ranks drift apart.
enum class Exchanged : uint8_t { kGradients, kStepSums };

// All ranks make the same calls in the same order. Engine and collective outlive it; destroy graphs
// that hold its launches first, and it before the collective. Not thread-safe.
class GradientExchange : public PassHook, public WholeGradients {
 public:
  static absl::StatusOr<std::unique_ptr<GradientExchange>> New(Engine& engine,
                                                               Collective& comm,
                                                               Exchanged what);
  ~GradientExchange() override;

  // For the pass that follows. `gather`: every weight the forward pass reads comes from its owner
  // first (only if sharded). `reduce`: the gradients of this backward pass and all before it in the
  // step are summed over the ranks; with sharding each rank gets the sums of what it owns.
  absl::Status BeginPass(const kernels::Exec& exec, bool gather, bool reduce);
  absl::Status BeforeForward(const kernels::Exec& exec, int32_t moment) override;
  absl::Status AfterBackward(const kernels::Exec& exec, int32_t moment) override;
  // After a reducing pass: sums of loss and weight, what ranks were asked, the largest activations
  // of delayed scaling; then the ops' stream waits for everything. Writes StepState's time stamps.
  absl::Status FinishPass(const kernels::Exec& exec);

  bool sharded() const { return sharded_; }
  // This rank's parts of the gradients, one view a bucket; without sharding ParameterStore's.
  const std::vector<kernels::TensorView>& owned_gradients() const { return owned_gradients_; }
  // Sharded: squares and non-finite counts of the parts, summed over the ranks.
  absl::Status ReduceNorm(const kernels::Exec& exec);
  // Sharded: every weight from its owner.
  absl::Status GatherWeights(const kernels::Exec& exec);
  // Sharded: the largest weight over the ranks, each of which knows its part.
  absl::Status ReduceWeightAmax(const kernels::Exec& exec);

  // Sharded: of the buckets with a gradient that the optimizer needs whole.
  absl::Status Gather(const kernels::Exec& exec) override;
  absl::Status SumPieces(const kernels::Exec& exec) override;

  // Bytes this rank sends in a step by a ring: 2 (W - 1) / W of the gradients in reduce_dtype;
  // sharded: (W - 1) / W of the gradients, and of the weights in their own format; twice as much
  // again, in their own format, for gradients that the optimizer needs whole.
  int64_t bytes_per_step() const;

 private:
  GradientExchange(Engine& engine, Collective& comm);
  absl::Status ReduceBucket(const kernels::Exec& exec, const spec::GradientBucket& bucket);
  absl::Status ReduceInPlace(const kernels::TensorView& data);
  // On the second stream, for the gradients of each bucket of which the optimizer needs some whole.
  template <typename Operation>
  absl::Status ForEachWhole(const kernels::Exec& exec, const Operation& operation);
  // Beside: loss, weight, what ranks were asked, the largest activations of delayed scaling.
  absl::Status ReduceStepSums();
  // The second stream goes on from where the first is now, and the other way round.
  absl::Status Fork(const kernels::Exec& exec);
  absl::Status Join(const kernels::Exec& exec);
  // Part of a bucket's gradients that this rank owns.
  kernels::TensorView Owned(const kernels::TensorView& gradients) const;
  kernels::TensorView Gradients(const spec::GradientBucket& bucket) const;

  Engine& engine_;
  Collective& comm_;
  const bool sharded_;
  const bool round_to_bf16_;                   // CPU: bf16 gradients are values in wide storage
  std::vector<spec::GradientBucket> buckets_;  // none: kStepSums
  std::vector<bool> whole_;                    // by bucket: the optimizer needs some of it whole
  kernels::TensorView weights_;                // flat
  // In reduce_dtype, as large as the largest bucket that is not accumulated so; empty: all are
  // reduced in place.
  kernels::TensorView staging_;
  std::vector<kernels::TensorView> owned_gradients_;
  kernels::Exec beside_;  // the second stream; on the CPU exec itself
  std::unique_ptr<kernels::Event> forked_;
  std::unique_ptr<kernels::Event> joined_;
  std::vector<std::unique_ptr<kernels::Event>> gathered_;  // by bucket
  bool reduce_ = false;
  size_t reduced_ = 0;  // buckets of this pass launched
  size_t waited_ = 0;   // buckets from here on have their weights
};

}  // namespace hearth::trainer
