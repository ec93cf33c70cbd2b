#include "common/spec/recipe/forward_recipe.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/spec/violations/text.h"

namespace hearth::spec {
namespace {

bool RunsForward(const Recipe& recipe, std::string_view device_kind, Emulation emulation) {
  const Execution execution = RecipeExecution(recipe, device_kind);
  return !recipe.quantised() &&
         (execution == Execution::kNative ||
          (execution == Execution::kEmulated && emulation == Emulation::kAllowed));
}

}  // namespace

const Recipe& DefaultRecipeOn(std::string_view device_kind) {
  if (RunsForward(PlainRecipe(), device_kind, Emulation::kRefused)) {
    return PlainRecipe();
  }
  for (const Recipe& row : Recipes()) {
    if (RunsForward(row, device_kind, Emulation::kRefused)) {
      return row;
    }
  }
  return Recipes().front();
}

absl::StatusOr<const Recipe*> ForwardRecipe(std::string_view name,
                                            std::string_view device_kind,
                                            Emulation emulation) {
  const Recipe* const recipe = name.empty() ? &DefaultRecipeOn(device_kind) : FindRecipe(name);
  if (recipe != nullptr && RunsForward(*recipe, device_kind, emulation)) {
    return recipe;
  }
  const std::vector<std::string_view> fitting =
      RecipeNames([&](const Recipe& row) { return RunsForward(row, device_kind, emulation); });
  std::string text;
  for (const std::string_view fits : fitting) {
    text += Text(text.empty() ? "" : " or ", fits);
  }
  return absl::InvalidArgumentError(
      Text("recipe \"", name, "\": must be ", text, " on ", device_kind,
           ": a model that is only read has plain weights, which nothing quantises"));
}

}  // namespace hearth::spec
