#include "worker/trainer/evaluate/item_file.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "common/dataset/build/csv_record.h"
#include "common/tokenizer/unicode.h"

namespace hearth::trainer {
namespace {

bool IsCsv(const std::string& path) {
  return absl::EndsWithIgnoreCase(path, ".csv");
}

// Takes a record off the front of `text`, without its line end: a line, in a CSV up to a line end
// outside of quotes. `*line` moves on by the lines it has.
std::string_view TakeRecord(std::string_view& text, bool csv, int64_t* line) {
  bool quoted = false;
  size_t end = 0;
  for (; end < text.size() && (text[end] != '\n' || quoted); ++end) {
    quoted = csv && (text[end] == '"' ? !quoted : quoted);
    *line += text[end] == '\n' ? 1 : 0;
  }
  std::string_view record = text.substr(0, end);
  text.remove_prefix(std::min(text.size(), end + 1));
  *line += 1;
  if (!record.empty() && record.back() == '\r') {
    record.remove_suffix(1);
  }
  return record;
}

// "abstract_algebra" of ".../abstract_algebra_test.csv".
std::string SubjectOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string file = slash == std::string::npos ? path : path.substr(slash + 1);
  absl::string_view name(file);
  name.remove_suffix(4);
  for (const char* split : {"_test", "_val", "_dev"}) {
    if (absl::ConsumeSuffix(&name, split)) {
      break;
    }
  }
  return std::string(name);
}

absl::StatusOr<Question> ParseItem(const Layout& layout,
                                   std::string_view record,
                                   const std::string& place,
                                   const std::string& csv_subject) {
  if (csv_subject.empty()) {
    HEARTH_ASSIGN_OR_RETURN(const nlohmann::json json, tokenizer::ParseCheckedJson(record, place));
    const tokenizer::JsonPlace item(json, place);
    HEARTH_RETURN_IF_ERROR(item.CheckObject());
    return layout.from_json(item);
  }
  if (const size_t bad = tokenizer::FirstInvalidUtf8(record); bad != record.size()) {
    return absl::InvalidArgumentError(absl::StrCat(place, ": byte ", bad, " is not UTF-8"));
  }
  HEARTH_ASSIGN_OR_RETURN(const std::vector<std::string> fields,
                          dataset::ParseCsvRecord(record, place));
  HEARTH_ASSIGN_OR_RETURN(Question question, layout.from_csv(fields, place));
  question.subject = csv_subject;
  return question;
}

absl::StatusOr<std::vector<Question>> ReadItems(const spec::EvaluationRow& row,
                                                const std::string& path,
                                                int64_t limit,
                                                Env& env) {
  const Layout& layout = LayoutOf(row.kind);
  const bool csv = IsCsv(path);
  if (csv && layout.from_csv == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": items of ", std::string(row.name), " are .jsonl"));
  }
  const std::string subject = csv ? SubjectOf(path) : "";
  HEARTH_ASSIGN_OR_RETURN(const std::string text, env.ReadFile(path));
  std::vector<Question> questions;
  std::string_view rest = text;
  int64_t line = 1;
  while (!rest.empty() && (limit == 0 || static_cast<int64_t>(questions.size()) < limit)) {
    const std::string place = absl::StrCat(path, ":", line);
    const std::string_view record = TakeRecord(rest, csv, &line);
    if (record.find_first_not_of(" \t\r") == std::string_view::npos) {
      continue;
    }
    HEARTH_ASSIGN_OR_RETURN(Question question, ParseItem(layout, record, place, subject));
    question.place = place;
    questions.push_back(std::move(question));
  }
  if (questions.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": has no items"));
  }
  return questions;
}

// What stands before the question: the description of its subject and `shots` examples of it.
absl::StatusOr<std::string> Preamble(const Layout& layout,
                                     const std::vector<Question>& examples,
                                     int shots,
                                     const Question& question) {
  std::string text = layout.description == nullptr ? "" : layout.description(question.subject);
  int left = shots;
  for (const Question& example : examples) {
    if (left > 0 && example.subject == question.subject) {
      absl::StrAppend(&text, example.context, " ", example.choices[example.answer], "\n\n");
      --left;
    }
  }
  if (left > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(question.place, ": --shots ", shots, ", but there are only ", shots - left,
                     " examples of subject \"", question.subject, "\""));
  }
  return text;
}

}  // namespace

absl::StatusOr<std::vector<Question>> ReadQuestions(const spec::EvaluationRow& row,
                                                    const ItemFileOptions& options,
                                                    Env& env) {
  const Layout& layout = LayoutOf(row.kind);
  if (options.shots > 0 && layout.description == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("--shots: ", std::string(row.name), " is asked without examples"));
  }
  if ((options.shots > 0) == options.examples.empty()) {
    return absl::InvalidArgumentError("--shots N and --examples FILE go together");
  }
  std::vector<Question> examples;
  if (options.shots > 0) {
    HEARTH_ASSIGN_OR_RETURN(examples, ReadItems(row, options.examples, 0, env));
  }
  HEARTH_ASSIGN_OR_RETURN(std::vector<Question> questions,
                          ReadItems(row, options.path, options.limit, env));
  for (Question& question : questions) {
    HEARTH_ASSIGN_OR_RETURN(const std::string before,
                            Preamble(layout, examples, options.shots, question));
    question.context.insert(0, before);
  }
  return questions;
}

}  // namespace hearth::trainer
