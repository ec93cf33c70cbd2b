// Rules of what happens on numerical trouble: precision.fallback_*, remedies, stats_every; and of
// the trial before.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "common/spec/checker.h"
#include "common/spec/precision.h"
#include "common/spec/recipe.h"
#include "common/spec/techniques.h"
#include "common/spec/validate.h"

namespace hearth::spec {
namespace {

constexpr int kMaxRemedies = 16;
// On a GPU each is recorded as graphs of its own.
constexpr int kMaxLayerRemedies = 4;
constexpr int64_t kMaxLadderSteps = int64_t{1} << 40;
// Fewer say nothing, and the first are in BF16 while scales are found.
constexpr int64_t kMinTrialSteps = 10;

void CheckFactor(const std::string& field, bool has, double value, Checker& check) {
  check.Rule(field, !has || (value > 0.0 && value < 1.0), value,
             "is out of range; must be > 0 and < 1");
}

bool KnowsLayers(const v1::JobSpec& job) {
  return job.model().layers() >= 1 && job.model().layers() <= kMaxLayers;
}

void CheckLayers(const v1::JobSpec& job,
                 const std::string& field,
                 const v1::LayerSet& set,
                 Checker& check) {
  check.AtLeast(field + ".first", set.has_first(), set.first(), 0);
  check.AtLeast(field + ".last", set.has_last(), set.last(), 0);
  const int layers = job.model().layers();
  if (layers < 1) {
    return;
  }
  if (set.first() >= 0 && set.last() >= 0 && int64_t{set.first()} + set.last() > layers) {
    check.Add(field, Text("first ", set.first(), " and last ", set.last(),
                          " are more than the model's ", layers, " layers"));
  }
  std::set<int32_t> seen;
  for (int i = 0; i < set.layers_size(); ++i) {
    const std::string path = Text(field, ".layers[", i, ']');
    check.Range(path, true, set.layers(i), 0, layers - 1);
    if (!seen.insert(set.layers(i)).second) {
      check.Add(path, Text(set.layers(i), " is named twice"));
    }
  }
}

// What a remedy's layers run in.
void CheckLayersRecipe(const v1::JobSpec& job,
                       const std::string& field,
                       const std::string& name,
                       Checker& check) {
  const Recipe* row = FindRecipe(name);
  if (row != nullptr && row->kind == RecipeKind::kBf16) {
    return;
  }
  const auto& fallback = job.precision().fallback();
  if (std::find(fallback.begin(), fallback.end(), name) == fallback.end()) {
    check.Add(field, Text(name, " is neither bf16 nor one of precision.fallback"));
  }
}

void CheckRemedyLayers(const v1::JobSpec& job,
                       const std::string& field,
                       const v1::PrecisionRemedy& remedy,
                       Checker& check) {
  if (!remedy.has_high_precision_layers()) {
    if (remedy.has_layers_recipe()) {
      check.Add(field + ".layers_recipe", "needs high_precision_layers, which run in it");
    }
    return;
  }
  const std::string path = field + ".high_precision_layers";
  const size_t before = check.size();
  CheckLayers(job, path, remedy.high_precision_layers(), check);
  CheckLayersRecipe(job, field + ".layers_recipe", remedy.layers_recipe(), check);
  if (check.size() > before || !KnowsLayers(job)) {
    return;
  }
  const int layers = job.model().layers();
  const std::vector<bool> always = LayersOf(job.precision().high_precision_layers(), layers);
  const std::vector<bool> meanwhile = LayersOf(remedy.high_precision_layers(), layers);
  bool more = false;
  for (size_t l = 0; l < meanwhile.size(); ++l) {
    more |= meanwhile[l] && !always[l];
  }
  if (!more) {
    check.Add(path,
              "changes nothing: precision.high_precision_layers keeps the same layers in BF16");
  }
}

void CheckRemedy(const v1::JobSpec& job,
                 const std::string& field,
                 const v1::PrecisionRemedy& remedy,
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

// Whether nothing is left in the recipe's formats: the output projection is no layer.
bool LeavesNoLayer(const v1::JobSpec& job, const Recipe& recipe) {
  const PrecisionPlan plan = ResolvePrecision(job, recipe, job.model().layers());
  return plan.quantised() && !plan.QuantisesAnyLayer() && !plan.head;
}

std::vector<std::string_view> QuantisedRecipes() {
  std::vector<std::string_view> names;
  for (const Recipe& recipe : Recipes()) {
    if (recipe.quantised()) {
      names.push_back(recipe.name);
    }
  }
  return names;
}

}  // namespace

void CheckSwitches(const v1::JobSpec& job, Checker& check) {
  const v1::PrecisionSpec& p = job.precision();
  const Recipe* recipe = FindRecipe(p.recipe());
  if (recipe == nullptr) {
    return;
  }
  const auto idle = [&](const std::string& field, const std::vector<std::string_view>& where) {
    check.Add(field, Text("changes nothing in ", p.recipe(), "; it acts on ", NamesText(where)));
  };
  if (p.bf16_tail() > 0.0 && !recipe->quantised()) {
    idle("precision.bf16_tail", QuantisedRecipes());
  }
  for (const std::string& technique : IdleTechniques(*recipe, p.techniques())) {
    idle("precision.techniques." + technique, RecipesWith(technique));
  }
}

void CheckJobLayers(const v1::JobSpec& job, Checker& check) {
  const v1::PrecisionSpec& p = job.precision();
  const std::string field = "precision.high_precision_layers";
  const size_t before = check.size();
  CheckLayers(job, field, p.high_precision_layers(), check);
  const Recipe* recipe = FindRecipe(p.recipe());
  if (check.size() == before && KnowsLayers(job) && recipe != nullptr &&
      LeavesNoLayer(job, *recipe)) {
    check.Add(field, Text("keeps all ", job.model().layers(), " layers in BF16 and none in ",
                          recipe->name, "; name fewer, or set precision.recipe: bf16"));
  }
  for (int i = 0; i < std::min(p.remedies_size(), kMaxRemedies); ++i) {
    CheckRemedyLayers(job, Text("precision.remedies[", i, ']'), p.remedies(i), check);
  }
}

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
  int with_layers = 0;
  for (int i = 0; i < p.remedies_size(); ++i) {
    const std::string field = Text("precision.remedies[", i, ']');
    CheckRemedy(job, field, p.remedies(i), check);
    with_layers += p.remedies(i).has_high_precision_layers() ? 1 : 0;
    if (with_layers == kMaxLayerRemedies + 1) {
      check.Add(field + ".high_precision_layers",
                Text("at most ", kMaxLayerRemedies, " remedies may change the layers"));
    }
  }
}

}  // namespace hearth::spec
