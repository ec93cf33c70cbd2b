// Sets of layers.
#include <algorithm>
#include <set>
#include <vector>

#include "common/spec/fields/rows.h"
#include "common/spec/recipe/linear_kinds.h"
#include "common/spec/recipe/precision.h"
#include "common/spec/recipe/recipe.h"
#include "common/spec/rules/rules.h"
#include "common/spec/violations/text.h"

namespace hearth::spec {
namespace {

bool KnowsLayers(const v1::JobSpec& job) {
  return InRange(job.model(), v1::ModelSpec::kLayersFieldNumber);
}

void CheckLayers(const v1::JobSpec& job,
                 const std::string& field,
                 const v1::LayerSet& set,
                 Checker& check) {
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
    check.Range(path, set.layers(i), 0, layers - 1);
    if (!seen.insert(set.layers(i)).second) {
      check.Add(path, Text(set.layers(i), " is named twice"));
    }
  }
}

// Whether layers in this recipe keep the formats in which the job stores its parameters, and are
// not quantised. Remedies of a recipe that quantises nothing are refused elsewhere.
bool KeepsPrecision(const v1::JobSpec& job, std::string_view name) {
  const Recipe* const row = FindRecipe(name);
  const Recipe* const recipe = FindRecipe(job.precision().recipe());
  return row != nullptr && !row->quantised() &&
         (recipe == nullptr || !recipe->quantised() || CanFollow(*recipe, *row));
}

// What a remedy's layers run in.
void CheckLayersRecipe(const v1::JobSpec& job,
                       const std::string& field,
                       const std::string& name,
                       Checker& check) {
  if (FindRecipe(name) == nullptr || KeepsPrecision(job, name)) {
    return;  // the field's row refuses what is no recipe
  }
  const auto& fallback = job.precision().fallback();
  if (std::find(fallback.begin(), fallback.end(), name) == fallback.end()) {
    check.Add(field,
              Text(name, " is neither ", PlainRecipe().name, " nor one of precision.fallback"));
  }
}

void CheckRemedyLayers(const v1::JobSpec& job,
                       const std::string& field,
                       const v1::PrecisionRemedy& remedy,
                       Checker& check) {
  if (!remedy.has_high_precision_layers()) {
    if (remedy.has_layers_recipe() && !KeepsPrecision(job, remedy.layers_recipe())) {
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

// Whether nothing is left in the recipe's formats: the output projection is no layer.
bool LeavesNoLayer(const v1::JobSpec& job, const Recipe& recipe) {
  const PrecisionPlan plan = ResolvePrecision(job, recipe, job.model().layers());
  return plan.quantised() && !plan.QuantisesAnyLayer() && !plan.head;
}

// Kinds of linear layers, not all of them.
void CheckLinears(const v1::PrecisionSpec& p, Checker& check) {
  const std::string field = "precision.high_precision_linears";
  std::set<std::string> seen;
  for (int i = 0; i < p.high_precision_linears_size(); ++i) {
    if (!seen.insert(p.high_precision_linears(i)).second) {
      check.Add(Text(field, '[', i, ']'), Text(p.high_precision_linears(i), " is named twice"));
    }
  }
  const std::vector<std::string_view> kinds = LinearKindNames();
  const bool all = std::all_of(kinds.begin(), kinds.end(), [&seen](std::string_view kind) {
    return seen.count(std::string(kind)) > 0;
  });
  if (all) {
    check.Add(field, Text("keeps all linear layers in BF16 and none in ", p.recipe(),
                          "; name fewer, or set precision.recipe: bf16"));
  }
}

}  // namespace

void CheckJobLayers(const v1::JobSpec& job, Checker& check) {
  const v1::PrecisionSpec& p = job.precision();
  const std::string field = "precision.high_precision_layers";
  const size_t before = check.size();
  CheckLayers(job, field, p.high_precision_layers(), check);
  CheckLinears(p, check);
  const Recipe* recipe = FindRecipe(p.recipe());
  if (check.size() == before && KnowsLayers(job) && recipe != nullptr &&
      LeavesNoLayer(job, *recipe)) {
    check.Add(field, Text("keeps all ", job.model().layers(), " layers in BF16 and none in ",
                          recipe->name, "; name fewer, or set precision.recipe: bf16"));
  }
  for (int i = 0; i < p.remedies_size(); ++i) {
    CheckRemedyLayers(job, Text("precision.remedies[", i, ']'), p.remedies(i), check);
  }
}

}  // namespace hearth::spec
