// Which recipes have the parts that precision.techniques can switch off or change.
#pragma once

#include <string_view>
#include <vector>

#include "common/spec/recipe/recipe.h"
#include "google/protobuf/descriptor.h"

namespace hearth::spec {

// Whether the recipe has the part: another value than the default changes an operand of its row; of
// a list, one of the names that it may have. `technique` is a field of BlockTechniques; no recipe
// has another.
bool HasTechnique(const Recipe& recipe, std::string_view technique);

// Names of the rows that have the part, in the table's order.
std::vector<std::string_view> RecipesWith(std::string_view technique);

// An entry of a list of precision.techniques.
struct IdleOperand {
  const google::protobuf::FieldDescriptor* list = nullptr;
  int index = 0;
};
// The entries without which the recipe is the same, in the order of the fields. A recipe that does
// not exist: all.
std::vector<IdleOperand> IdleOperands(const v1::PrecisionSpec& precision);
// Removes them, and of several entries that do the same all but one.
void ClearIdleOperands(v1::PrecisionSpec& precision);

}  // namespace hearth::spec
