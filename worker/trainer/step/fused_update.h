// Updates that are made while backward goes on (optimizer.fused): as soon as the gradients of a
// bucket are complete and summed over the ranks, its weights are updated, and its slot is free for
// another bucket. The step has one micro-batch of each rank.
//
//   alone       | 0 made in slot 0 | update 0 | 1 made in slot 0 | update 1 | ...
//
//   with peers  | 0 made in slot 0 | 1 made in slot 1 | update 0 | 2 made in slot 0 | update 1 ...
//   beside      |                  | sums of 0                   | sums of 1
//
// Backward reads no weight of a bucket once its gradients are complete. The loss is known before
// the first update, so a step with a bad one is refused as a whole. What its gradients are is known
// bucket by bucket: from the first one on that is not finite nothing more is updated, and the step
// can be neither refused nor done again (StepState::begun). Clipped is by the norm of the step
// before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "worker/trainer/model/pass.h"
#include "worker/trainer/step/engine.h"
#include "worker/trainer/step/exchange.h"

namespace hearth::trainer {

// Hands on to the exchange what it is told. Engine and exchange outlive it. Not thread-safe;
// allocates nothing after its construction. All of it can be recorded into a graph.
class FusedUpdate : public PassHook {
 public:
  // `exchange`: null in a world of one.
  FusedUpdate(Engine& engine, GradientExchange* exchange);

  // A pass follows, the step's only one.
  absl::Status Begin(const kernels::Exec& exec);
  absl::Status BeforeForward(const kernels::Exec& exec, int32_t moment) override;
  absl::Status BeforeBackward(const kernels::Exec& exec, int32_t moment) override;
  absl::Status AfterBackward(const kernels::Exec& exec, int32_t moment) override;
  // After the pass: updates what is left. kInternal: a bucket was not made.
  absl::Status Finish(const kernels::Exec& exec);

 private:
  // Updates with all buckets that were complete at `moment`.
  absl::Status UpdateUpTo(const kernels::Exec& exec, int32_t moment);
  absl::Status UpdateBucket(const kernels::Exec& exec, size_t b);

  Engine& engine_;
  GradientExchange* const exchange_;
  const spec::StepTimeline time_;
  const std::vector<std::vector<kernels::TensorView>> gaps_;  // by bucket
  // By bucket: its slot is free when all that were complete at this moment are updated with; -1: it
  // is from the start.
  std::vector<int32_t> free_after_;
  size_t updated_ = 0;  // buckets of this pass
};

}  // namespace hearth::trainer
