// Rules of what happens on numerical trouble: precision.fallback_*, remedies, stats_every; and of
// the trial before.
#include <string>

#include "common/spec/checker.h"
#include "common/spec/precision.h"
#include "common/spec/recipe.h"
#include "common/spec/validate.h"

namespace hearth::spec {
namespace {

constexpr int kMaxRemedies = 16;
constexpr int64_t kMaxLadderSteps = int64_t{1} << 40;
// Fewer say nothing, and the first are in BF16 while scales are found.
constexpr int64_t kMinTrialSteps = 10;

void CheckFactor(const std::string& field, bool has, double value, Checker& check) {
  check.Rule(field, !has || (value > 0.0 && value < 1.0), value,
             "is out of range; must be > 0 and < 1");
}

// `layers`: whether an earlier remedy has high_precision_layers; set if this one does.
void CheckRemedy(const v1::JobSpec& job,
                 const std::string& field,
                 const v1::PrecisionRemedy& remedy,
                 bool& layers,
                 Checker& check) {
  if (!remedy.has_learning_rate() && !remedy.has_clip() && !remedy.has_high_precision_layers()) {
    check.Add(field, "changes nothing; give learning_rate, clip or high_precision_layers");
  }
  CheckFactor(field + ".learning_rate", remedy.has_learning_rate(), remedy.learning_rate(), check);
  CheckFactor(field + ".clip", remedy.has_clip(), remedy.clip(), check);
  if (remedy.has_clip() && job.optimizer().grad_clip() <= 0.0) {
    check.Add(field + ".clip", "needs optimizer.grad_clip > 0");
  }
  check.Range(field + ".steps", remedy.has_steps(), remedy.steps(), int64_t{1}, kMaxLadderSteps);
  if (!remedy.has_high_precision_layers()) {
    return;
  }
  const v1::LayerRange& range = remedy.high_precision_layers();
  const v1::LayerRange& always = job.precision().high_precision_layers();
  const std::string path = field + ".high_precision_layers";
  if (layers) {
    check.Add(path, "only one remedy may change the layers");
  }
  layers = true;
  check.AtLeast(path + ".first", true, range.first(), always.first());
  check.AtLeast(path + ".last", true, range.last(), always.last());
  if (range.first() == always.first() && range.last() == always.last()) {
    check.Add(path,
              "changes nothing: precision.high_precision_layers keeps the same layers in BF16");
  }
  if (job.model().layers() > 0 && int64_t{range.first()} + range.last() > job.model().layers()) {
    check.Add(path, Text("first ", range.first(), " and last ", range.last(),
                         " are more than the model's ", job.model().layers(), " layers"));
  }
}

void CheckTrial(const v1::JobSpec& job, Checker& check) {
  const v1::PrecisionSpec& p = job.precision();
  if (!p.has_trial()) {
    return;
  }
  const Recipe* recipe = FindRecipe(p.recipe());
  if (recipe != nullptr && !recipe->quantised()) {
    check.Add("precision.trial",
              Text("compares a quantised recipe with bf16; precision.recipe is ", p.recipe()));
  }
  check.Range("precision.trial.max_gap", p.trial().has_max_gap(), p.trial().max_gap(), 0.0, 1.0);
  const std::string field = "precision.trial.steps";
  const int64_t steps = p.trial().steps();
  const size_t before = check.size();
  check.Range(field, p.trial().has_steps(), steps, kMinTrialSteps, kMaxLadderSteps);
  if (check.size() > before || job.train().steps() < 1) {
    return;
  }
  if (steps > job.train().steps()) {
    check.Add(field, Text(steps, " is more than train.steps ", job.train().steps()));
  } else if (steps <= p.warmup_steps()) {
    check.Add(field, Text(steps, " is not more than precision.warmup_steps ", p.warmup_steps(),
                          ", which are in BF16 in any recipe"));
  } else if (recipe != nullptr && ResolvePrecision(job, *recipe, 1).tail_step <= steps) {
    check.Add(field, Text(steps, " reaches into precision.bf16_tail ", p.bf16_tail(),
                          ", which is in BF16 in any recipe"));
  }
}

}  // namespace

void CheckLadder(const v1::JobSpec& job, Checker& check) {
  const v1::PrecisionSpec& p = job.precision();
  CheckTrial(job, check);
  check.Range("precision.fallback_after", p.has_fallback_after(), p.fallback_after(), 1, 1000);
  check.Range("precision.fallback_window", p.has_fallback_window(), p.fallback_window(), int64_t{1},
              kMaxLadderSteps);
  check.Range("precision.fallback_steps", p.has_fallback_steps(), p.fallback_steps(), int64_t{1},
              kMaxLadderSteps);
  // On a GPU the next step is launched before the numbers of this one are read.
  check.Rule("precision.stats_every", p.stats_every() == 0 || p.stats_every() >= 2, p.stats_every(),
             "is out of range; must be 0 or >= 2");
  if (p.remedies_size() > kMaxRemedies) {
    check.Add("precision.remedies", Text(p.remedies_size(), " entries; at most ", kMaxRemedies));
    return;
  }
  const bool none = p.fallback().empty() || (p.fallback_size() == 1 && p.fallback(0) == "none");
  if (p.remedies_size() > 0 && none) {
    check.Add("precision.remedies",
              "need precision.fallback: without another recipe no refused step can be done again");
  }
  bool layers = false;
  for (int i = 0; i < p.remedies_size(); ++i) {
    CheckRemedy(job, Text("precision.remedies[", i, ']'), p.remedies(i), layers, check);
  }
}

}  // namespace hearth::spec
