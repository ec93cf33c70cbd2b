#include "common/spec/recipe/head_format.h"

namespace hearth::spec {
namespace {

constexpr HeadFormat kHeadFormats[] = {
    {"bf16", false, [](const Recipe&) { return true; }, "any recipe"},
    {"fp8", true, [](const Recipe& recipe) { return recipe.tensor_scaled(); },
     "a recipe with one scale a tensor"},
};

}  // namespace

const HeadFormat* FindHeadFormat(std::string_view name) {
  for (const HeadFormat& row : kHeadFormats) {
    if (row.name == name) {
      return &row;
    }
  }
  return nullptr;
}

std::vector<std::string_view> HeadFormatNames() {
  std::vector<std::string_view> names;
  for (const HeadFormat& row : kHeadFormats) {
    names.push_back(row.name);
  }
  return names;
}

bool QuantisesHead(const v1::PrecisionSpec& precision) {
  const HeadFormat* row = FindHeadFormat(precision.lm_head());
  return row != nullptr && row->quantised;
}

}  // namespace hearth::spec
