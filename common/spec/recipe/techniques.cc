#include "common/spec/recipe/techniques.h"

#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

namespace hearth::spec {
namespace {

using google::protobuf::FieldDescriptor;

// The row itself is asked, so that a recipe's operands alone say which parts it has.
bool Has(const Recipe& recipe, const FieldDescriptor* technique) {
  v1::PrecisionSpec without;
  without.set_recipe(std::string(recipe.name));
  v1::BlockTechniques& techniques = *without.mutable_techniques();
  techniques.GetReflection()->SetBool(&techniques, technique, false);
  return RecipeFor(without) != FindRecipe(recipe.name);
}

std::vector<const FieldDescriptor*> Idle(const Recipe& recipe,
                                         const v1::BlockTechniques& techniques) {
  std::vector<const FieldDescriptor*> set;
  techniques.GetReflection()->ListFields(techniques, &set);
  std::vector<const FieldDescriptor*> idle;
  for (const FieldDescriptor* technique : set) {
    if (!Has(recipe, technique)) {
      idle.push_back(technique);
    }
  }
  return idle;
}

}  // namespace

std::vector<std::string> IdleTechniques(const Recipe& recipe,
                                        const v1::BlockTechniques& techniques) {
  std::vector<std::string> names;
  for (const FieldDescriptor* technique : Idle(recipe, techniques)) {
    names.push_back(technique->name());
  }
  return names;
}

std::vector<std::string_view> RecipesWith(std::string_view technique) {
  const FieldDescriptor* field =
      v1::BlockTechniques::descriptor()->FindFieldByName(std::string(technique));
  std::vector<std::string_view> names;
  for (const Recipe& recipe : Recipes()) {
    if (field != nullptr && Has(recipe, field)) {
      names.push_back(recipe.name);
    }
  }
  return names;
}

void DropIdleTechniques(const Recipe& recipe, v1::PrecisionSpec& precision) {
  if (!precision.has_techniques()) {
    return;
  }
  v1::BlockTechniques& techniques = *precision.mutable_techniques();
  for (const FieldDescriptor* technique : Idle(recipe, techniques)) {
    techniques.GetReflection()->ClearField(&techniques, technique);
  }
  std::vector<const FieldDescriptor*> left;
  techniques.GetReflection()->ListFields(techniques, &left);
  if (left.empty()) {
    precision.clear_techniques();
  }
}

}  // namespace hearth::spec
