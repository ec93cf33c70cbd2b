// The default recipe of a job, and the recipe of a model that is only run forward.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/spec/recipe/recipe.h"

namespace hearth::spec {

// The plain recipe where the device ("cpu", "cuda") runs it natively, else the first row that does
// not quantise and that the device runs natively. On an unknown device kind the table's first row.
const Recipe& DefaultRecipeOn(std::string_view device_kind);

// Whether a recipe that the device only emulates is accepted.
enum class Emulation : uint8_t { kRefused, kAllowed };

// The row `name`, or the default where it is empty. kInvalidArgument: no such row, one that
// quantises, or one that the device does not run (natively, if emulation is refused); the text
// names the rows that would do.
absl::StatusOr<const Recipe*> ForwardRecipe(std::string_view name,
                                            std::string_view device_kind,
                                            Emulation emulation);

// The same for a model that writes texts: a row that ForwardRecipe takes, not emulated; or one
// whose scales of tensors are known before their values, so that they can be measured once and hold
// for every text. That one may be emulated.
absl::StatusOr<const Recipe*> GenerationRecipe(std::string_view name, std::string_view device_kind);
// The names that GenerationRecipe takes on the device, in the table's order.
std::vector<std::string_view> GenerationRecipeNames(std::string_view device_kind);

}  // namespace hearth::spec
