#include "common/spec/objective/objective_table.h"

#include "common/base/table_rows.h"

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
  return FindRow(kObjectives, &ObjectiveRow::name, name);
}

std::vector<std::string_view> ObjectiveNames() {
  return ColumnOf(kObjectives, &ObjectiveRow::name);
}

}  // namespace hearth::spec
