// Which recipes have the parts that precision.techniques can switch off.
#pragma once

#include <string_view>
#include <vector>

#include "common/spec/recipe/recipe.h"

namespace hearth::spec {

// Whether the recipe has the part: switching it off changes an operand of its row. `technique` is a
// field of BlockTechniques; no recipe has another.
bool HasTechnique(const Recipe& recipe, std::string_view technique);

// Names of the rows that have the part, in the table's order.
std::vector<std::string_view> RecipesWith(std::string_view technique);

}  // namespace hearth::spec
