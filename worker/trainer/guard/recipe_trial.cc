#include "worker/trainer/guard/recipe_trial.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/spec/recipe/recipe.h"
#include "common/spec/recipe/trial_recipes.h"

namespace hearth::trainer {
namespace {

constexpr int64_t kFinalLossWindowMax = 200;

std::optional<double> HeldOut(const v1::PrecisionTrialRun& run) {
  return run.has_held_out_loss() ? std::optional<double>(run.held_out_loss()) : std::nullopt;
}

std::optional<double> Training(const v1::PrecisionTrialRun& run) {
  return run.has_training_loss() ? std::optional<double>(run.training_loss()) : std::nullopt;
}

// The loss that counts; empty if it was not measured or is no number.
std::optional<double> Loss(const v1::PrecisionTrialRun& run, bool held_out) {
  const std::optional<double> loss = held_out ? HeldOut(run) : Training(run);
  return loss.has_value() && std::isfinite(*loss) ? loss : std::nullopt;
}

// Sets the gap of a run that is not the reference.
void FillGap(const v1::PrecisionTrialRun& reference, v1::PrecisionTrialRun& run) {
  const bool held_out = reference.has_held_out_loss();
  const std::optional<double> gap = RelativeGap(Loss(run, held_out), Loss(reference, held_out));
  run.clear_gap();
  if (!gap.has_value() && run.problem().empty()) {
    run.set_problem("its loss is no number");
  }
  if (run.problem().empty()) {
    run.set_gap(*gap);
  }
}

std::string RunText(const v1::PrecisionTrialRun& run, bool held_out) {
  if (!run.problem().empty()) {
    return absl::StrCat(run.recipe(), ": ", run.problem());
  }
  std::string text =
      absl::StrFormat("%s: %s loss %.4f", run.recipe(), held_out ? "held-out" : "training",
                      held_out ? run.held_out_loss() : run.training_loss());
  if (run.has_gap()) {
    absl::StrAppendFormat(&text, " (%+.2f %%)", 100 * run.gap());
  }
  return text;
}

}  // namespace

int64_t FinalLossWindow(int64_t steps) {
  return std::clamp<int64_t>(steps / 10, 1, kFinalLossWindowMax);
}

double MeanOfLast(absl::Span<const double> losses, int64_t window) {
  const size_t count = std::min(losses.size(), static_cast<size_t>(std::max<int64_t>(1, window)));
  const absl::Span<const double> last = losses.subspan(losses.size() - count);
  return std::accumulate(last.begin(), last.end(), 0.0) / static_cast<double>(count);
}

std::optional<double> RelativeGap(const std::optional<double>& loss,
                                  const std::optional<double>& base) {
  if (!loss.has_value() || !base.has_value() || !std::isfinite(*loss) || !std::isfinite(*base) ||
      !(*base > 0)) {
    return std::nullopt;
  }
  return *loss / *base - 1;
}

bool HasChosen(const v1::JobSpec& job, const v1::PrecisionTrial& trial) {
  return job.precision().has_trial() && trial.recipe() == job.precision().recipe() &&
         spec::FindRecipe(trial.chosen()) != nullptr;
}

Trial::Trial(const v1::JobSpec& job, const std::string& made_with, const v1::PrecisionTrial& before)
    : recipes_(spec::TrialRecipes(job)) {
  state_.set_recipe(job.precision().recipe());
  state_.set_steps(job.precision().trial().steps());
  state_.set_max_gap(job.precision().trial().max_gap());
  state_.set_made_with(made_with);
  // A choice holds for the life of the job, whichever version of the program made it.
  if (HasChosen(job, before)) {
    state_ = before;
    return;
  }
  if (Continues(before)) {
    *state_.mutable_runs() = before.runs();
  }
  Conclude();
}

bool Trial::Continues(const v1::PrecisionTrial& before) const {
  // Losses of another program, or of other recipes, cannot be compared with those to come.
  if (before.made_with() != state_.made_with() ||
      before.runs_size() > static_cast<int>(recipes_.size())) {
    return false;
  }
  for (int i = 0; i < before.runs_size(); ++i) {
    if (before.runs(i).recipe() != recipes_[static_cast<size_t>(i)]) {
      return false;
    }
  }
  return true;
}

absl::Status Trial::Add(v1::PrecisionTrialRun run) {
  run.set_recipe(next_);
  if (state_.runs().empty()) {
    const bool lost = !Loss(run, run.has_held_out_loss()).has_value();
    if (lost || !run.problem().empty()) {
      return absl::OutOfRangeError(
          absl::StrCat("precision.trial: nothing can be compared with ", next_, ": ",
                       run.problem().empty() ? "its loss is no number" : run.problem()));
    }
    run.clear_gap();
  } else {
    FillGap(state_.runs(0), run);
  }
  *state_.add_runs() = std::move(run);
  Conclude();
  return absl::OkStatus();
}

void Trial::Conclude() {
  const auto done = static_cast<size_t>(state_.runs_size());
  const auto close = std::find_if(state_.runs().begin(), state_.runs().end(), [&](const auto& run) {
    return run.has_gap() && run.gap() <= state_.max_gap();
  });
  // In the order of the list: those behind a recipe that comes close enough are not tried. If none
  // does, it is the reference, the first of the list.
  if (close != state_.runs().end()) {
    state_.set_chosen(close->recipe());
  } else if (done == recipes_.size()) {
    state_.set_chosen(recipes_.front());
  }
  next_ = state_.chosen().empty() ? recipes_[done] : "";
  Describe();
}

void Trial::Describe() {
  std::vector<std::string> runs;
  const bool held_out = !state_.runs().empty() && state_.runs(0).has_held_out_loss();
  for (const v1::PrecisionTrialRun& run : state_.runs()) {
    runs.push_back(RunText(run, held_out));
  }
  std::string text = absl::StrFormat("trial of %d steps", state_.steps());
  if (runs.empty()) {
    absl::StrAppend(&text, " before the first in ", absl::StrJoin(recipes_, ", "));
  } else {
    absl::StrAppend(&text, ": ", absl::StrJoin(runs, ", "));
  }
  if (decided()) {
    absl::StrAppendFormat(&text, "; the job trains in %s (gap of at most %.3g %%)", state_.chosen(),
                          100 * state_.max_gap());
  } else if (!runs.empty()) {
    absl::StrAppend(&text, "; next ", next_);
  }
  state_.set_text(text);
}

}  // namespace hearth::trainer
