// One training step after another, on one rank.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/spec/batch.h"
#include "common/spec/schedule.h"
#include "common/time/clock.h"
#include "worker/trainer/comm/collective.h"
#include "worker/trainer/data/loader.h"
#include "worker/trainer/data/prefetcher.h"
#include "worker/trainer/guard/guard.h"
#include "worker/trainer/step/engine.h"

namespace hearth::trainer {

// What ranks agree to do after a step.
struct ControlRequests {
  bool save = false;
  bool pause = false;
  bool stop = false;
};

// Numbers of one step, the same on every rank but for the times.
struct StepResult {
  int64_t step = 0;  // 1-based number of the update
  StepFacts facts;
  Verdict verdict =
      Verdict::kGood;  // not good: the update was not applied, Trainer::step() did not advance
  double learning_rate = 0;
  int64_t tokens = 0;  // consumed by the job up to this step
  int64_t data_pass = 0;
  ControlRequests control;  // what any rank asked for, to be acted on now
  double seconds = 0;
  double data_wait_seconds = 0;
  double comm_seconds = 0;
};

// All ranks construct it alike and call the same functions in the same order. Not thread-safe.
class Trainer {
 public:
  struct Parts {
    Engine* engine = nullptr;
    Collective* comm = nullptr;
    const Loader* train = nullptr;
    const Loader* validation = nullptr;  // null: no evaluation
    Clock* clock = nullptr;
    spec::BatchPlan batch;
  };
  // All parts outlive the trainer. `step` updates have been made already.
  Trainer(const Parts& parts, int64_t step);

  // One update from the next global batch. `asked` is what this rank was told; the result holds
  // what all were told. Allocates nothing but in its first call. Errors: the loader's (bad data),
  // the collective's, the ops'.
  absl::StatusOr<StepResult> Step(const ControlRequests& asked);

  // Mean negative log likelihood over the first eval_batches global batches of the held-out data
  // (or all of it, if that is less): the same samples every time, shared out over the ranks.
  absl::StatusOr<double> Evaluate();

  int64_t step() const { return step_; }
  int64_t tokens() const { return step_ * batch_.global_tokens(); }
  Guard& guard() { return guard_; }

 private:
  absl::Status AccumulateGradients(int64_t step, LossSums& sums);
  // Sums gradients and losses over the ranks, and unites what they were asked and saw.
  absl::Status AllReduce(LossSums& sums, ControlRequests& control, Verdict& verdict);
  absl::Status ReduceGradients();
  absl::Status MeasureGradients(const LossSums& sums, StepFacts& facts);
  absl::Status EvaluateMicroBatch(int64_t first, int64_t count, LossSums& sums);

  Engine& engine_;
  Collective& comm_;
  const Loader& train_;
  const Loader* validation_;
  Clock& clock_;
  const spec::BatchPlan batch_;
  const v1::JobSpec& spec_;
  const spec::Schedule schedule_;
  const bool reduce_bf16_;
  Prefetcher prefetcher_;
  Guard guard_;
  int64_t step_;
  // Read by the optimizer through pointers, as a device would.
  float gradient_scale_ = 1.0F;
  int32_t skip_update_ = 0;
};

}  // namespace hearth::trainer
