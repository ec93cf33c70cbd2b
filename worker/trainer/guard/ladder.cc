#include "worker/trainer/guard/ladder.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/table_rows.h"
#include "common/spec/recipe/precision.h"

namespace hearth::trainer {
namespace {

// "first 2 layers, layers 5, 7".
std::string LayersText(const v1::LayerSet& set) {
  std::vector<std::string> parts;
  if (set.first() > 0) {
    parts.push_back(absl::StrCat("first ", set.first(), " layers"));
  }
  if (set.last() > 0) {
    parts.push_back(absl::StrCat("last ", set.last(), " layers"));
  }
  if (!set.layers().empty()) {
    parts.push_back(absl::StrCat("layers ", absl::StrJoin(set.layers(), ", ")));
  }
  return absl::StrJoin(parts, ", ");
}

Remedy MakeRemedy(const v1::PrecisionRemedy& spec) {
  Remedy remedy;
  std::vector<std::string> parts;
  if (spec.has_learning_rate()) {
    remedy.learning_rate = spec.learning_rate();
    parts.push_back(absl::StrCat("learning rate x ", spec.learning_rate()));
  }
  if (spec.has_clip()) {
    remedy.clip = spec.clip();
    parts.push_back(absl::StrCat("clip x ", spec.clip()));
  }
  if (spec.has_high_precision_layers()) {
    remedy.layers = true;
    parts.push_back(
        absl::StrCat(LayersText(spec.high_precision_layers()), " in ", spec.layers_recipe()));
  }
  remedy.name = absl::StrJoin(parts, ", ");
  remedy.steps = spec.steps();
  return remedy;
}

void CountRefusal(Verdict cause, v1::GuardCounts& counts) {
  switch (cause) {
    case Verdict::kNonFinite:
      counts.set_non_finite(counts.non_finite() + 1);
      break;
    case Verdict::kSpike:
      counts.set_spike(counts.spike() + 1);
      break;
    case Verdict::kGradSpike:
      counts.set_grad_spike(counts.grad_spike() + 1);
      break;
    case Verdict::kGood:
      break;
  }
}

// What was wrong with the step.
std::string CauseText(const Decision& d) {
  switch (d.cause) {
    case Verdict::kNonFinite:
      return absl::StrFormat(
          "the loss (%g) or the gradient (norm %g, %d elements) was not finite in %s", d.facts.loss,
          d.facts.grad_norm, d.facts.nonfinite_gradients, d.from);
    case Verdict::kSpike:
      return absl::StrFormat("the loss jumped to %.6g in %s (limit %.6g)", d.facts.loss, d.from,
                             d.limits.loss);
    case Verdict::kGradSpike:
      return absl::StrFormat("the gradient's norm jumped to %.6g in %s (limit %.6g)",
                             d.facts.grad_norm, d.from, d.limits.grad_norm);
    case Verdict::kGood:
      break;
  }
  return "its time is over";
}

}  // namespace

std::string_view ActionName(Action action) {
  static constexpr EnumNames<Action, Action::kStop> kNames = {"redo",     "remedy", "remedy_end",
                                                              "fallback", "return", "stop"};
  return kNames[action];
}

std::string DecisionText(const Decision& d) {
  const std::string step = absl::StrCat("step ", d.step, ": ");
  switch (d.action) {
    case Action::kRedo:
      return absl::StrCat(step, CauseText(d), "; done again in ", d.to);
    case Action::kRemedy:
      return absl::StrCat(step, "repeated trouble; ", d.to, " up to step ", d.until_step);
    case Action::kRemedyEnd:
      return absl::StrCat(step, "the remedy \"", d.from, "\" is over");
    case Action::kFallback:
      return absl::StrCat(step, CauseText(d), ", which is repeated trouble; in ", d.to,
                          " up to step ", d.until_step);
    case Action::kReturn:
      return absl::StrCat(step, "from the next one on in ", d.to, " again, after ", d.from);
    case Action::kStop:
      return absl::StrCat(step, CauseText(d), "; there is no other recipe to try");
  }
  return step;
}

void ToProto(const Decision& d, v1::GuardDecision& out) {
  out.set_step(d.step);
  const std::string_view cause =
      d.cause == Verdict::kGood ? std::string_view("period_over") : VerdictName(d.cause);
  out.set_cause(std::string(cause));
  out.set_action(std::string(ActionName(d.action)));
  out.set_from(d.from);
  out.set_to(d.to);
  out.set_until_step(d.until_step);
  out.set_loss(d.facts.loss);
  out.set_grad_norm(d.facts.grad_norm);
  out.set_nonfinite_gradients(d.facts.nonfinite_gradients);
  out.set_loss_limit(d.limits.loss);
  out.set_grad_norm_limit(d.limits.grad_norm);
  out.set_text(DecisionText(d));
}

LadderOptions MakeLadderOptions(const v1::JobSpec& spec) {
  const v1::PrecisionSpec& precision = spec.precision();
  LadderOptions options;
  for (const spec::Recipe* recipe : spec::PrecisionLadder(spec)) {
    options.recipes.emplace_back(recipe->name);
  }
  for (const v1::PrecisionRemedy& remedy : precision.remedies()) {
    options.remedies.push_back(MakeRemedy(remedy));
  }
  options.after = std::max(1, precision.fallback_after());
  options.window = std::max<int64_t>(1, precision.fallback_window());
  options.steps = std::max<int64_t>(1, precision.fallback_steps());
  return options;
}

Ladder::Ladder(LadderOptions options) : options_(std::move(options)) {
  state_.remedy_until.assign(options_.remedies.size(), 0);
}

StepSettings Ladder::At(int64_t step) const {
  StepSettings settings;
  if (step <= state_.fallback_until) {
    settings.rung = state_.fallback_rung;
  }
  // A step that is done again during a fallback takes the safer of the two recipes.
  if (step == redo_step_) {
    settings.rung = std::max(settings.rung, redo_rung_);
  }
  for (size_t i = 0; i < options_.remedies.size(); ++i) {
    const Remedy& remedy = options_.remedies[i];
    if (step <= state_.remedy_until[i]) {
      settings.learning_rate *= remedy.learning_rate;
      settings.clip *= remedy.clip;
      settings.layer_remedy = remedy.layers ? static_cast<int>(i) : settings.layer_remedy;
    }
  }
  return settings;
}

bool Ladder::InForce(int64_t step) const {
  return step <= state_.last_end;
}

bool Ladder::Refused(int64_t step,
                     int rung,
                     Verdict cause,
                     const StepFacts& facts,
                     const StepLimits& limits,
                     std::vector<Decision>& decisions) {
  CountRefusal(cause, state_.counts);
  Decision refused;
  refused.step = step;
  refused.cause = cause;
  refused.from = recipe(rung);
  refused.facts = facts;
  refused.limits = limits;
  // Another recipe cannot undo an update.
  if (rung >= last_rung() || facts.begun) {
    refused.action = Action::kStop;
    decisions.push_back(std::move(refused));
    return false;
  }
  // Trouble is counted once a step, however often the step has to be done again.
  const bool first = Attempt(step) == 0;
  attempt_ = first ? 1 : attempt_ + 1;
  redo_step_ = step;
  redo_rung_ = rung + 1;
  std::vector<int64_t>& trouble = state_.trouble;
  if (first) {
    trouble.push_back(step);
    trouble.erase(std::remove_if(trouble.begin(), trouble.end(),
                                 [&](int64_t old) { return old <= step - options_.window; }),
                  trouble.end());
  }
  if (first && static_cast<int>(trouble.size()) >= options_.after &&
      Escalate(refused, rung, decisions)) {
    return true;
  }
  refused.action = Action::kRedo;
  refused.to = recipe(redo_rung_);
  decisions.push_back(std::move(refused));
  return true;
}

bool Ladder::Escalate(const Decision& refused, int rung, std::vector<Decision>& decisions) {
  const int64_t step = refused.step;
  if (!InForce(step) && step - state_.last_end > options_.window) {
    // Remedies are tried in their order, one for each trouble that repeats.
    state_.next_remedy = 0;  // all has been well for long: this is new trouble
  }
  // It has led to a decision, so counting begins again.
  state_.trouble.clear();
  // Trouble within a fallback calls for the next rung: a remedy would keep the failing recipe.
  const bool in_fallback = step <= state_.fallback_until;
  Decision decision = refused;
  if (!in_fallback && state_.next_remedy < static_cast<int>(options_.remedies.size())) {
    const auto i = static_cast<size_t>(state_.next_remedy++);
    decision.action = Action::kRemedy;
    decision.to = options_.remedies[i].name;
    decision.until_step = step + options_.remedies[i].steps - 1;
    state_.remedy_until[i] = decision.until_step;
    state_.counts.set_remedies(state_.counts.remedies() + 1);
  } else {
    decision.action = Action::kFallback;
    decision.to = recipe(rung + 1);
    decision.until_step = step + options_.steps - 1;
    state_.fallback_rung = rung + 1;
    state_.fallback_until = decision.until_step;
    state_.counts.set_fallbacks(state_.counts.fallbacks() + 1);
  }
  state_.last_end = std::max(state_.last_end, decision.until_step);
  // A fallback says how the step is done again; with a remedy the caller adds that decision.
  const bool fallback = decision.action == Action::kFallback;
  decisions.push_back(std::move(decision));
  return fallback;
}

void Ladder::Applied(int64_t step, std::vector<Decision>& decisions) {
  if (step == redo_step_) {
    state_.counts.set_redone_steps(state_.counts.redone_steps() + 1);
  }
  Decision over;
  over.step = step;
  for (size_t i = 0; i < options_.remedies.size(); ++i) {
    if (state_.remedy_until[i] == step) {
      over.action = Action::kRemedyEnd;
      over.from = options_.remedies[i].name;
      decisions.push_back(over);
    }
  }
  if (state_.fallback_until == step && state_.fallback_rung > 0) {
    over.action = Action::kReturn;
    over.from = recipe(state_.fallback_rung);
    over.to = recipe(0);
    state_.fallback_rung = 0;
    decisions.push_back(over);
  }
}

void Ladder::Restore(LadderState state) {
  state_ = std::move(state);
  // The spec may have other remedies and recipes than the run that was saved.
  state_.remedy_until.resize(options_.remedies.size(), 0);
  state_.next_remedy =
      std::clamp(state_.next_remedy, 0, static_cast<int>(options_.remedies.size()));
  state_.fallback_rung = std::clamp(state_.fallback_rung, 0, last_rung());
  redo_step_ = 0;
  attempt_ = 0;
}

}  // namespace hearth::trainer
