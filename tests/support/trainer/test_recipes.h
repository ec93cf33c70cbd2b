// Rows of the recipe table by a property, so that a test covers a row that is added later.
#pragma once

#include <string>
#include <vector>

#include "common/spec/recipe/precision.h"
#include "common/spec/recipe/recipe.h"

namespace hearth::trainer {

inline std::vector<std::string> RecipesWhere(bool (*fits)(const spec::Recipe& recipe)) {
  std::vector<std::string> names;
  for (const spec::Recipe& recipe : spec::Recipes()) {
    if (fits(recipe)) {
      names.emplace_back(recipe.name);
    }
  }
  return names;
}

inline std::vector<std::string> PlainRecipes() {
  return RecipesWhere([](const spec::Recipe& r) { return !r.quantised(); });
}
inline std::vector<std::string> TensorScaledRecipes() {
  return RecipesWhere([](const spec::Recipe& r) { return r.tensor_scaled(); });
}
inline std::vector<std::string> BlockScaledRecipes() {
  return RecipesWhere([](const spec::Recipe& r) { return r.column_scales(); });
}
// Those whose refused steps can be done again in this one.
inline std::vector<std::string> RecipesBefore(const char* fallback) {
  std::vector<std::string> names;
  for (const spec::Recipe& recipe : spec::Recipes()) {
    if (spec::CanFollow(recipe, *spec::FindRecipe(fallback))) {
      names.emplace_back(recipe.name);
    }
  }
  return names;
}

}  // namespace hearth::trainer
