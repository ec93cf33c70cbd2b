#include "worker/trainer/rank/trial/trial_run.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/io/sha256.h"
#include "google/protobuf/text_format.h"
#include "google/protobuf/util/json_util.h"
#include "nlohmann/json.hpp"
#include "worker/trainer/guard/recipe_trial.h"

namespace hearth::trainer {
namespace {

class TrialRunner {
 public:
  TrialRunner(Trainer& trainer, const TrialRunOptions& options)
      : trainer_(trainer), options_(options) {}

  absl::StatusOr<TrialRunResult> Run();

 private:
  // Launches a step if one is to be, collects one if it must.
  absl::Status OneStep();
  void Take(const StepResult& step);
  // The first one ends the run; steps that were in flight then may have others in its wake.
  void NoteProblem(const std::string& problem) {
    if (result_.run.problem().empty()) {
      result_.run.set_problem(problem);
    }
  }
  // No more is launched.
  bool Ending() const { return result_.left || !result_.run.problem().empty(); }

  Trainer& trainer_;
  const TrialRunOptions& options_;
  std::vector<double> losses_;
  TrialRunResult result_;
};

absl::StatusOr<TrialRunResult> TrialRunner::Run() {
  while (trainer_.in_flight() > 0 || (!Ending() && trainer_.step() < options_.steps)) {
    HEARTH_RETURN_IF_ERROR(OneStep());
  }
  // Asked for after the last step's launch there is nothing left to be left.
  result_.left = result_.left && trainer_.step() < options_.steps && result_.run.problem().empty();
  v1::PrecisionTrialRun& run = result_.run;
  const v1::GuardCounts& counts = trainer_.ladder().counts();
  run.set_skipped_steps(counts.non_finite() + counts.spike() + counts.grad_spike());
  run.set_redone_steps(counts.redone_steps());
  if (trainer_.step() < options_.steps) {
    return std::move(result_);
  }
  run.set_training_loss(MeanOfLast(losses_, FinalLossWindow(options_.steps)));
  if (options_.evaluates) {
    HEARTH_ASSIGN_OR_RETURN(const double held_out, trainer_.Evaluate());
    run.set_held_out_loss(held_out);
  }
  return std::move(result_);
}

absl::Status TrialRunner::OneStep() {
  if (!Ending() && trainer_.launched() < options_.steps) {
    HEARTH_RETURN_IF_ERROR(trainer_.Launch(options_.take_control()));
    if (trainer_.in_flight() <= trainer_.lag()) {
      return absl::OkStatus();
    }
  }
  HEARTH_ASSIGN_OR_RETURN(const StepResult step, trainer_.Collect());
  Take(step);
  return absl::OkStatus();
}

void TrialRunner::Take(const StepResult& step) {
  ControlRequests& asked = result_.asked;
  asked.save |= step.control.save;
  asked.pause |= step.control.pause;
  asked.stop |= step.control.stop;
  result_.left = asked.pause || asked.stop;
  if (step.stops) {
    NoteProblem(VerdictText(step.verdict, step.facts, step.step));
    return;
  }
  if (step.verdict == Verdict::kGood) {
    losses_.push_back(step.facts.loss);
  }
  for (const Decision& decision : step.decisions) {
    if (decision.action == Action::kFallback) {
      NoteProblem(DecisionText(decision));
    }
  }
  const int64_t every = std::max<int64_t>(1, options_.steps / 10);
  if (options_.link != nullptr && step.verdict == Verdict::kGood && step.step % every == 0) {
    options_.link->SendLog(
        "info", absl::StrFormat("trial of %s: step %d of %d, loss %.4f", options_.recipe, step.step,
                                options_.steps, step.facts.loss));
  }
}

}  // namespace

std::string TrialMadeWith(const v1::JobSpec& job,
                          int world_size,
                          spec::ShardLevel shard,
                          int64_t micro_batch) {
  // Without what changes no loss: names, checkpoints, the number of workers (the ranks are added
  // below).
  v1::JobSpec what = job;
  what.clear_name();
  what.clear_labels();
  what.clear_checkpoint();
  const std::string device = job.resources().device();
  what.clear_resources();
  what.mutable_resources()->set_device(device);
  std::string text;  // sorts the keys of maps, which the wire format does not
  google::protobuf::TextFormat::PrintToString(what, &text);
  const std::string level(spec::RowOf(shard).name);
  return Sha256Hex(
      absl::StrCat(text, world_size, " ranks, ", level, ", ", micro_batch, " sequences"));
}

absl::StatusOr<TrialRunResult> RunTrial(Trainer& trainer, const TrialRunOptions& options) {
  return TrialRunner(trainer, options).Run();
}

std::string TrialToJson(const v1::PrecisionTrial& trial) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string json;
  const bool printed = google::protobuf::util::MessageToJsonString(trial, &json, options).ok();
  return printed ? json : "{}";
}

absl::StatusOr<std::optional<v1::PrecisionTrial>> TrialOf(const CheckpointMeta& meta) {
  const nlohmann::json extra = nlohmann::json::parse(meta.extra_json, nullptr, false);
  if (!extra.is_object() || !extra.contains("trial")) {
    return std::nullopt;
  }
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  v1::PrecisionTrial trial;
  const auto parsed =
      google::protobuf::util::JsonStringToMessage(extra["trial"].dump(), &trial, options);
  if (!parsed.ok()) {
    return absl::DataLossError(absl::StrCat("the checkpoint's state/meta.json: extra.trial: ",
                                            std::string(parsed.message())));
  }
  return trial;
}

}  // namespace hearth::trainer
