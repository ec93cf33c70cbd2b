#include "common/spec/evaluation/evaluation_table.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/clip_text.h"

namespace hearth::spec {
namespace {

constexpr EvaluationRow kEvaluations[] = {
    {EvaluationKind::kHellaSwag, "hellaswag", "how an everyday scene goes on", true, true},
    {EvaluationKind::kArc, "arc", "science questions of a school", true, true},
    {EvaluationKind::kPiqa, "piqa", "how to reach a goal in the physical world", true, true},
    {EvaluationKind::kMmlu, "mmlu", "exam questions; the choices are letters", true, false},
    {EvaluationKind::kLambada, "lambada", "the last word of a text", false, false},
};

// Bytes of a prompt and of a text that a line shows.
constexpr size_t kPromptShown = 60;
constexpr size_t kTextShown = 200;

std::string Quoted(const std::string& text, size_t most) {
  const std::string_view shown = ClipBytes(text, most);
  return absl::StrCat("\"", absl::Utf8SafeCEscape({shown.data(), shown.size()}),
                      shown.size() < text.size() ? "...\"" : "\"");
}

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

std::string HeldOutText(const v1::HeldOutLoss& loss) {
  std::string text = absl::StrCat(loss.source(), ": ");
  absl::StrAppendFormat(&text, "loss %.4f", loss.loss());
  if (loss.has_bits_per_byte()) {
    absl::StrAppendFormat(&text, ", %.4f bits per byte", loss.bits_per_byte());
  }
  return absl::StrCat(text, " (", loss.tokens(), " tokens)");
}

std::string SourceText(const v1::SourceReport& source) {
  std::string text = absl::StrCat(source.source(), ": ");
  if (source.has_loss()) {
    absl::StrAppendFormat(&text, "loss %.4f, ", source.loss());
  }
  absl::StrAppendFormat(&text, "read %.2f times", source.passes());
  return text;
}

std::string_view TextEndName(v1::TextEnd end) {
  switch (end) {
    case v1::TEXT_END_TOKEN:
      return "end";
    case v1::TEXT_END_STOP:
      return "stop";
    case v1::TEXT_END_LENGTH:
      return "length";
    default:
      return "";
  }
}

std::string SampleLine(const v1::SampleText& sample, bool whole) {
  const size_t all = std::string::npos;
  const std::string_view end = TextEndName(sample.end());
  return absl::StrCat(Quoted(sample.prompt(), whole ? all : kPromptShown), " + ",
                      Quoted(sample.text(), whole ? all : kTextShown), " (", sample.tokens(),
                      " tokens, ", absl::string_view(end.data(), end.size()), ")");
}

std::string ModelText(const v1::Checkpoint& model) {
  return model.job_id().empty() ? model.path()
                                : absl::StrCat("step ", model.step(), " of ", model.job_id());
}

std::vector<std::string> ReportTexts(const v1::Job& job, const v1::StepReport& report) {
  const bool of_model = report.step() >= 1 && report.step() <= job.models_size();
  const std::string what =
      of_model ? ModelText(job.models(static_cast<int>(report.step() - 1)).checkpoint())
               : absl::StrCat("step ", report.step());
  std::vector<std::string> texts;
  for (const v1::HeldOutLoss& loss : report.held_out()) {
    texts.push_back(absl::StrCat(what, ": ", HeldOutText(loss)));
  }
  for (const v1::EvaluationResult& result : report.evaluations()) {
    texts.push_back(absl::StrCat(what, ": ", EvaluationText(result)));
  }
  return texts;
}

std::vector<std::string> SampleTexts(const v1::StepReport& report) {
  std::vector<std::string> texts;
  for (const v1::SampleText& sample : report.samples()) {
    texts.push_back(absl::StrCat("step ", sample.step(), ": ", SampleLine(sample)));
  }
  return texts;
}

std::vector<std::string> ResultTexts(const v1::Job& job) {
  std::vector<std::string> texts;
  for (const v1::EvaluatedModel& model : job.models()) {
    const std::string what = ModelText(model.checkpoint());
    for (const v1::HeldOutLoss& loss : model.held_out()) {
      texts.push_back(absl::StrCat(what, ": ", HeldOutText(loss)));
    }
    for (const v1::EvaluationResult& result : model.evaluations()) {
      texts.push_back(absl::StrCat(what, ": ", EvaluationText(result)));
    }
  }
  if (job.models().empty()) {
    for (const v1::EvaluationResult& result : job.last_report().evaluations()) {
      texts.push_back(absl::StrCat(EvaluationText(result), ", after step ", result.step()));
    }
  }
  return texts;
}

}  // namespace hearth::spec
