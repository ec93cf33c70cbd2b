// What happens after the guard has refused a step: the step is done again in the next precision;
// on repeated trouble remedies are put in force one after another, then the run moves to a fallback
// precision for a while.
//
//   refused once        this step again, in the next recipe of the ladder
//   refused `after`     the next remedy for its steps; when all have been used, the next recipe for
//   times in `window`   `steps` steps
//   time over           back to what was before
//   refused in the last recipe of the ladder: the job stops
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "hearth/v1/job.pb.h"
#include "worker/trainer/guard/guard.h"

namespace hearth::trainer {

// The settings that a step runs with.
struct StepSettings {
  int rung = 0;              // recipe: index into the ladder
  double learning_rate = 1;  // factor
  double clip = 1;           // factor
  // Index of the remedy whose layers run wider; -1: none. The last in force that has any.
  int layer_remedy = -1;
};

enum class Action : uint8_t { kRedo, kRemedy, kRemedyEnd, kFallback, kReturn, kStop };
std::string_view ActionName(Action action);

struct Decision {
  int64_t step = 0;
  Verdict cause = Verdict::kGood;  // kGood: a period is over
  Action action = Action::kRedo;
  std::string from;        // recipe or remedy
  std::string to;          // recipe or remedy; empty for kStop
  int64_t until_step = 0;  // 0: only this step, or none
  StepFacts facts;
  StepLimits limits;
};
// A sentence for people.
std::string DecisionText(const Decision& decision);
void ToProto(const Decision& decision, v1::GuardDecision& out);

struct Remedy {
  std::string name;  // "learning rate x 0.5"
  double learning_rate = 1;
  double clip = 1;
  bool layers = false;  // layers run wider
  int64_t steps = 1;
};

struct LadderOptions {
  std::vector<std::string> recipes;  // at least one: the job's own first
  std::vector<Remedy> remedies;
  int after = 3;         // refused steps ...
  int64_t window = 200;  // ... within so many are repeated trouble
  int64_t steps = 200;   // in a fallback recipe
};
// Expects a resolved spec.
LadderOptions MakeLadderOptions(const v1::JobSpec& spec);

// What a checkpoint keeps.
struct LadderState {
  std::vector<int64_t> trouble;  // refused steps that count, ascending
  int fallback_rung = 0;         // in force up to fallback_until
  int64_t fallback_until = 0;
  std::vector<int64_t> remedy_until;  // last step of each remedy; 0 = not used
  int next_remedy = 0;
  int64_t last_end = 0;  // last step of the newest measure
  v1::GuardCounts counts;
};

// A function of the refused steps and their verdicts, so that ranks and replays decide alike.
class Ladder {
 public:
  explicit Ladder(LadderOptions options);

  StepSettings At(int64_t step) const;
  // How often `step` has been refused so far.
  int Attempt(int64_t step) const { return step == redo_step_ ? attempt_ : 0; }
  const std::string& recipe(int rung) const { return options_.recipes[static_cast<size_t>(rung)]; }
  int last_rung() const { return static_cast<int>(options_.recipes.size()) - 1; }

  // The guard refused `step`, which ran in recipe `rung`. Appends what is done about it. False: the
  // job stops, as it does in the last recipe, and where weights were updated already (facts.begun).
  bool Refused(int64_t step,
               int rung,
               Verdict cause,
               const StepFacts& facts,
               const StepLimits& limits,
               std::vector<Decision>& decisions);
  // `step` was applied. Appends which measures are over with it. Allocates only then.
  void Applied(int64_t step, std::vector<Decision>& decisions);

  const v1::GuardCounts& counts() const { return state_.counts; }
  const LadderState& state() const { return state_; }
  // What is no longer in the job (a resume may change the ladder) is dropped.
  void Restore(LadderState state);

 private:
  bool InForce(int64_t step) const;
  // Repeated trouble at `step`; true: a fallback recipe was put in force.
  bool Escalate(const Decision& refused, int rung, std::vector<Decision>& decisions);

  const LadderOptions options_;
  LadderState state_;
  // Not in checkpoints: those are made of applied steps.
  int64_t redo_step_ = 0;
  int redo_rung_ = 0;
  int attempt_ = 0;
};

}  // namespace hearth::trainer
