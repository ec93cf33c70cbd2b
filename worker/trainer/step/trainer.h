// One training step after another, on one rank.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/spec/plan/batch.h"
#include "common/spec/schedule/schedule.h"
#include "common/time/clock.h"
#include "hearth/v1/job.pb.h"
#include "worker/trainer/comm/collective.h"
#include "worker/trainer/data/loader.h"
#include "worker/trainer/data/prefetcher.h"
#include "worker/trainer/guard/guard.h"
#include "worker/trainer/guard/ladder.h"
#include "worker/trainer/pulse/pulse.h"
#include "worker/trainer/step/engine.h"
#include "worker/trainer/step/program.h"
#include "worker/trainer/step/scores.h"
#include "worker/trainer/step/step_watch.h"

namespace hearth::trainer {

// What ranks agree to do after a step.
struct ControlRequests {
  bool save = false;
  bool pause = false;
  bool stop = false;
};

// Numbers of one step, the same on every rank except for the times.
struct StepResult {
  int64_t step = 0;  // 1-based number of the update
  StepFacts facts;
  Verdict verdict =
      Verdict::kGood;  // not good: the update was not applied, Trainer::step() did not advance
  // What was decided with it. After a step that is not good, the next Launch repeats the step in
  // another recipe, unless the last decision is to stop.
  std::vector<Decision> decisions;
  bool stops = false;
  int rung = 0;             // of the ladder: the recipe it ran in
  ControlRequests control;  // what any rank asked for
  spec::StepFormat format;  // what linear layers ran in
  bool counted = false;     // QuantState::Counted is about this step
  // Time of this rank's own work on a micro-batch of the step, without waits for its peers; 0 = not
  // known, or a step of a kind that was new.
  double compute_seconds = 0;
  // What the trainer measured, in the form in which it leaves the rank: learning_rate, tokens,
  // data_pass, sources, weight_quantizations, step_seconds (since the step before, or since its own
  // start where something lay between), data_wait_seconds, comm_seconds (after the last backward
  // pass, until the ranks' sums are there), comm_bytes. The sender adds the rest.
  v1::StepReport report;
};

// All ranks construct it alike and call the same functions in the same order. Not thread-safe.
//
//   Launch k, Launch k + 1, Collect k, Launch k + 2, Collect k + 1, ...     (lag 1, a GPU)
//   Launch k, Collect k, ...                                                (lag 0, the CPU)
//
// A step launched behind one that the guard refuses changes nothing.
class Trainer {
 public:
  struct Parts {
    Engine* engine = nullptr;
    Collective* comm = nullptr;
    const Loader* train = nullptr;
    const Loader* validation = nullptr;  // null: no evaluation
    Clock* clock = nullptr;
    spec::BatchPlan batch;
    Pulse* pulse = nullptr;  // null: nobody watches
    // Folder into which the first step's accumulated gradients are written as a Hugging Face model
    // whose weights they are; empty = none.
    std::string dump_gradients;
  };
  // All parts outlive the trainer. `step` updates have been made already.
  Trainer(const Parts& parts, int64_t step);
  ~Trainer();

  // Chooses plans and records graphs (StepProgram::Prepare), then makes the recipe's scales new.
  // Call it once the weights are filled; restore recipe state after it.
  absl::Status Prepare();
  // Quantises the weights as they are. `restored`: the scales are those of a checkpoint; else they
  // are measured here, and with delayed scaling the first step runs in BF16.
  absl::Status StartPrecision(bool restored);

  // Steps that may be launched before the result of the first of them is collected.
  int lag() const { return engine_.on_gpu() ? 1 : 0; }
  int in_flight() const { return in_flight_; }
  int64_t launched() const { return step_ + in_flight(); }

  // Launches the next step. `asked` is what this rank was told; the result holds what all were
  // told. Errors: the loader's (bad data), the collective's, the ops'.
  absl::Status Launch(const ControlRequests& asked);
  // Waits for the oldest step in flight. Allocates nothing but in its first call, and for what the
  // report says of several sources. Errors: the device's; the collective's; kDeadlineExceeded on
  // GPUs whose peers do not take part (StepWatch).
  absl::StatusOr<StepResult> Collect();
  // Both, with nothing else in flight.
  absl::StatusOr<StepResult> Step(const ControlRequests& asked);

  // Mean negative log likelihood over the first eval_batches global batches of the held-out data
  // (or all of it, if that is less): the same samples every time, shared out over the ranks.
  // Nothing may be in flight.
  absl::StatusOr<double> Evaluate();
  // A score for each request, the same on every rank: the ranks share the micro-batches. Weights
  // are in the precision of Evaluate. kFailedPrecondition: the job has no train.evaluations, so its
  // plan keeps no scores; kOutOfRange: the ranks ask different things. Nothing may be in flight.
  absl::StatusOr<std::vector<Score>> ScoreAll(absl::Span<const ScoreRequest> requests);
  // Call it between steps, before anything but a pass reads the weights (Engine::whole_weight):
  // with a sharded optimizer each rank has only its parts of the newest ones. All ranks call it
  // together; nothing may be in flight.
  absl::Status TakeWholeWeights();
  // Rank 0 does `work`, which may read the weights of the newest step, whole by then; the others
  // wait for it. All ranks call it together; nothing may be in flight. Its time is no step's.
  // Errors: those of TakeWholeWeights and the collective's.
  absl::Status OnRankZero(const std::function<void()>& work);
  // The next update's work on the device waits for the moment that `event`, which outlives the next
  // Launch, recorded last: until then somebody copies what updates change.
  void HoldUpdate(const kernels::Event& event) { hold_ = &event; }

  // The gradient's norm in the last step that was applied, 0 = none was: fused updates clip the
  // next step by it, so checkpoints have it.
  double last_norm() const { return last_norm_; }
  // The norm of a checkpoint; before the first Launch.
  void RestoreNorm(double norm) { restored_norm_ = last_norm_ = norm; }

  int64_t step() const { return step_; }
  int64_t tokens() const { return step_ * batch_.global_tokens(); }
  Guard& guard() { return guard_; }
  Ladder& ladder() { return ladder_; }
  const StepProgram& program() const { return program_; }
  // What update `step` runs in.
  spec::StepFormat Format(int64_t step) const;

 private:
  // A step between Launch and Collect.
  struct Flight {
    StepResult result;
    StepLimits limits;
    ControlRequests asked;  // of this rank
    absl::Duration start;
    bool follows = false;  // launched behind another: its time is counted from that one's end
    bool slow = false;     // the first of its kind, or waits for a snapshot: may take any time
  };

  struct StepKind {
    spec::StepFormat format;
    bool counted = false;
    bool operator==(const StepKind&) const = default;
  };
  // Whether no step of this kind was launched before.
  bool IsFirst(const StepKind& kind);
  // Tells the pulse what is under way: the step that is launched, and those in flight.
  void TellStep(bool slow);
  // Whether waiting for the GPU may be waiting for other ranks; StepWatch has the limits.
  bool WaitsForPeersOnGpu() const { return engine_.on_gpu() && comm_.world_size() > 1; }

  kernels::StepInputs MakeInputs(int64_t step,
                                 const StepLimits& limits,
                                 const ControlRequests& asked) const;
  // The rung of the ladder, that is the recipe, in which the step runs.
  int Rung(int64_t step) const;
  // Whether it runs in BF16 whatever the ladder says: by plan, or because there are no scales yet.
  bool Plain(int64_t step) const;
  // Whether this rank counts in the step what its narrow formats do.
  bool Counts(int64_t step) const;
  // After the guard refused the oldest step in flight: nothing is in flight, and the step's data
  // come again.
  absl::Status Rewind();
  // Prepares with rank 0's choices of plans on all ranks.
  absl::Status PrepareAlike();
  // Takes over rank 0's choices. Returns whether any rank had run something with another one.
  absl::StatusOr<bool> TakePlansOfRank0();
  // Scalars to where the ops read them, through a slot that is free.
  absl::Status StageInputs(const kernels::StepInputs& inputs, int slot);
  // The same, and unless the turn is idle the rank's next micro-batch, which must be one of `step`;
  // `pass` says which it is.
  absl::Status StageTurn(int64_t step,
                         const MicroBatchKind& kind,
                         kernels::StepInputs inputs,
                         Pass& pass);
  // Forward and backward of this rank's micro-batches; ranks sum gradients and losses in the last.
  absl::Status AccumulateGradients(int64_t step, const kernels::StepInputs& inputs);
  // Writes the gradients of this step into the folder `dump_gradients_`, once.
  absl::Status DumpGradients();
  // What follows waits for what HoldUpdate named, if anything.
  absl::Status AwaitHold();
  // Until the event's moment is past. Where ranks wait for one another on GPUs, not for ever.
  // `step`: whose moment it is, for errors.
  absl::Status Await(kernels::Event& event, int64_t step);
  // The same for all that was launched. Called between steps.
  absl::Status Drain();
  // A step is launched with nothing in flight ahead of it.
  void NothingAhead();
  // What the step drew from each of several sources.
  void AddSources(const kernels::StepState& state, StepResult& result) const;
  // Fills in step_seconds and compute_seconds.
  void AddTimes(const Flight& flight, const kernels::StepState& state, StepResult& result);
  // Before the first micro-batch of an evaluation: the step's sums are free, the weights whole.
  absl::Status BeginEvaluation();
  // The format in which step `as_step` runs, forward only.
  Pass EvaluationPass(int64_t as_step) const;
  absl::Status CheckSameRequests(absl::Span<const ScoreRequest> requests);
  // Tells the pulse that another micro-batch of one begins.
  void TellEvaluation();
  absl::Status EvaluateMicroBatch(int64_t first, int64_t count, int64_t as_step);

  Engine& engine_;
  Collective& comm_;
  const Loader& train_;
  const Loader* validation_;
  Clock& clock_;
  const spec::BatchPlan batch_;
  const v1::JobSpec& spec_;
  const spec::Schedule schedule_;
  std::string dump_gradients_;
  StepProgram program_;
  Prefetcher prefetcher_;
  Guard guard_;
  Ladder ladder_;
  int64_t step_;
  ControlRequests again_;   // asked with steps that the guard's verdict on another one dropped
  int64_t plain_step_ = 0;  // this one runs in BF16: there are no scales for it yet
  // The oldest belongs to step_ + 1. Step s, its event and its staging are at s mod kStagingSlots.
  std::array<Flight, spec::kStagingSlots> flights_;
  int in_flight_ = 0;
  int64_t uploads_ = 0;  // micro-batches sent: upload i uses slot i mod kStagingSlots
  std::unique_ptr<kernels::Event> uploaded_[spec::kStagingSlots];
  std::unique_ptr<kernels::Event> finished_[spec::kStagingSlots];
  std::unique_ptr<kernels::Event> drained_;
  const kernels::Event* hold_ = nullptr;  // of HoldUpdate, until the next Launch
  double restored_norm_ = 0;
  double last_norm_ = 0;
  StepWatch watch_;
  Pulse unwatched_;
  Pulse& pulse_;
  // The kinds of steps that were launched: each prepares something the first time.
  std::vector<StepKind> kinds_;
  bool evaluated_ = false;  // a micro-batch at least
  absl::Duration last_collect_ = -absl::InfiniteDuration();
  uint64_t last_ended_ns_ = 0;  // StepState's
};

}  // namespace hearth::trainer
