#include "worker/trainer/rank/evaluation/eval_run.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/base/status_macros.h"
#include "common/fault/fault.h"
#include "common/io/verified_files.h"
#include "common/spec/evaluation/evaluation_table.h"
#include "common/spec/model/model_shape.h"
#include "common/spec/plan/parameter_table.h"
#include "common/spec/recipe/recipe.h"
#include "worker/trainer/checkpoint/hf_model.h"
#include "worker/trainer/device/rank_device.h"
#include "worker/trainer/rank/controls.h"
#include "worker/trainer/rank/evaluation/folder_evaluation.h"
#include "worker/trainer/rank/rank_context.h"
#include "worker/trainer/rank/report_parts.h"

namespace hearth::trainer {
namespace {

// For the step thread only. To the hang watch a micro-batch is what a step is in training: each of
// one dataset or file of questions takes about as long as those before it.
class EvalRun {
 public:
  explicit EvalRun(const RankOptions& options)
      : rank_(options),
        controls_(*options.link, options.signals),
        verifier_(options.verified_folder,
                  std::clamp(options.link->task().threads(), 1, 4),
                  *options.env,
                  *options.clock),
        evaluate_(rank_.spec.evaluate()),
        done_(rank_.task.resume_step()) {}

  v1::TrainerExit Run() {
    const absl::Status status = EvaluateAll();
    v1::TrainerExit exit;
    exit.set_reason(left_.has_value() ? *left_
                    : status.ok()     ? v1::EXIT_REASON_FINISHED
                                      : rank_.blame);
    if (!left_.has_value()) {
      exit.set_device_too_small(IsDeviceTooSmall(status));
      exit.set_message(std::string(status.message()));
    }
    exit.set_step(done_);
    SetTime(*exit.mutable_time(), rank_.clock.Now());
    if (!status.ok() && !left_.has_value()) {
      rank_.link.SendLog("error", std::string(status.message()));
    }
    rank_.link.SendExit(exit);
    HEARTH_FAULT_POINT("trainer.before_exit");
    return exit;
  }

 private:
  absl::Status EvaluateAll() {
    HEARTH_RETURN_IF_ERROR(fault::Check("trainer.start"));
    rank_.link.SendPhase("loading");
    HEARTH_RETURN_IF_ERROR(TryDevice());
    rank_.blame = v1::EXIT_REASON_BAD_DATA;
    const int models = rank_.task.models_size();
    if (done_ < models) {
      HEARTH_RETURN_IF_ERROR(Announce(rank_.task.models(static_cast<int>(done_))));
    }
    rank_.link.SendPhase("evaluating");
    while (done_ < models) {
      HEARTH_RETURN_IF_ERROR(Leave());
      HEARTH_RETURN_IF_ERROR(fault::Check("trainer.evaluate"));
      v1::StepReport report;
      HEARTH_RETURN_IF_ERROR(EvaluateModel(rank_.task.models(static_cast<int>(done_)), report));
      ++done_;
      rank_.link.SendStep(report);
      rank_.link.SendProgress(done_, 0);
    }
    return absl::OkStatus();
  }

  // Each part of an evaluation opens the device for itself; here so that a run without its device
  // ends before it reads anything.
  absl::Status TryDevice() {
    rank_.blame = v1::EXIT_REASON_DEVICE;
    return absl::StartsWith(rank_.task.device(), "cuda")
               ? OpenGpu(rank_.task.device(), /*deterministic=*/false).status()
               : absl::OkStatus();
  }

  FolderEvaluationOptions OptionsFor(const v1::Checkpoint& model) {
    FolderEvaluationOptions options;
    options.folder.path = model.path();
    options.folder.weights =
        evaluate_.ema() ? weights::WeightChoice::kEma : weights::WeightChoice::kStep;
    options.folder.device = rank_.task.device();
    options.folder.sequence_length = evaluate_.sequence_length();
    options.folder.threads = rank_.task.threads();
    options.folder.micro_batch_name = "evaluate.batch";
    options.folder.blame = &rank_.blame;
    options.micro_batch = evaluate_.batch();
    options.verify = [this](const std::vector<RecordedFile>& files) {
      return verifier_.Verify(files);
    };
    options.before_batch = [this] {
      EndBatch();
      HEARTH_RETURN_IF_ERROR(Leave());
      BeginBatch();
      return absl::OkStatus();
    };
    options.before_part = [this] { BeginPart(); };
    return options;
  }

  // What follows reads files, and has batches of a size of its own.
  void BeginPart() {
    batch_start_.reset();
    batches_ = 0;
    rank_.pulse.Restart(done_);
    rank_.pulse.Begin(Activity::kOther, "reading the files of an evaluation");
  }

  void BeginBatch() {
    // The first may choose plans for its shapes.
    rank_.pulse.Begin(batches_++ == 0 ? Activity::kPreparing : Activity::kEvaluation,
                      "a batch of an evaluation");
    batch_start_ = rank_.clock.Monotonic();
  }

  void EndBatch() {
    if (batch_start_.has_value()) {
      rank_.pulse.StepDone(done_, rank_.clock.Monotonic() - *batch_start_);
      batch_start_.reset();
    }
  }

  // Says what the first model is; the others may differ.
  absl::Status Announce(const v1::Checkpoint& model) {
    HEARTH_ASSIGN_OR_RETURN(const v1::JobSpec spec,
                            ForwardModelSpec(OptionsFor(model).folder, rank_.env));
    HEARTH_ASSIGN_OR_RETURN(const spec::ModelShape shape,
                            spec::ResolveModelShape(spec.model(), spec.data().sequence_length()));
    const bool on_gpu = absl::StartsWith(rank_.task.device(), "cuda");
    v1::RunInfo info;
    info.set_parameters(spec::CountParameters(shape));
    info.set_world_size(1);
    info.set_recipe(spec.precision().recipe());
    info.set_recipe_execution(std::string(spec::ExecutionName(spec::RecipeExecution(
        *spec::FindRecipe(spec.precision().recipe()), on_gpu ? "cuda" : "cpu"))));
    info.set_deterministic(!on_gpu);
    info.set_comm("none");
    info.set_start_step(done_);
    info.set_device(rank_.task.device());
    rank_.link.SendRunInfo(info);
    return absl::OkStatus();
  }

  absl::Status EvaluateModel(const v1::Checkpoint& model, v1::StepReport& report) {
    const absl::Duration start = rank_.clock.Monotonic();
    const FolderEvaluationOptions options = OptionsFor(model);
    rank_.blame = v1::EXIT_REASON_BAD_DATA;
    HEARTH_ASSIGN_OR_RETURN(const std::vector<RecordedFile> files,
                            RecordedModelFiles(rank_.env, model.path(), options.folder.weights));
    HEARTH_RETURN_IF_ERROR(verifier_.Verify(files));
    if (!evaluate_.data().empty()) {
      HEARTH_RETURN_IF_ERROR(Measure(options, report));
    }
    for (int i = 0; i < evaluate_.questions_size(); ++i) {
      HEARTH_RETURN_IF_ERROR(Ask(options, i, model, report));
    }
    const double seconds = absl::ToDoubleSeconds(rank_.clock.Monotonic() - start);
    report.set_step(done_ + 1);
    report.set_epoch(rank_.task.epoch());
    report.set_step_seconds(seconds);
    report.set_memory_bytes(ResidentBytes());
    SetTime(*report.mutable_time(), rank_.clock.Now());
    for (const v1::HeldOutLoss& loss : report.held_out()) {
      Say(model, spec::HeldOutText(loss));
    }
    for (const v1::EvaluationResult& result : report.evaluations()) {
      Say(model, spec::EvaluationText(result));
    }
    return absl::OkStatus();
  }

  absl::Status Measure(const FolderEvaluationOptions& options, v1::StepReport& report) {
    const std::vector<std::string> datasets(evaluate_.data().begin(), evaluate_.data().end());
    HEARTH_ASSIGN_OR_RETURN(const std::vector<SourceLoss> losses,
                            MeasureFolder(options, datasets, evaluate_.batches(), rank_.env));
    BeginPart();
    SourceLoss all;
    all.bytes = 0;
    for (size_t i = 0; i < losses.size(); ++i) {
      v1::HeldOutLoss& loss = *report.add_held_out();
      loss.set_source(datasets[i]);
      loss.set_loss(losses[i].MeanLoss());
      if (const std::optional<double> bits = losses[i].BitsPerByte(); bits.has_value()) {
        loss.set_bits_per_byte(*bits);
      }
      loss.set_tokens(losses[i].tokens);
      all.Add(losses[i]);
    }
    report.set_validation_loss(all.MeanLoss());
    return absl::OkStatus();
  }

  absl::Status Ask(const FolderEvaluationOptions& options,
                   int index,
                   const v1::Checkpoint& model,
                   v1::StepReport& report) {
    const v1::QuestionsSpec& wanted = evaluate_.questions(index);
    EvaluationOptions questions;
    questions.task = wanted.task();
    questions.name = wanted.name();
    questions.items.path = wanted.items();
    questions.items.limit = wanted.limit();
    const absl::Duration start = rank_.clock.Monotonic();
    absl::StatusOr<Asked> asked = AskFolder(options, questions, rank_.env);
    BeginPart();
    if (!asked.ok()) {
      return left_.has_value()
                 ? asked.status()
                 : Annotate(asked.status(), absl::StrCat("evaluate.questions[", index, "]"));
    }
    v1::EvaluationResult& result = *report.add_evaluations();
    result = asked->result;
    result.set_step(model.step());
    result.set_seconds(absl::ToDoubleSeconds(rank_.clock.Monotonic() - start));
    return absl::OkStatus();
  }

  void Say(const v1::Checkpoint& model, const std::string& text) {
    rank_.link.SendLog("info", absl::StrCat(spec::ModelText(model), ": ", text));
  }

  // An error when a stop or a pause was asked for.
  absl::Status Leave() {
    const ControlRequests asked = controls_.Take();
    if (!left_.has_value() && (asked.stop || asked.pause)) {
      left_ = asked.stop ? v1::EXIT_REASON_STOPPED : v1::EXIT_REASON_PAUSED;
    }
    return left_.has_value() ? absl::CancelledError("asked to leave") : absl::OkStatus();
  }

  RankContext rank_;
  Controls controls_;
  const FileVerifier verifier_;
  const v1::EvaluateSpec& evaluate_;
  int64_t done_;                               // models, those of earlier epochs included
  std::optional<v1::ExitReason> left_;         // a stop or a pause ends the run
  std::optional<absl::Duration> batch_start_;  // of the one under way
  int64_t batches_ = 0;                        // begun of this part
};

}  // namespace

v1::TrainerExit RunEvaluation(const RankOptions& options) {
  return EvalRun(options).Run();
}

}  // namespace hearth::trainer
