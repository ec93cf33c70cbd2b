#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "tests/fuzz/scratch.h"
#include "tests/fuzz/targets.h"
#include "worker/trainer/evaluate/item_file.h"
#include "worker/trainer/evaluate/prompt_text.h"

namespace hearth::fuzz {

// A file of items; the first byte says of which task, and whether as CSV.
bool EvaluationItems(std::string_view bytes) {
  if (bytes.empty()) {
    return false;
  }
  const auto rows = spec::Evaluations();
  const auto choice = static_cast<unsigned char>(bytes.front());
  const char* const ending = choice / rows.size() % 2 == 0 ? ".jsonl" : "_test.csv";
  trainer::ItemFileOptions options;
  options.path = ScratchFile(absl::StrCat("items", ending), bytes.substr(1));
  const auto questions = trainer::ReadQuestions(rows[choice % rows.size()], options, Env::Real());
  if (!questions.ok()) {
    return false;
  }
  for (const trainer::Question& question : *questions) {
    HEARTH_CHECK(question.answer < question.choices.size(), "the answer is a choice");
    HEARTH_CHECK(trainer::TrailingSpace(question.context) <= question.context.size(),
                 "white space is part of the text");
    for (const std::string& text : question.choices) {
      HEARTH_CHECK(trainer::Characters(text) > 0, "no choice is empty");
    }
  }
  return true;
}

}  // namespace hearth::fuzz
