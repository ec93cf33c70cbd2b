// The table of evaluations: layouts of questions that a model is asked. How an item becomes a
// prompt lives in the engine (worker/trainer/evaluate/layouts.h), keyed by EvaluationKind.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "hearth/v1/step.pb.h"

namespace hearth::spec {

enum class EvaluationKind : uint8_t { kHellaSwag, kArc, kPiqa, kMmlu, kLambada };

struct EvaluationRow {
  EvaluationKind kind;
  std::string_view name;
  std::string_view comment;
  // Multiple choice; false: the last word of a text, by greedy decoding.
  bool choices;
  // Choices differ in length, so log-likelihoods are also compared for each character and byte.
  bool normalised;
};

absl::Span<const EvaluationRow> Evaluations();
const EvaluationRow* FindEvaluation(std::string_view name);
std::vector<std::string_view> EvaluationNames();

// "hellaswag: acc 0.2812, acc_norm 0.3125 (64 items, 2 cut)", for logs, events and tables.
std::string EvaluationText(const v1::EvaluationResult& result);

}  // namespace hearth::spec
