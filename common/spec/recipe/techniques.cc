#include "common/spec/recipe/techniques.h"

#include <string>

#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "hearth/v1/job.pb.h"

namespace hearth::spec {

// The row itself is asked, so that a recipe's operands alone say which parts it has.
bool HasTechnique(const Recipe& recipe, std::string_view technique) {
  const auto* field = v1::BlockTechniques::descriptor()->FindFieldByName(std::string(technique));
  if (field == nullptr) {
    return false;
  }
  v1::PrecisionSpec without;
  without.set_recipe(std::string(recipe.name));
  v1::BlockTechniques& techniques = *without.mutable_techniques();
  techniques.GetReflection()->SetBool(&techniques, field, false);
  return RecipeFor(without) != FindRecipe(recipe.name);
}

std::vector<std::string_view> RecipesWith(std::string_view technique) {
  return RecipeNames([technique](const Recipe& row) { return HasTechnique(row, technique); });
}

}  // namespace hearth::spec
