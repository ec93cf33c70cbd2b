#include "common/spec/recipe/trial_recipes.h"

#include <algorithm>

#include "common/spec/fields/idle.h"
#include "common/spec/recipe/head_format.h"
#include "common/spec/recipe/precision.h"
#include "common/spec/recipe/techniques.h"

namespace hearth::spec {

v1::JobSpec InRecipe(const v1::JobSpec& job, const std::string& recipe) {
  v1::JobSpec out = job;
  v1::PrecisionSpec& precision = *out.mutable_precision();
  precision.set_recipe(recipe);
  precision.clear_trial();
  if (FindRecipe(recipe) == nullptr) {
    return out;
  }
  ClearIdleOperands(precision);
  const Recipe* row = RecipeFor(precision);
  precision.clear_fallback();
  for (const std::string& name : job.precision().fallback()) {
    const Recipe* fallback = FindRecipe(name);
    const bool none = name == kNoFallback && row->quantised();
    if (none ||
        (fallback != nullptr && fallback->name != row->name && CanFollow(*row, *fallback))) {
      precision.add_fallback(name);
    }
  }
  if (!row->quantised()) {
    precision.clear_remedies();
  }
  // Layers that would run in a recipe which cannot follow this one run in BF16.
  const auto& fallback = precision.fallback();
  for (v1::PrecisionRemedy& remedy : *precision.mutable_remedies()) {
    if (remedy.has_layers_recipe() &&
        std::find(fallback.begin(), fallback.end(), remedy.layers_recipe()) == fallback.end()) {
      remedy.set_layers_recipe(std::string(PlainRecipe().name));
    }
  }
  const HeadFormat* head = FindHeadFormat(precision.lm_head());
  if (head != nullptr && !head->fits(*row)) {
    precision.clear_lm_head();
  }
  // A job in which only the output projection is quantised.
  const std::vector<bool> plain =
      LayersOf(precision.high_precision_layers(), std::max(0, job.model().layers()));
  if (row->quantised() && !plain.empty() && !QuantisesHead(precision) &&
      std::find(plain.begin(), plain.end(), false) == plain.end()) {
    precision.clear_high_precision_layers();
  }
  if (QuantisesHead(precision) && row->mixes()) {
    precision.clear_lm_head();
  }
  ClearIdlePrecision(out);
  return out;
}

std::vector<std::string> TrialRecipes(const v1::JobSpec& job) {
  if (!job.precision().has_trial()) {
    return {};
  }
  std::vector<std::string> recipes = {std::string(PlainRecipe().name)};
  for (const Recipe* recipe : PrecisionLadder(job)) {
    if (!recipe->quantised()) {
      break;  // what is below it is never needed: BF16 itself is always close enough
    }
    recipes.emplace_back(recipe->name);
  }
  return recipes;
}

}  // namespace hearth::spec
