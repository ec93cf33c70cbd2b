#include "common/spec/recipe/head_format.h"

#include "common/base/table_rows.h"

namespace hearth::spec {
namespace {

constexpr HeadFormat kHeadFormats[] = {
    {"bf16", false, [](const Recipe&) { return true; }, "any recipe"},
    {"fp8", true, [](const Recipe& recipe) { return recipe.tensor_scaled(); },
     "a recipe with one scale a tensor"},
};

}  // namespace

const HeadFormat* FindHeadFormat(std::string_view name) {
  return FindRow(kHeadFormats, &HeadFormat::name, name);
}

std::vector<std::string_view> HeadFormatNames() {
  return ColumnOf(kHeadFormats, &HeadFormat::name);
}

bool QuantisesHead(const v1::PrecisionSpec& precision) {
  const HeadFormat* row = FindHeadFormat(precision.lm_head());
  return row != nullptr && row->quantised;
}

}  // namespace hearth::spec
