// `hearth-trainer eval --task`: questions of a file.
#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/io/env.h"
#include "nlohmann/json.hpp"
#include "worker/trainer/cli/evaluate/eval_folder.h"
#include "worker/trainer/cli/verbs.h"
#include "worker/trainer/evaluate/evaluation.h"
#include "worker/trainer/rank/evaluation/folder_evaluation.h"

namespace hearth::trainer {
namespace {

using Json = nlohmann::ordered_json;

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
  EvaluationOptions questions;
  questions.task = options.task;
  questions.items = {options.items, options.limit, options.shots, options.examples};
  HEARTH_ASSIGN_OR_RETURN(const Asked asked, AskFolder(EvalFolder(options), questions));
  if (!options.details.empty()) {
    HEARTH_RETURN_IF_ERROR(
        Env::Real().WriteFileAtomically(options.details, asked.evaluation->Details(asked.scores)));
  }
  std::fputs((options.json ? ToJson(asked.result) : ToText(asked.result)).c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace hearth::trainer
