// The table of evaluations: layouts of questions that a model is asked. How an item becomes a
// prompt lives in the engine (worker/trainer/evaluate/layouts.h), keyed by EvaluationKind.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "hearth/v1/job.pb.h"
#include "hearth/v1/step.pb.h"

namespace hearth::spec {

// Models that a job of task: eval reads at most: its record names them with their results.
inline constexpr int kEvaluatedModelsMax = 64;
// Datasets, and sets of questions, on which it evaluates each of them: a report has all results.
inline constexpr int kEvaluatedOnMax = 64;

// train.samples: their number, and what each may ask for and give. A step report has all texts.
inline constexpr int kSamplesMax = 16;
inline constexpr size_t kSamplePromptBytesMax = 4096;
inline constexpr int kSampleTokensMax = 1024;
inline constexpr size_t kSampleTextBytesMax = 8192;
inline constexpr int kStopsMax = 16;
inline constexpr size_t kStopBytesMax = 256;

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
// "/data/web: loss 3.4128, 1.2087 bits per byte (1048576 tokens)".
std::string HeldOutText(const v1::HeldOutLoss& loss);
// What a training job drew from one of its datasets: "/data/web: loss 3.4128, read 0.42 times";
// without the loss where no step has told one.
std::string SourceText(const v1::SourceReport& source);
// `"Once upon a time" + " there was a cat.\nIt" (40 tokens, length)`: prompt and text in one line,
// what is not printable escaped. Long ones are cut and end in "..."; `whole`: none is.
std::string SampleLine(const v1::SampleText& sample, bool whole = false);
// "end", "stop" or "length"; "" = it is not complete.
std::string_view TextEndName(v1::TextEnd end);
// "step 400 of first-run", or the path of a folder.
std::string ModelText(const v1::Checkpoint& model);

// What the evaluations in a report of `job` found, a line each.
std::vector<std::string> ReportTexts(const v1::Job& job, const v1::StepReport& report);
// The texts that a report of a job has, a line each, cut.
std::vector<std::string> SampleTexts(const v1::StepReport& report);
// All results that the job keeps, a line each: the newest of each of train.evaluations, or those of
// each evaluated model.
std::vector<std::string> ResultTexts(const v1::Job& job);

}  // namespace hearth::spec
