// How an item of each task becomes a prompt and its continuations, as the tasks of
// lm-evaluation-harness have it (docs/evaluation.md has the table).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/spec/evaluation/evaluation_table.h"
#include "common/tokenizer/checked_json.h"

namespace hearth::trainer {

// A question, or a text with a last word.
struct Question {
  std::string place;    // "file:line", for errors
  std::string subject;  // mmlu: as the item says, "" = it says none
  std::string context;  // without what examples and descriptions put before it
  // What may follow the context, without the space between; for a text only its last word.
  std::vector<std::string> choices;
  // What is shown of the right choice in an example, behind a space: choices[answer].
  size_t answer = 0;
};

struct Layout {
  spec::EvaluationKind kind;
  // kInvalidArgument with the item's place and key: a key is missing or of a wrong type, a choice
  // is empty, there is no such answer.
  absl::StatusOr<Question> (*from_json)(const tokenizer::JsonPlace& item);
  // From the fields of a CSV record; null: the task has no such layout.
  absl::StatusOr<Question> (*from_csv)(const std::vector<std::string>& fields,
                                       const std::string& place);
  // Put before the examples and the question about `subject`; null: nothing.
  std::string (*description)(const std::string& subject);
};

const Layout& LayoutOf(spec::EvaluationKind kind);

}  // namespace hearth::trainer
