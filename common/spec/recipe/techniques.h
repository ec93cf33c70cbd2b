// Which recipes have which of the parts that precision.techniques switches.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/spec/recipe/recipe.h"
#include "hearth/v1/job.pb.h"

namespace hearth::spec {

// Names of the fields set in `techniques`, to whatever value, of which the recipe is without the
// part: switching it off changes none of the operands of the recipe's row. In the order of the
// message.
std::vector<std::string> IdleTechniques(const Recipe& recipe,
                                        const v1::BlockTechniques& techniques);

// Names of the rows that have the part, in the table's order; `technique` is a field's name. Empty:
// no such field.
std::vector<std::string_view> RecipesWith(std::string_view technique);

// Clears the fields that IdleTechniques() names, and the whole message if none is left.
void DropIdleTechniques(const Recipe& recipe, v1::PrecisionSpec& precision);

}  // namespace hearth::spec
