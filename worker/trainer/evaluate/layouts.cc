#include "worker/trainer/evaluate/layouts.h"

#include <algorithm>
#include <cctype>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/status_macros.h"
#include "worker/trainer/evaluate/prompt_text.h"

namespace hearth::trainer {
namespace {

using spec::EvaluationKind;
using tokenizer::JsonPlace;

constexpr std::string_view kLetters[] = {"A", "B", "C", "D"};

// The index of the right choice: a number, or text that is one.
absl::StatusOr<size_t> Index(const JsonPlace& label) {
  int64_t index = -1;
  const nlohmann::json& value = label.value();
  if (value.is_number_integer()) {
    index = value.get<int64_t>();
  } else if (!value.is_string() || !absl::SimpleAtoi(value.get<std::string>(), &index)) {
    return label.Error("is not the number of a choice");
  }
  if (index < 0) {
    return label.Error("is not the number of a choice");
  }
  return static_cast<size_t>(index);
}

// What every question must be.
absl::StatusOr<Question> Checked(Question question, const JsonPlace& item) {
  for (size_t i = 0; i < question.choices.size(); ++i) {
    if (question.choices[i].empty()) {
      return item.Error(absl::StrCat("choice ", i, " is empty"));
    }
  }
  if (question.answer >= question.choices.size()) {
    return item.Error(absl::StrCat("the answer is choice ", question.answer, " of ",
                                   question.choices.size(), ", counted from 0"));
  }
  return question;
}

absl::StatusOr<std::vector<std::string>> Strings(const JsonPlace& list) {
  HEARTH_RETURN_IF_ERROR(list.CheckArray());
  std::vector<std::string> strings;
  for (size_t i = 0; i < list.value().size(); ++i) {
    HEARTH_ASSIGN_OR_RETURN(std::string text, list.At(i).String());
    strings.push_back(std::move(text));
  }
  return strings;
}

// HellaSwag's own clean-up: "[...]" are artifacts of WikiHow, and [title] ends a sentence there.
std::string CleanScene(std::string_view text) {
  const std::string titled = absl::StrReplaceAll(std::string(Strip(text)), {{" [title]", ". "}});
  std::string out;
  for (size_t i = 0; i < titled.size(); ++i) {
    const size_t close = titled[i] == '[' ? titled.find_first_of("]\n", i) : std::string::npos;
    if (close != std::string::npos && titled[close] == ']') {
      i = close;
    } else {
      out.push_back(titled[i]);
    }
  }
  return absl::StrReplaceAll(out, {{"  ", " "}});
}

absl::StatusOr<Question> HellaSwag(const JsonPlace& item) {
  Question question;
  HEARTH_ASSIGN_OR_RETURN(const std::string activity, item.At("activity_label").String());
  HEARTH_ASSIGN_OR_RETURN(const std::string first, item.At("ctx_a").String());
  HEARTH_ASSIGN_OR_RETURN(const std::string second, item.At("ctx_b").String());
  HEARTH_ASSIGN_OR_RETURN(question.choices, Strings(item.At("endings")));
  HEARTH_ASSIGN_OR_RETURN(question.answer, Index(item.At("label")));
  question.context = CleanScene(absl::StrCat(activity, ": ", first, " ", Capitalize(second)));
  for (std::string& choice : question.choices) {
    choice = CleanScene(choice);
  }
  return Checked(std::move(question), item);
}

std::string QuestionText(const std::string& question) {
  return absl::StrCat("Question: ", question, "\nAnswer:");
}

// {"question": "...", "choices": {"text": [...], "label": [...]}} as on the Hugging Face hub, or
// {"question": {"stem": "...", "choices": [{"text", "label"}, ...]}} as AI2 published it.
absl::StatusOr<Question> Arc(const JsonPlace& item) {
  Question question;
  std::vector<std::string> labels;
  std::string text;
  const JsonPlace asked = item.At("question");
  if (asked.value().is_object()) {
    HEARTH_ASSIGN_OR_RETURN(text, asked.At("stem").String());
    const JsonPlace choices = asked.At("choices");
    HEARTH_RETURN_IF_ERROR(choices.CheckArray());
    for (size_t i = 0; i < choices.value().size(); ++i) {
      HEARTH_RETURN_IF_ERROR(choices.At(i).CheckObject());
      HEARTH_ASSIGN_OR_RETURN(std::string choice, choices.At(i).At("text").String());
      HEARTH_ASSIGN_OR_RETURN(std::string label, choices.At(i).At("label").String());
      question.choices.push_back(std::move(choice));
      labels.push_back(std::move(label));
    }
  } else {
    HEARTH_ASSIGN_OR_RETURN(text, asked.String());
    const JsonPlace choices = item.At("choices");
    HEARTH_RETURN_IF_ERROR(choices.CheckObject());
    HEARTH_ASSIGN_OR_RETURN(question.choices, Strings(choices.At("text")));
    HEARTH_ASSIGN_OR_RETURN(labels, Strings(choices.At("label")));
  }
  HEARTH_ASSIGN_OR_RETURN(const std::string key, item.At("answerKey").String());
  const auto found = std::find(labels.begin(), labels.end(), key);
  if (found == labels.end() || labels.size() != question.choices.size()) {
    return item.At("answerKey").Error(absl::StrCat("\"", key, "\" is the label of no choice"));
  }
  question.context = QuestionText(text);
  question.answer = static_cast<size_t>(found - labels.begin());
  return Checked(std::move(question), item);
}

absl::StatusOr<Question> Piqa(const JsonPlace& item) {
  Question question;
  HEARTH_ASSIGN_OR_RETURN(const std::string goal, item.At("goal").String());
  question.choices.resize(2);
  HEARTH_ASSIGN_OR_RETURN(question.choices[0], item.At("sol1").String());
  HEARTH_ASSIGN_OR_RETURN(question.choices[1], item.At("sol2").String());
  HEARTH_ASSIGN_OR_RETURN(question.answer, Index(item.At("label")));
  question.context = QuestionText(goal);
  return Checked(std::move(question), item);
}

// The four texts are part of the context; what is scored is a letter.
Question Letters(std::string_view asked, const std::vector<std::string>& texts) {
  Question question;
  question.context = std::string(Strip(asked));
  for (size_t i = 0; i < std::size(kLetters); ++i) {
    absl::StrAppend(&question.context, "\n", std::string(kLetters[i]), ". ", texts[i]);
    question.choices.emplace_back(kLetters[i]);
  }
  absl::StrAppend(&question.context, "\nAnswer:");
  return question;
}

absl::Status CheckFour(const std::vector<std::string>& texts, const JsonPlace& item) {
  if (texts.size() != std::size(kLetters)) {
    return item.Error(absl::StrCat("has ", texts.size(), " choices, not 4"));
  }
  for (size_t i = 0; i < texts.size(); ++i) {
    if (texts[i].empty()) {
      return item.Error(absl::StrCat("choice ", i, " is empty"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Question> Mmlu(const JsonPlace& item) {
  HEARTH_ASSIGN_OR_RETURN(const std::string asked, item.At("question").String());
  HEARTH_ASSIGN_OR_RETURN(const std::vector<std::string> texts, Strings(item.At("choices")));
  HEARTH_RETURN_IF_ERROR(CheckFour(texts, item));
  Question question = Letters(asked, texts);
  HEARTH_ASSIGN_OR_RETURN(question.answer, Index(item.At("answer")));
  if (const JsonPlace subject = item.At("subject"); !subject.IsNull()) {
    HEARTH_ASSIGN_OR_RETURN(question.subject, subject.String());
  }
  return Checked(std::move(question), item);
}

// question,A,B,C,D,answer without a header, a file a subject: abstract_algebra_test.csv.
absl::StatusOr<Question> MmluCsv(const std::vector<std::string>& fields, const std::string& place) {
  const nlohmann::json none;
  const JsonPlace item(none, place);
  if (fields.size() != 6) {
    return item.Error(absl::StrCat("has ", fields.size(), " fields, not 6"));
  }
  const std::vector<std::string> texts(fields.begin() + 1, fields.begin() + 5);
  HEARTH_RETURN_IF_ERROR(CheckFour(texts, item));
  Question question = Letters(fields[0], texts);
  const auto* found = std::find(std::begin(kLetters), std::end(kLetters), fields[5]);
  if (found == std::end(kLetters)) {
    return item.Error(absl::StrCat("the answer \"", fields[5], "\" is not A, B, C or D"));
  }
  question.answer = static_cast<size_t>(found - std::begin(kLetters));
  return question;
}

std::string MmluDescription(const std::string& subject) {
  return subject.empty()
             ? ""
             : absl::StrCat("The following are multiple choice questions (with answers) about ",
                            absl::StrReplaceAll(subject, {{"_", " "}}), ".\n\n");
}

absl::StatusOr<Question> Lambada(const JsonPlace& item) {
  HEARTH_ASSIGN_OR_RETURN(const std::string text, item.At("text").String());
  Question question;
  const size_t space = text.rfind(' ');
  question.context = space == std::string::npos ? "" : text.substr(0, space);
  question.choices = {space == std::string::npos ? text : text.substr(space + 1)};
  return Checked(std::move(question), item);
}

constexpr Layout kLayouts[] = {
    {EvaluationKind::kHellaSwag, HellaSwag, nullptr, nullptr},
    {EvaluationKind::kArc, Arc, nullptr, nullptr},
    {EvaluationKind::kPiqa, Piqa, nullptr, nullptr},
    {EvaluationKind::kMmlu, Mmlu, MmluCsv, MmluDescription},
    {EvaluationKind::kLambada, Lambada, nullptr, nullptr},
};

}  // namespace

const Layout& LayoutOf(EvaluationKind kind) {
  const auto* found = std::find_if(std::begin(kLayouts), std::end(kLayouts),
                                   [kind](const Layout& layout) { return layout.kind == kind; });
  HEARTH_CHECK(found != std::end(kLayouts), "every row of the table has a layout");
  return *found;
}

}  // namespace hearth::trainer
