#include "common/spec/evaluation/evaluation_table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace hearth::spec {
namespace {

constexpr EvaluationRow kEvaluations[] = {
    {EvaluationKind::kHellaSwag, "hellaswag", "how an everyday scene goes on", true, true},
    {EvaluationKind::kArc, "arc", "science questions of a school", true, true},
    {EvaluationKind::kPiqa, "piqa", "how to reach a goal in the physical world", true, true},
    {EvaluationKind::kMmlu, "mmlu", "exam questions; the choices are letters", true, false},
    {EvaluationKind::kLambada, "lambada", "the last word of a text", false, false},
};

}  // namespace

absl::Span<const EvaluationRow> Evaluations() {
  return kEvaluations;
}

const EvaluationRow* FindEvaluation(std::string_view name) {
  const auto* found = std::find_if(std::begin(kEvaluations), std::end(kEvaluations),
                                   [name](const EvaluationRow& row) { return row.name == name; });
  return found == std::end(kEvaluations) ? nullptr : found;
}

std::vector<std::string_view> EvaluationNames() {
  std::vector<std::string_view> names;
  for (const EvaluationRow& row : kEvaluations) {
    names.push_back(row.name);
  }
  return names;
}

std::string EvaluationText(const v1::EvaluationResult& result) {
  std::string text = absl::StrCat(result.name(), ": ");
  absl::StrAppendFormat(&text, "acc %.4f", result.accuracy());
  if (result.has_accuracy_normalised()) {
    absl::StrAppendFormat(&text, ", acc_norm %.4f", result.accuracy_normalised());
  }
  if (result.has_perplexity()) {
    absl::StrAppendFormat(&text, ", perplexity %.4g", result.perplexity());
  }
  absl::StrAppend(&text, " (", result.items(), " items");
  if (result.cut_items() > 0) {
    absl::StrAppend(&text, ", ", result.cut_items(), " cut");
  }
  return absl::StrCat(text, ")");
}

}  // namespace hearth::spec
