#include "common/spec/recipe/techniques.h"

#include <algorithm>
#include <string>

#include "common/spec/fields/rows.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "hearth/v1/job.pb.h"

namespace hearth::spec {

namespace {

using google::protobuf::FieldDescriptor;

// The recipe's row with the technique the other way round than by default; of a list, with one of
// its names.
const Recipe* Changed(const Recipe& recipe, const FieldDescriptor& field, std::string_view name) {
  v1::PrecisionSpec changed;
  changed.set_recipe(std::string(recipe.name));
  v1::BlockTechniques& techniques = *changed.mutable_techniques();
  const auto& reflection = *techniques.GetReflection();
  if (field.is_repeated()) {
    reflection.AddString(&techniques, &field, std::string(name));
  } else {
    reflection.SetBool(&techniques, &field, RowOf(field).default_value() != "true");
  }
  return RecipeFor(changed);
}

}  // namespace

// The row itself is asked, so that a recipe's operands alone say which parts it has.
bool HasTechnique(const Recipe& recipe, std::string_view technique) {
  const auto* field = v1::BlockTechniques::descriptor()->FindFieldByName(std::string(technique));
  if (field == nullptr) {
    return false;
  }
  const Recipe* const row = FindRecipe(recipe.name);
  if (!field->is_repeated()) {
    return Changed(recipe, *field, "") != row;
  }
  const std::vector<std::string_view> names = NamesOf(RowOf(*field));
  return std::any_of(names.begin(), names.end(),
                     [&](std::string_view name) { return Changed(recipe, *field, name) != row; });
}

std::vector<IdleOperand> IdleOperands(const v1::PrecisionSpec& precision) {
  std::vector<IdleOperand> idle;
  const v1::BlockTechniques& techniques = precision.techniques();
  const auto& reflection = *techniques.GetReflection();
  const Recipe* const whole = RecipeFor(precision);
  for (int f = 0; f < v1::BlockTechniques::descriptor()->field_count(); ++f) {
    const FieldDescriptor& field = *v1::BlockTechniques::descriptor()->field(f);
    for (int i = 0; field.is_repeated() && i < reflection.FieldSize(techniques, &field); ++i) {
      v1::PrecisionSpec without = precision;
      v1::BlockTechniques& fewer = *without.mutable_techniques();
      reflection.ClearField(&fewer, &field);
      for (int k = 0; k < reflection.FieldSize(techniques, &field); ++k) {
        if (k != i) {
          reflection.AddString(&fewer, &field, reflection.GetRepeatedString(techniques, &field, k));
        }
      }
      if (RecipeFor(without) == whole) {
        idle.push_back({&field, i});
      }
    }
  }
  return idle;
}

void ClearIdleOperands(v1::PrecisionSpec& precision) {
  // One at a time: of two that do the same one stays.
  for (std::vector<IdleOperand> idle = IdleOperands(precision); !idle.empty();
       idle = IdleOperands(precision)) {
    v1::BlockTechniques& techniques = *precision.mutable_techniques();
    const auto& reflection = *techniques.GetReflection();
    const FieldDescriptor* const field = idle.front().list;
    const int last = reflection.FieldSize(techniques, field) - 1;
    for (int i = idle.front().index; i < last; ++i) {
      reflection.SwapElements(&techniques, field, i, i + 1);
    }
    reflection.RemoveLast(&techniques, field);
  }
}

std::vector<std::string_view> RecipesWith(std::string_view technique) {
  return RecipeNames([technique](const Recipe& row) { return HasTechnique(row, technique); });
}

}  // namespace hearth::spec
