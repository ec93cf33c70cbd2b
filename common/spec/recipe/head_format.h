// Formats of the output projection (precision.lm_head).
#pragma once

#include <string_view>
#include <vector>

#include "common/spec/recipe/recipe.h"
#include "hearth/v1/job.pb.h"

namespace hearth::spec {

struct HeadFormat {
  std::string_view name;
  // The recipe's operands are its operands too; else it stays in the format of activations.
  bool quantised = false;
  // Which recipes it goes with, and the same as words: "a recipe with one scale a tensor".
  bool (*fits)(const Recipe& recipe) = nullptr;
  std::string_view needs;
};

// nullptr when there is none of that name.
const HeadFormat* FindHeadFormat(std::string_view name);
// In the order of the help text.
std::vector<std::string_view> HeadFormatNames();

// Whether a quantised recipe quantises the output projection too.
bool QuantisesHead(const v1::PrecisionSpec& precision);

}  // namespace hearth::spec
