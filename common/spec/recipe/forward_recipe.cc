#include "common/spec/recipe/forward_recipe.h"

#include <string>

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

// The row `name`, or the default, where it `fits`; else an error that names those that do, and why.
template <typename Fits>
absl::StatusOr<const Recipe*> Choose(std::string_view name,
                                     std::string_view device_kind,
                                     Fits fits,
                                     std::string_view why) {
  const Recipe* const recipe = name.empty() ? &DefaultRecipeOn(device_kind) : FindRecipe(name);
  if (recipe != nullptr && fits(*recipe)) {
    return recipe;
  }
  std::string text;
  for (const std::string_view row : RecipeNames(fits)) {
    text += Text(text.empty() ? "" : " or ", row);
  }
  return absl::InvalidArgumentError(
      Text("recipe \"", name, "\": must be ", text, " on ", device_kind, ": ", why));
}

bool ScalesHold(const Recipe& recipe, std::string_view device_kind) {
  return recipe.tensor_scaled() && recipe.delayed() &&
         RecipeExecution(recipe, device_kind) != Execution::kNone;
}

bool WritesTexts(const Recipe& recipe, std::string_view device_kind) {
  return RunsForward(recipe, device_kind, Emulation::kRefused) || ScalesHold(recipe, device_kind);
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
  return Choose(
      name, device_kind,
      [&](const Recipe& row) { return RunsForward(row, device_kind, emulation); },
      "a model that is only read has plain weights, which nothing quantises");
}

absl::StatusOr<const Recipe*> GenerationRecipe(std::string_view name,
                                               std::string_view device_kind) {
  return Choose(
      name, device_kind, [device_kind](const Recipe& row) { return WritesTexts(row, device_kind); },
      "what a text's numbers are scaled with must not depend on the texts beside it");
}

std::vector<std::string_view> GenerationRecipeNames(std::string_view device_kind) {
  return RecipeNames([device_kind](const Recipe& row) { return WritesTexts(row, device_kind); });
}

}  // namespace hearth::spec
