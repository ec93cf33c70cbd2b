#include "worker/trainer/rank/trial/trial_duty.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/base/status_macros.h"
#include "common/spec/recipe/recipe.h"
#include "common/spec/recipe/trial_recipes.h"
#include "worker/trainer/rank/agreement.h"

namespace hearth::trainer {

TrialDuty::TrialDuty(
    RankContext& rank, Meeting& meeting, JobData& data, RankSession& session, Controls& controls)
    : rank_(rank), meeting_(meeting), data_(data), session_(session), controls_(controls) {}

absl::Status TrialDuty::Recall(const LoadedCheckpoint* resumed) {
  if (!rank_.spec.precision().has_trial()) {
    return absl::OkStatus();
  }
  before_ = rank_.task.trial();
  if (resumed == nullptr || HasChosen(rank_.spec, before_)) {
    return absl::OkStatus();
  }
  HEARTH_ASSIGN_OR_RETURN(const std::optional<v1::PrecisionTrial> kept, TrialOf(resumed->meta));
  before_ = kept.value_or(before_);
  if (!HasChosen(rank_.spec, before_)) {
    rank_.link.SendLog("warning", "precision.trial is passed over: the job has begun without one");
    rank_.spec = spec::InRecipe(rank_.spec, rank_.spec.precision().recipe());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<v1::ExitReason>> TrialDuty::Choose() {
  if (!rank_.task.spec().precision().has_trial()) {
    return std::nullopt;
  }
  // A rank that passes the trial over takes part in none of its collectives, so all must agree.
  rank_.blame = v1::EXIT_REASON_COMM;
  const bool counts = rank_.spec.precision().has_trial();
  HEARTH_RETURN_IF_ERROR(CheckSame(
      meeting_.comm(), "some ranks pass precision.trial over, others do not", counts ? 1 : 0));
  if (!counts) {
    return std::nullopt;
  }
  Trial trial(rank_.spec,
              TrialMadeWith(rank_.spec, rank_.task.world_size(), rank_.agreed.shard,
                            rank_.agreed.micro_batch),
              before_);
  HEARTH_RETURN_IF_ERROR(CheckSame(meeting_.comm(), "ranks know of different runs of the trial",
                                   trial.state().runs_size()));
  if (trial.decided() && rank_.leader) {
    rank_.link.SendLog("info", absl::StrCat("decided before: ", trial.state().text()));
  }
  HEARTH_RETURN_IF_ERROR(Hold(trial));
  if (left_.has_value()) {
    return left_;
  }
  chosen_ = trial.state();
  rank_.spec = spec::InRecipe(rank_.spec, chosen_->chosen());
  rank_.blame = v1::EXIT_REASON_COMM;
  HEARTH_RETURN_IF_ERROR(
      CheckSame(meeting_.comm(), "ranks have chosen different recipes",
                spec::FindRecipe(rank_.spec.precision().recipe()) - spec::Recipes().data()));
  return std::nullopt;
}

absl::Status TrialDuty::Hold(Trial& trial) {
  if (rank_.leader && !trial.decided() && trial.state().runs().empty()) {
    rank_.link.SendTrial(trial.state());
  }
  while (!trial.decided() && !left_.has_value()) {
    HEARTH_ASSIGN_OR_RETURN(const TrialRunResult result, TryRecipe(trial.next()));
    HEARTH_RETURN_IF_ERROR(TakeRun(result, trial));
    HEARTH_RETURN_IF_ERROR(session_.Close());
  }
  return absl::OkStatus();
}

absl::Status TrialDuty::TakeRun(const TrialRunResult& result, Trial& trial) {
  controls_.Agreed({result.asked.save, false, false});
  if (result.asked.stop || result.asked.pause) {
    // Finished runs are with whoever started this; there is no step to save.
    left_ = result.asked.stop ? v1::EXIT_REASON_STOPPED : v1::EXIT_REASON_PAUSED;
  }
  if (result.left) {
    return absl::OkStatus();
  }
  rank_.blame = v1::EXIT_REASON_NUMERICAL;
  HEARTH_RETURN_IF_ERROR(trial.Add(result.run));
  if (rank_.leader) {
    rank_.link.SendTrial(trial.state());
  }
  return absl::OkStatus();
}

absl::StatusOr<TrialRunResult> TrialDuty::TryRecipe(const std::string& recipe) {
  rank_.link.SendPhase("trial");
  HEARTH_RETURN_IF_ERROR(Annotate(
      session_.Open(spec::InRecipe(rank_.spec, recipe), RankSession::Purpose::kTrial, nullptr),
      absl::StrCat("precision.trial: ", recipe)));
  TrialRunOptions options;
  options.steps = rank_.spec.precision().trial().steps();
  options.evaluates = data_.validation() != nullptr;
  options.recipe = recipe;
  options.link = rank_.leader ? &rank_.link : nullptr;
  options.take_control = [this] { return controls_.Take(); };
  absl::StatusOr<TrialRunResult> result = RunTrial(session_.trainer(), options);
  rank_.pulse.Begin(Activity::kOther, "ending a run of the trial");
  return result.ok() ? std::move(result) : rank_.Blame(result.status());
}

std::string TrialDuty::ChosenAsJson() const {
  return chosen_.has_value() ? TrialToJson(*chosen_) : "";
}

}  // namespace hearth::trainer
