// `hearth-trainer eval --task`: questions of a file.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/dataset/tokenizer.h"
#include "nlohmann/json.hpp"
#include "worker/trainer/cli/evaluate/eval_folder.h"
#include "worker/trainer/cli/verbs.h"
#include "worker/trainer/evaluate/evaluation.h"
#include "worker/trainer/rank/forward_model.h"

namespace hearth::trainer {
namespace {

using Json = nlohmann::ordered_json;

// What models that do not say how much they read get, as in lm-evaluation-harness.
constexpr int64_t kDefaultLength = 2048;
// Samples of several short requests are at least so long where the model allows it.
constexpr int64_t kPackedLength = 512;
// Tokens of a micro-batch that keep a device busy.
constexpr int64_t kTokensOnGpu = 32768;
constexpr int64_t kTokensOnCpu = 2048;

ForwardModelOptions FolderOptions(const EvalOptions& options) {
  ForwardModelOptions folder = EvalFolder(options);
  folder.default_length = kDefaultLength;
  // Requests share samples, and none sees another.
  folder.attention = "document";
  return folder;
}

// Samples no longer than what is asked, as many as keep the device busy and no more than needed.
void Shape(const EvalOptions& options,
           const Evaluation& evaluation,
           int64_t most,
           ForwardModelOptions& folder) {
  constexpr int64_t kMultiple = 64;
  const int64_t longest = std::max(evaluation.longest(), kPackedLength);
  const int64_t length = std::min(most, (longest + kMultiple - 1) / kMultiple * kMultiple);
  int64_t tokens = 0;
  for (const ScoreRequest& request : evaluation.requests()) {
    tokens += static_cast<int64_t>(request.tokens.size());
  }
  const bool on_cpu = options.device == "cpu";
  const int64_t busy = std::max<int64_t>(1, (on_cpu ? kTokensOnCpu : kTokensOnGpu) / length);
  folder.sequence_length = length;
  folder.micro_batch =
      options.micro_batch > 0 ? options.micro_batch : std::min(busy, tokens / length + 1);
}

std::string ToText(const v1::EvaluationResult& result) {
  std::string out = absl::StrFormat("%-12s %-10s %-8s %s\n", "task", "metric", "value", "+-");
  const auto add = [&](const char* metric, double value, bool share) {
    absl::StrAppendFormat(
        &out, "%-12s %-10s %-8.4f %s\n", result.task(), metric, value,
        share ? absl::StrFormat("%.4f", StandardError(value, result.items())) : "-");
  };
  add("acc", result.accuracy(), true);
  if (result.has_accuracy_normalised()) {
    add("acc_norm", result.accuracy_normalised(), true);
    add("acc_bytes", result.accuracy_bytes(), true);
  }
  if (result.has_perplexity()) {
    add("perplexity", result.perplexity(), false);
  }
  return absl::StrCat(out, result.items(), " items, ", result.cut_items(),
                      " of them cut at their beginning\n");
}

std::string ToJson(const v1::EvaluationResult& result) {
  const auto share = [&](bool given, double value) {
    return given ? Json({{"value", value}, {"stderr", StandardError(value, result.items())}})
                 : Json();
  };
  const Json out = {
      {"schema", "hearth.eval/v1"},
      {"task", result.task()},
      {"items", result.items()},
      {"cut_items", result.cut_items()},
      {"acc", share(true, result.accuracy())},
      {"acc_norm", share(result.has_accuracy_normalised(), result.accuracy_normalised())},
      {"acc_bytes", share(result.has_accuracy_bytes(), result.accuracy_bytes())},
      {"perplexity", result.has_perplexity() ? Json(result.perplexity()) : Json()}};
  return out.dump(2) + "\n";
}

}  // namespace

absl::Status EvaluateTask(const EvalOptions& options) {
  Env& env = Env::Real();
  ForwardModelOptions folder = FolderOptions(options);
  HEARTH_ASSIGN_OR_RETURN(const v1::JobSpec spec, ForwardModelSpec(folder, env));
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<dataset::Tokenizer> tokenizer,
                          dataset::OpenTokenizerIn(options.checkpoint));
  EvaluationOptions asked;
  asked.task = options.task;
  asked.items = {options.items, options.limit, options.shots, options.examples};
  asked.context_length = spec.data().sequence_length();
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<Evaluation> evaluation,
                          Evaluation::Open(asked, *tokenizer));
  Shape(options, *evaluation, asked.context_length, folder);
  HEARTH_ASSIGN_OR_RETURN(const ForwardModel model, OpenForwardModel(folder));
  HEARTH_ASSIGN_OR_RETURN(const ScoreBatches batches,
                          ScoreBatches::Place(*model.engine, evaluation->requests()));
  std::vector<Score> scores(evaluation->requests().size());
  for (int64_t i = 0; i < batches.size(); ++i) {
    HEARTH_RETURN_IF_ERROR(batches.Run(*model.engine, Pass{}, i, absl::MakeSpan(scores)));
  }
  const v1::EvaluationResult result = evaluation->Judge(scores);
  if (!options.details.empty()) {
    HEARTH_RETURN_IF_ERROR(env.WriteFileAtomically(options.details, evaluation->Details(scores)));
  }
  std::fputs((options.json ? ToJson(result) : ToText(result)).c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace hearth::trainer
