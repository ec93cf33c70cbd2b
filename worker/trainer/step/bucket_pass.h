// A pass that keeps no plain gradients. Each bucket is made in a slot. As soon as it is complete
// and summed over the ranks it is taken (applied, or coded), which frees the slot for another
// bucket. The step has one micro-batch of each rank.
//
//   alone       | 0 made in slot 0 | 0 taken | 1 made in slot 0 | 1 taken | ...
//
//   with peers  | 0 made in slot 0 | 1 made in slot 1 | 0 taken | 2 made in slot 0 | 1 taken ...
//   beside      |                  | sums of 0                  | sums of 1
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "worker/trainer/model/pass.h"
#include "worker/trainer/step/engine.h"
#include "worker/trainer/step/exchange.h"

namespace hearth::trainer {

// Passes every call on to the exchange. Engine and exchange outlive it. Not thread-safe;
// allocates nothing after its construction. All of it can be recorded into a graph.
class BucketPass : public PassHook {
 public:
  // `exchange`: null in a world of one.
  BucketPass(Engine& engine, GradientExchange* exchange);

  // Called before the step's only pass.
  virtual absl::Status Begin(const kernels::Exec& exec);
  absl::Status BeforeForward(const kernels::Exec& exec, int32_t moment) override;
  absl::Status BeforeBackward(const kernels::Exec& exec, int32_t moment) override;
  absl::Status AfterBackward(const kernels::Exec& exec, int32_t moment) override;
  // After the pass: takes what is left. kInternal: a bucket was not made.
  absl::Status Finish(const kernels::Exec& exec);

 protected:
  // Bucket `b` is complete in its slot; of a sharded optimizer this rank's part holds the sums.
  virtual absl::Status Take(const kernels::Exec& exec, size_t b) = 0;
  // Adds the bucket's sum of squares and non-finite count to the step's (JudgePart).
  absl::Status AddSquares(const kernels::Exec& exec, size_t b);
  Engine& engine() const { return engine_; }
  GradientExchange* exchange() const { return exchange_; }
  const spec::StepTimeline& time() const { return time_; }
  // For Optimizer::Step.
  UpdateArgs Update() const;

 private:
  // Takes all buckets that were complete at `moment`.
  absl::Status TakeUpTo(const kernels::Exec& exec, int32_t moment);

  Engine& engine_;
  GradientExchange* const exchange_;
  const spec::StepTimeline time_;
  const std::vector<std::vector<kernels::TensorView>> gaps_;  // by bucket
  // By bucket: the slot is free once all buckets that were complete at this moment are taken; -1:
  // it is free from the start.
  std::vector<int32_t> free_after_;
  size_t taken_ = 0;  // buckets of this pass
};

}  // namespace hearth::trainer
