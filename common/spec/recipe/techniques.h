// Which recipes have the parts that precision.techniques can switch off or change.
#pragma once

#include <string_view>
#include <vector>

#include "common/spec/recipe/recipe.h"
#include "google/protobuf/descriptor.h"

namespace hearth::spec {

// Whether the recipe has the part: some value other than the default changes an operand of its row
// (for a list: some name in it does). `technique` is a field of BlockTechniques; false for any
// other name.
bool HasTechnique(const Recipe& recipe, std::string_view technique);

// Names of the rows that have the part, in the table's order.
std::vector<std::string_view> RecipesWith(std::string_view technique);

// An entry of a list of precision.techniques.
struct IdleOperand {
  const google::protobuf::FieldDescriptor* list = nullptr;
  int index = 0;
};
// The entries that change nothing in the recipe, in the order of the fields; all entries if there
// is no such recipe.
std::vector<IdleOperand> IdleOperands(const v1::PrecisionSpec& precision);
// Removes them. If several entries have the same effect, one of them stays.
void ClearIdleOperands(v1::PrecisionSpec& precision);

}  // namespace hearth::spec
