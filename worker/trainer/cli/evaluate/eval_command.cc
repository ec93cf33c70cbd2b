#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "nlohmann/json.hpp"
#include "worker/trainer/checkpoint/hf_model.h"
#include "worker/trainer/cli/evaluate/eval_folder.h"
#include "worker/trainer/cli/verbs.h"
#include "worker/trainer/evaluate/source_loss.h"
#include "worker/trainer/rank/evaluation/folder_evaluation.h"

namespace hearth::trainer {
namespace {

using Json = nlohmann::ordered_json;

struct Measured {
  std::string path;  // or "all"
  SourceLoss loss;
};

std::string ToText(const std::vector<Measured>& all) {
  std::string out = absl::StrFormat("%-9s %-11s %-8s %-12s %-12s %s\n", "loss", "perplexity",
                                    "bits/B", "tokens", "bytes", "data");
  for (const Measured& measured : all) {
    const SourceLoss& loss = measured.loss;
    const std::optional<double> bits = loss.BitsPerByte();
    absl::StrAppendFormat(&out, "%-9.6f %-11.4f %-8s %-12d %-12s %s\n", loss.MeanLoss(),
                          loss.Perplexity(),
                          bits.has_value() ? absl::StrFormat("%.4f", *bits) : "-", loss.tokens,
                          loss.bytes.has_value() ? absl::StrCat(*loss.bytes) : "-", measured.path);
  }
  return out;
}

Json ToJson(const SourceLoss& loss) {
  const std::optional<double> bits = loss.BitsPerByte();
  return {{"loss", loss.MeanLoss()},
          {"perplexity", loss.Perplexity()},
          {"bits_per_byte", bits.has_value() ? Json(*bits) : Json()},
          {"tokens", loss.tokens},
          {"bytes", loss.bytes.has_value() ? Json(*loss.bytes) : Json()}};
}

std::string ToJson(const std::vector<Measured>& sources, const SourceLoss& all) {
  Json out = {{"schema", "hearth.eval/v1"}, {"sources", Json::array()}, {"all", ToJson(all)}};
  for (const Measured& measured : sources) {
    Json source = {{"path", measured.path}};
    source.update(ToJson(measured.loss));
    out["sources"].push_back(std::move(source));
  }
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

absl::Status EvaluateData(const EvalOptions& options) {
  FolderEvaluationOptions evaluation = EvalFolder(options);
  if (options.verify) {
    evaluation.verify = VerifyFiles;
  }
  HEARTH_ASSIGN_OR_RETURN(const std::vector<SourceLoss> losses,
                          MeasureFolder(evaluation, options.data, options.batches));
  std::vector<Measured> sources;
  SourceLoss all;
  all.bytes = 0;
  for (size_t i = 0; i < losses.size(); ++i) {
    sources.push_back({options.data[i], losses[i]});
    all.Add(losses[i]);
  }
  if (options.json) {
    std::fputs(ToJson(sources, all).c_str(), stdout);
    return absl::OkStatus();
  }
  if (sources.size() > 1) {
    sources.push_back({"all", all});
  }
  std::fputs(ToText(sources).c_str(), stdout);
  return absl::OkStatus();
}

absl::Status Evaluate(const EvalOptions& options) {
  if (options.task.empty() == options.data.empty()) {
    return absl::InvalidArgumentError("--data or --task: one of them says what to evaluate on");
  }
  if (options.verify) {
    HEARTH_ASSIGN_OR_RETURN(const std::vector<RecordedFile> files,
                            RecordedModelFiles(Env::Real(), options.checkpoint, options.choice));
    HEARTH_RETURN_IF_ERROR(VerifyFiles(files));
  }
  return options.task.empty() ? EvaluateData(options) : EvaluateTask(options);
}

}  // namespace

int EvalCommand(const EvalOptions& options) {
  return ExitCodeOf(Evaluate(options));
}

}  // namespace hearth::trainer
