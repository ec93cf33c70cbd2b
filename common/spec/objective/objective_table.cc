#include "common/spec/objective/objective_table.h"

namespace hearth::spec {
namespace {

constexpr ObjectiveRow kObjectives[] = {
    {ObjectiveKind::kPretrain, "pretrain", "predict each next token; every token weighs 1", false,
     "concat", "causal"},
    {ObjectiveKind::kSft, "sft",
     "supervised fine-tuning; the tokens that the loss mask names count", true, "best_fit",
     "document"},
};

}  // namespace

absl::Span<const ObjectiveRow> Objectives() {
  return kObjectives;
}

const ObjectiveRow* FindObjective(std::string_view name) {
  for (const ObjectiveRow& row : kObjectives) {
    if (row.name == name) {
      return &row;
    }
  }
  return nullptr;
}

std::vector<std::string_view> ObjectiveNames() {
  std::vector<std::string_view> names;
  for (const ObjectiveRow& row : kObjectives) {
    names.push_back(row.name);
  }
  return names;
}

}  // namespace hearth::spec
