// The recipe, the format of the output projection, and the recipes to fall back to.
#include "common/spec/recipe/recipe.h"

#include <set>
#include <vector>

#include "common/spec/recipe/head_format.h"
#include "common/spec/recipe/precision.h"
#include "common/spec/rules/rules.h"
#include "common/spec/violations/text.h"

namespace hearth::spec {
namespace {

// A recipe that the device runs.
void CheckDevice(const v1::JobSpec& job,
                 std::string_view field,
                 const Recipe& recipe,
                 Checker& check) {
  const std::string& device = job.resources().device();
  if (device != "cpu" && device != "cuda") {
    return;
  }
  const std::string refusal = RecipeRefusal(recipe, device, job.precision().emulate());
  if (!refusal.empty()) {
    check.Add(field, refusal);
  }
}

// Whether the device can run the recipe at all; an unknown one cannot.
bool Runs(const v1::JobSpec& job, const std::string& name) {
  const Recipe* recipe = FindRecipe(name);
  return recipe != nullptr &&
         RecipeExecution(*recipe, job.resources().device()) != Execution::kNone;
}

// The recipes that a run in `recipe` can continue in on its device, as the end of a sentence.
std::string FollowersText(const v1::JobSpec& job, const Recipe& recipe) {
  const std::vector<std::string_view> names = RecipeNames([&](const Recipe& row) {
    return CanFollow(recipe, row) && Runs(job, std::string(row.name));
  });
  return names.empty() ? Text("nor in any other recipe; leave precision.fallback out")
                       : Text("only in ", NamesText(names));
}

}  // namespace

void CheckRecipe(const v1::JobSpec& job, Checker& check) {
  const v1::PrecisionSpec& p = job.precision();
  if (FindRecipe(p.recipe()) == nullptr) {
    return;
  }
  CheckDevice(job, "precision.recipe", *RecipeFor(p), check);
  if (FindRecipe(p.recipe())->quantised() && !RecipeFor(p)->quantised()) {
    check.Add("precision.techniques.bf16_operands",
              Text("keeps all operands in BF16 and none in ", p.recipe(),
                   "; name fewer, or set precision.recipe: bf16"));
  }
  // The loss has its own products, of which both operands are quantised.
  if (QuantisesHead(p) && RecipeFor(p)->mixes()) {
    check.Add("precision.lm_head", Text(p.lm_head(),
                                        " does not go with operands in BF16 "
                                        "(precision.techniques.bf16_operands) in this version"));
  }
  const auto bf16_weights = [](const Recipe& row) {
    return row.parameters.storage == DType::kBF16;
  };
  if (KeepsNoMasters(job) && !bf16_weights(*FindRecipe(p.recipe()))) {
    check.Add("optimizer.master", Text("none needs a recipe whose weights are BF16 (",
                                       NamesText(RecipeNames(bf16_weights)), "); those of ",
                                       p.recipe(), " are their own masters already"));
  }
  const HeadFormat* head = FindHeadFormat(p.lm_head());
  if (head != nullptr && Runs(job, p.recipe()) && !head->fits(*FindRecipe(p.recipe()))) {
    check.Add("precision.lm_head", Text(head->name, " needs ", head->needs, " (",
                                        NamesText(RecipeNames(head->fits)), "), not ", p.recipe()));
  }
}

void CheckFallback(const v1::JobSpec& job, Checker& check) {
  const v1::PrecisionSpec& p = job.precision();
  if (!FallsBack(p)) {
    return;
  }
  std::set<std::string> seen;
  bool wide = false;  // an unquantised one came before
  for (int i = 0; i < p.fallback_size(); ++i) {
    const std::string field = Text("precision.fallback[", i, ']');
    if (p.fallback(i) == kNoFallback) {
      check.Add(field, "none stands alone: it turns falling back off, so no recipe goes with it");
      continue;
    }
    if (p.fallback(i) == p.recipe()) {
      check.Add(field,
                Text(p.recipe(), " is precision.recipe itself, which cannot be its own fallback"));
      continue;
    }
    const size_t before = check.size();
    const Recipe* row = FindRecipe(p.fallback(i));
    if (row == nullptr) {
      continue;  // refused by the row of precision.fallback
    }
    // One refusal is enough: where the recipe does not run, neither may the fallbacks of its row.
    if (Runs(job, p.recipe())) {
      CheckDevice(job, field, *row, check);
    }
    if (!seen.insert(p.fallback(i)).second) {
      check.Add(field, Text(p.fallback(i), " is named twice"));
    }
    if (check.size() == before && Runs(job, p.recipe()) && !CanFollow(*RecipeFor(p), *row)) {
      check.Add(field, Text("a run in ", p.recipe(), " cannot go on in ", p.fallback(i),
                            " in this version, ", FollowersText(job, *RecipeFor(p))));
    }
    if (row->quantised() && wide) {
      check.Add(field, Text(p.fallback(i), " is narrower than the one before it"));
    }
    wide |= !row->quantised();
  }
}

}  // namespace hearth::spec
