#include "worker/trainer/step/run.h"

#include <sys/resource.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "common/base/status.h"
#include "common/base/status_macros.h"
#include "common/base/units.h"
#include "common/fault/fault.h"
#include "common/spec/gpus.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/device.h"
#include "worker/trainer/checkpoint/background_writer.h"
#include "worker/trainer/checkpoint/hf_model.h"
#include "worker/trainer/comm/collective.h"
#include "worker/trainer/step/engine.h"
#include "worker/trainer/step/job_facts.h"
#include "worker/trainer/step/state.h"
#include "worker/trainer/step/step_report.h"
#include "worker/trainer/step/trainer.h"

namespace hearth::trainer {
namespace {

class RankRun {
 public:
  explicit RankRun(const RankOptions& options)
      : link_(*options.link),
        env_(*options.env),
        clock_(*options.clock),
        signals_(options.signals),
        prune_(options.prune_checkpoints),
        dump_gradients_(options.dump_gradients),
        task_(options.link->task()),
        spec_(task_.spec()),
        leader_(task_.rank() == 0) {}

  v1::TrainerExit Run();
  // After Run(): kernels of a communicator may wait for peers for ever, and so would whoever frees
  // the GPU's memory. The end of the process is the way out.
  bool broken() const { return broken_; }

 private:
  // Ends what binds the ranks of several GPUs to one another, on all of them together.
  absl::Status Part();
  absl::Status Prepare();
  absl::Status Meet();
  absl::Status AgreeOnShards();
  absl::Status AgreeOnMicroBatch();
  absl::Status OpenCheckpoint();
  absl::Status OpenDevice();
  absl::StatusOr<int64_t> PlanBytes() const;
  absl::Status BuildEngine();
  absl::Status FillWeights();
  // Masters and weights from the folder of model.from.
  absl::Status LoadWeights();
  absl::Status CheckSameStart();
  // Says so when a resume cannot repeat the bits of the run before.
  void WarnIfNotExact();
  void Announce();
  // Bytes in use: of the machine by this process, or of the GPU.
  int64_t MemoryInUse();

  absl::Status Train();
  // Launches a step or collects one, and does what follows from it. Sets done_ when the run is
  // over.
  absl::Status OneStep();
  // Whether something looks at the weights after `step` before the next may be launched.
  bool Pauses(int64_t step) const;
  // Sets blame_ by the kind of error; returns it.
  absl::Status Blame(const absl::Status& status);
  absl::Status Act(const StepResult& result, double& checkpoint_seconds);
  // Logs what was decided and keeps it for the next report.
  void NoteDecisions(std::vector<Decision>& decisions);
  absl::StatusOr<std::optional<double>> EvaluateIfDue(int64_t step);
  ControlRequests TakeControl();
  void Report(const StepResult& result,
              std::optional<double> validation_loss,
              double checkpoint_seconds);
  absl::Status SubmitCheckpoint();
  // Announces finished checkpoints; with `wait`, also the one under way, which must succeed.
  // Without, one that lacks a rank's part is only logged, up to kLackingMax in a row.
  absl::Status TakeCheckpoints(bool wait);
  void AnnounceCheckpoint(const CommittedCheckpoint& committed);

  bool Due(int64_t step, int64_t every) const {
    return step == spec_.train().steps() || (every > 0 && step % every == 0);
  }

  Link& link_;
  Env& env_;
  Clock& clock_;
  std::atomic<uint64_t>* signals_;
  const bool prune_;
  const std::string dump_gradients_;
  const v1::Task& task_;
  v1::JobSpec spec_;
  const bool leader_;

  // Whom an error of the present stage is to be laid on.
  v1::ExitReason blame_ = v1::EXIT_REASON_INTERNAL;
  v1::ExitReason outcome_ = v1::EXIT_REASON_FINISHED;
  bool done_ = false;
  bool broken_ = false;
  int64_t committed_step_ = 0;
  int64_t submitted_step_ = 0;
  absl::Status newest_checkpoint_;       // of those that are done
  static constexpr int kLackingMax = 3;  // checkpoints in a row without some part end a run
  int lacking_ = 0;                      // of those that are done, since the last good one
  double validation_loss_ = 0;           // the last one measured, at validated_step_
  int64_t validated_step_ = 0;
  absl::Duration last_progress_ = -absl::InfiniteDuration();

  int64_t memory_asked_ = 0;
  int64_t memory_free_ = 0;
  int64_t memory_in_use_ = 0;
  double flops_per_token_ = 0;
  double peak_flops_ = 0;            // dense BF16 of the GPU; 0 = not known
  ControlRequests asked_;            // by any rank, not acted on yet
  std::vector<Decision> decisions_;  // not reported yet

  std::unique_ptr<kernels::CudaContext> cuda_;  // null: the CPU
  std::unique_ptr<Collective> comm_;
  std::unique_ptr<Loader> train_;
  std::unique_ptr<Loader> validation_;
  std::optional<LoadedCheckpoint> resumed_;
  int32_t shards_ = 1;  // among which masters and optimizer state are divided
  int64_t micro_batch_ = 0;
  spec::BatchPlan batch_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Trainer> trainer_;
  std::unique_ptr<BackgroundWriter> writer_;  // null: others write for this rank
};

v1::TrainerExit RankRun::Run() {
  absl::Status status = Prepare();
  if (status.ok()) {
    status = Train();
  }
  // Whatever was being done: an internal error beside a GPU is the CUDA runtime's.
  if (cuda_ != nullptr && absl::IsInternal(status)) {
    blame_ = v1::EXIT_REASON_DEVICE;
  }
  v1::TrainerExit exit;
  exit.set_reason(status.ok() ? outcome_ : blame_);
  exit.set_message(std::string(status.message()));
  exit.set_step(trainer_ == nullptr ? 0 : trainer_->step());
  exit.set_checkpoint_step(committed_step_);
  SetTime(*exit.mutable_time(), clock_.Now());
  for (const Decision& decision : decisions_) {
    ToProto(decision, *exit.add_decisions());
  }
  if (!status.ok()) {
    link_.SendLog("error", std::string(status.message()));
  }
  broken_ = cuda_ != nullptr && comm_ != nullptr && comm_->world_size() > 1 &&
            !(status.ok() && Part().ok());
  link_.SendExit(exit);
  HEARTH_FAULT_POINT("trainer.before_exit");
  return exit;
}

absl::Status RankRun::Part() {
  // Peers may hold this rank's memory mapped until their communicators are gone, and those wait for
  // the graphs that hold their operations.
  HEARTH_RETURN_IF_ERROR(comm_->Barrier());
  trainer_.reset();
  comm_.reset();
  return absl::OkStatus();
}

absl::Status RankRun::Prepare() {
  HEARTH_RETURN_IF_ERROR(fault::Check("trainer.start"));
  link_.SendPhase("loading");
  blame_ = v1::EXIT_REASON_BAD_DATA;
  const absl::Status complete = CompleteSpec(spec_, env_);
  if (absl::IsInvalidArgument(complete)) {
    blame_ = v1::EXIT_REASON_BAD_SPEC;
  }
  HEARTH_RETURN_IF_ERROR(complete);
  HEARTH_ASSIGN_OR_RETURN(train_,
                          OpenLoader(spec_, spec_.data().train(), spec_.data().shuffle(), env_));
  if (spec_.data().validation_size() > 0) {
    HEARTH_ASSIGN_OR_RETURN(validation_, OpenLoader(spec_, spec_.data().validation(), false, env_));
  }
  HEARTH_RETURN_IF_ERROR(OpenCheckpoint());
  HEARTH_RETURN_IF_ERROR(OpenDevice());
  HEARTH_RETURN_IF_ERROR(fault::Check("trainer.before_rendezvous"));
  HEARTH_RETURN_IF_ERROR(Meet());
  HEARTH_RETURN_IF_ERROR(AgreeOnShards());
  HEARTH_RETURN_IF_ERROR(AgreeOnMicroBatch());
  link_.SendPhase("loading");
  HEARTH_RETURN_IF_ERROR(BuildEngine());
  HEARTH_RETURN_IF_ERROR(FillWeights());
  HEARTH_RETURN_IF_ERROR(CheckSameStart());
  if (leader_ || shards_ > 1) {
    writer_ = std::make_unique<BackgroundWriter>(env_, clock_, task_.checkpoint_dir(),
                                                 prune_ ? spec_.checkpoint().keep_last() : 0);
  }
  if (leader_) {
    WarnIfNotExact();
    Announce();
  }
  return absl::OkStatus();
}

absl::Status RankRun::OpenCheckpoint() {
  if (task_.resume_path().empty()) {
    return absl::OkStatus();
  }
  HEARTH_RETURN_IF_ERROR(fault::Check("checkpoint.before_load"));
  std::vector<CheckpointCandidate> candidates = {
      {task_.resume_path(), task_.resume_step(), task_.resume_manifest_sha256()}};
  for (const v1::Checkpoint& earlier : task_.earlier_checkpoints()) {
    candidates.push_back({earlier.path(), earlier.step(), earlier.manifest_sha256()});
  }
  HEARTH_ASSIGN_OR_RETURN(resumed_, LoadCheckpoint(env_, candidates, spec_.model()));
  for (const std::string& note : resumed_->notes) {
    link_.SendLog("warning", note);
  }
  return absl::OkStatus();
}

absl::Status RankRun::OpenDevice() {
  if (absl::string_view(task_.device()).substr(0, 4) != "cuda") {
    return absl::OkStatus();
  }
  blame_ = v1::EXIT_REASON_DEVICE;
  HEARTH_ASSIGN_OR_RETURN(cuda_, OpenGpu(task_.device(), spec_.train().deterministic() == "true"));
  return absl::OkStatus();
}

absl::StatusOr<int64_t> RankRun::PlanBytes() const {
  return cuda_ == nullptr ? CpuMemoryBytes(task_.world_size())
                          : GpuMemoryBytes(*cuda_, task_.world_size());
}

absl::Status RankRun::Meet() {
  if (task_.world_size() <= 1) {
    comm_ = NewSoloCollective();
    return absl::OkStatus();
  }
  link_.SendPhase("rendezvous");
  blame_ = v1::EXIT_REASON_COMM;
  const absl::Duration timeout =
      absl::Seconds(task_.rendezvous_seconds() > 0 ? task_.rendezvous_seconds() : 60);
  if (cuda_ != nullptr) {
    NcclOptions options;
    options.rank = task_.rank();
    options.world_size = task_.world_size();
    options.cuda = cuda_.get();
    options.host = task_.advertise_host();
    options.rendezvous_timeout = timeout;
    HEARTH_ASSIGN_OR_RETURN(comm_, NewNcclCollective(options, link_));
    return absl::OkStatus();
  }
  GlooOptions options;
  options.rank = task_.rank();
  options.world_size = task_.world_size();
  options.advertise_host = task_.advertise_host();
  options.rendezvous_timeout = timeout;
  HEARTH_ASSIGN_OR_RETURN(comm_, NewGlooCollective(options, link_));
  return absl::OkStatus();
}

absl::Status RankRun::AgreeOnShards() {
  blame_ = v1::EXIT_REASON_BAD_SPEC;
  HEARTH_ASSIGN_OR_RETURN(const int64_t bytes, PlanBytes());
  HEARTH_ASSIGN_OR_RETURN(shards_, spec::ResolveShards(spec_, task_.world_size(), task_.threads(),
                                                       bytes, spec_.batch().micro_batch_size()));
  blame_ = v1::EXIT_REASON_COMM;
  return comm_->AllReduceMax(absl::MakeSpan(&shards_, 1));
}

absl::Status RankRun::AgreeOnMicroBatch() {
  blame_ = v1::EXIT_REASON_BAD_SPEC;
  const bool automatic = spec_.batch().micro_batch_size() == 0;
  // The order of the sums depends on it, and so does an open global batch: a resume must not choose
  // anew. Another number of ranks sums in another order anyway, and has other shares of a given
  // batch and of the memory.
  const bool keep =
      automatic && resumed_.has_value() && resumed_->meta.micro_batch_size > 0 &&
      (resumed_->meta.world_size == task_.world_size() || !spec_.batch().has_global_batch_tokens());
  if (keep) {
    micro_batch_ = resumed_->meta.micro_batch_size;
  } else {
    HEARTH_ASSIGN_OR_RETURN(const int64_t bytes, PlanBytes());
    HEARTH_ASSIGN_OR_RETURN(micro_batch_, spec::ResolveMicroBatch(spec_, task_.world_size(),
                                                                  task_.threads(), bytes, shards_));
  }
  // The smallest of all ranks, as the largest of the complements.
  uint64_t complement = ~static_cast<uint64_t>(micro_batch_);
  blame_ = v1::EXIT_REASON_COMM;
  HEARTH_RETURN_IF_ERROR(comm_->AllReduceMax(absl::MakeSpan(&complement, 1)));
  micro_batch_ = static_cast<int64_t>(~complement);
  blame_ = v1::EXIT_REASON_BAD_SPEC;
  HEARTH_ASSIGN_OR_RETURN(batch_, spec::ResolveBatchPlan(spec_, micro_batch_, task_.world_size()));
  return absl::OkStatus();
}

absl::Status RankRun::BuildEngine() {
  EngineOptions options;
  options.spec = spec_;
  options.micro_batch = micro_batch_;
  options.threads = std::max(1, task_.threads());
  options.cuda = cuda_.get();
  options.world_size = std::max(1, task_.world_size());
  options.rank = task_.rank();
  options.shards = shards_;
  absl::StatusOr<std::unique_ptr<Engine>> engine = Engine::Create(options);
  // Memory that somebody else holds now may be free the next time.
  if (absl::IsResourceExhausted(engine.status()) || absl::IsInternal(engine.status())) {
    blame_ = v1::EXIT_REASON_DEVICE;
  }
  HEARTH_RETURN_IF_ERROR(engine.status());
  engine_ = *std::move(engine);
  return absl::OkStatus();
}

absl::Status RankRun::LoadWeights() {
  const ParameterStore& p = engine_->parameters();
  std::vector<std::vector<float>> host(static_cast<size_t>(p.size()));
  std::vector<float*> weights;
  for (int i = 0; i < p.size(); ++i) {
    std::vector<float>& values = host[static_cast<size_t>(i)];
    values.assign(static_cast<size_t>(p.weight(i).numel()), 0.0F);
    weights.push_back(values.data());
  }
  HEARTH_RETURN_IF_ERROR(LoadHfWeights(env_, spec_.model().from(), engine_->table(), weights));
  for (int i = 0; i < p.size(); ++i) {
    HEARTH_RETURN_IF_ERROR(p.WriteParameter(engine_->exec(), i, weights[static_cast<size_t>(i)]));
  }
  return p.RefreshWeights(engine_->exec());
}

absl::Status RankRun::FillWeights() {
  blame_ = v1::EXIT_REASON_BAD_DATA;
  int64_t step = 0;
  if (resumed_.has_value()) {
    HEARTH_RETURN_IF_ERROR(RestoreTensors(*engine_, *resumed_));
    step = resumed_->meta.step;
  } else if (spec_.model().has_from()) {
    HEARTH_RETURN_IF_ERROR(LoadWeights());
  } else {
    HEARTH_RETURN_IF_ERROR(engine_->Initialise());
  }
  Trainer::Parts parts;
  parts.engine = engine_.get();
  parts.comm = comm_.get();
  parts.train = train_.get();
  parts.validation = validation_.get();
  parts.clock = &clock_;
  parts.batch = batch_;
  parts.dump_gradients = dump_gradients_;
  trainer_ = std::make_unique<Trainer>(parts, step);
  blame_ = cuda_ == nullptr ? v1::EXIT_REASON_INTERNAL : v1::EXIT_REASON_DEVICE;
  HEARTH_RETURN_IF_ERROR(trainer_->Prepare());
  if (cuda_ != nullptr) {
    if (const absl::Status saved = cuda_->SavePlans(); !saved.ok()) {
      link_.SendLog("warning", absl::StrCat("plans are not kept: ", saved.message()));
    }
  }
  blame_ = v1::EXIT_REASON_BAD_DATA;
  bool scales = false;
  if (resumed_.has_value()) {
    HEARTH_ASSIGN_OR_RETURN(scales, RestorePrecision(*engine_, *resumed_));
    HEARTH_RETURN_IF_ERROR(RestoreTrainer(*trainer_, resumed_->meta));
    resumed_->state.reset();
    resumed_->shards.clear();
  }
  return trainer_->StartPrecision(scales);
}

absl::Status RankRun::CheckSameStart() {
  const auto step = static_cast<uint64_t>(trainer_->step());
  uint64_t bounds[2] = {step, ~step};
  blame_ = v1::EXIT_REASON_COMM;
  HEARTH_RETURN_IF_ERROR(comm_->AllReduceMax(absl::MakeSpan(bounds)));
  if (bounds[0] != ~bounds[1]) {
    blame_ = v1::EXIT_REASON_BAD_DATA;
    return absl::DataLossError(absl::StrCat("ranks resume from different steps: ", ~bounds[1],
                                            " and ", bounds[0],
                                            "; the checkpoint is not the same everywhere"));
  }
  return absl::OkStatus();
}

void RankRun::WarnIfNotExact() {
  if (!resumed_.has_value()) {
    return;
  }
  const CheckpointMeta& meta = resumed_->meta;
  const auto differs = [this](std::string_view what, int64_t before, int64_t now) {
    if (before != now) {
      link_.SendLog("warning", absl::StrCat("resume is not bit-exact: ",
                                            absl::string_view(what.data(), what.size()), " was ",
                                            before, ", is ", now));
    }
  };
  differs("the number of ranks", meta.world_size, task_.world_size());
  differs("the micro-batch size", meta.micro_batch_size, micro_batch_);
  differs("the global batch in tokens", meta.global_batch_tokens, batch_.global_tokens());
  for (const std::string& difference :
       PlanDifferences(meta.plans_json, *engine_, task_.world_size())) {
    link_.SendLog("warning", absl::StrCat("resume is not bit-exact: ", difference));
  }
}

int64_t RankRun::MemoryInUse() {
  if (cuda_ == nullptr) {
    return ResidentBytes();
  }
  // After the first steps nothing takes memory any more; the driver is asked now and then.
  constexpr int64_t kEvery = 64;
  int64_t total = 0;
  if (memory_asked_++ % kEvery < 2 && kernels::DeviceMemory(*cuda_, memory_free_, total).ok()) {
    memory_in_use_ = total - memory_free_;
  }
  return memory_in_use_;
}

void RankRun::Announce() {
  flops_per_token_ = spec::FlopsPerToken(engine_->shape(), spec_.data().sequence_length());
  if (cuda_ != nullptr) {
    const spec::GpuRow* row = spec::FindGpu(cuda_->gpu().name);
    peak_flops_ = row == nullptr ? 0 : row->bf16_flops;
  }
  v1::RunInfo info;
  info.set_parameters(spec::CountParameters(engine_->shape()));
  info.set_micro_batch_size(static_cast<int32_t>(micro_batch_));
  info.set_world_size(task_.world_size());
  info.set_global_batch_tokens(batch_.global_tokens());
  info.set_recipe(std::string(engine_->recipe().name));
  info.set_recipe_execution(std::string(spec::ExecutionName(engine_->execution())));
  info.set_deterministic(cuda_ == nullptr || cuda_->options().deterministic);
  info.set_planned_bytes(engine_->plan().arena_bytes());
  info.set_comm(std::string(comm_->transport()));
  info.set_start_step(trainer_->step());
  info.set_flops_per_token(flops_per_token_);
  info.set_device(task_.device());
  link_.SendRunInfo(info);
  if (!engine_->execution_note().empty()) {
    link_.SendLog("info", engine_->execution_note());
  }
  link_.SendLog("info", absl::StrFormat(
                            "%s parameters, recipe %s (%s), %d ranks over %s, %d tokens a step in "
                            "micro-batches of %d sequences, %s planned, from step %d",
                            FormatCount(static_cast<double>(info.parameters())), info.recipe(),
                            info.recipe_execution(), info.world_size(), info.comm(),
                            info.global_batch_tokens(), info.micro_batch_size(),
                            FormatBytes(info.planned_bytes()), info.start_step()));
}

absl::Status RankRun::Train() {
  link_.SendPhase("training");
  while (!done_ && trainer_->step() < spec_.train().steps()) {
    HEARTH_RETURN_IF_ERROR(OneStep());
  }
  if (writer_ == nullptr) {
    return absl::OkStatus();
  }
  blame_ = v1::EXIT_REASON_IO;
  link_.SendPhase("saving");
  const bool resumed_here = resumed_.has_value() && resumed_->meta.step == trainer_->step();
  if (submitted_step_ != trainer_->step() && !resumed_here) {
    HEARTH_RETURN_IF_ERROR(SubmitCheckpoint());
  }
  return TakeCheckpoints(true);
}

ControlRequests RankRun::TakeControl() {
  uint64_t bits = link_.TakeControl();
  if (signals_ != nullptr) {
    bits |= signals_->exchange(0);
  }
  const auto has = [bits](v1::ControlBit bit) { return (bits >> bit & 1) != 0; };
  return {has(v1::CONTROL_BIT_SAVE), has(v1::CONTROL_BIT_PAUSE), has(v1::CONTROL_BIT_STOP)};
}

absl::Status RankRun::Blame(const absl::Status& status) {
  const absl::StatusCode code = status.code();
  if (code == absl::StatusCode::kDataLoss || code == absl::StatusCode::kOutOfRange) {
    blame_ = v1::EXIT_REASON_BAD_DATA;
  } else if (code == absl::StatusCode::kUnavailable ||
             code == absl::StatusCode::kDeadlineExceeded) {
    blame_ = v1::EXIT_REASON_COMM;
  } else {
    blame_ = engine_->on_gpu() ? v1::EXIT_REASON_DEVICE : v1::EXIT_REASON_INTERNAL;
  }
  return status;
}

bool RankRun::Pauses(int64_t step) const {
  const bool evaluates =
      validation_ != nullptr && (step == 1 || Due(step, spec_.train().eval_every()));
  return evaluates || Due(step, spec_.checkpoint().every_steps());
}

absl::Status RankRun::OneStep() {
  // What was asked waits for the steps in flight, and so does what looks at the weights of a step.
  const bool stops = asked_.save || asked_.pause || asked_.stop || Pauses(trainer_->launched());
  const bool drain =
      trainer_->in_flight() > 0 && (stops || trainer_->launched() >= spec_.train().steps());
  if (!drain) {
    const absl::Status launched = trainer_->Launch(TakeControl());
    if (!launched.ok()) {
      return Blame(launched);
    }
    if (trainer_->in_flight() <= trainer_->lag()) {
      return absl::OkStatus();
    }
  }
  absl::StatusOr<StepResult> result = trainer_->Collect();
  if (!result.ok()) {
    return Blame(result.status());
  }
  asked_.save |= result->control.save;
  asked_.pause |= result->control.pause;
  asked_.stop |= result->control.stop;
  NoteDecisions(result->decisions);
  if (result->stops) {
    blame_ = v1::EXIT_REASON_NUMERICAL;
    return absl::OutOfRangeError(VerdictText(result->verdict, result->facts, result->step));
  }
  if (result->verdict != Verdict::kGood) {
    return absl::OkStatus();  // the next launch is of the same step
  }
  HEARTH_RETURN_IF_ERROR(fault::Check("trainer.after_step"));
  std::optional<double> validation_loss;
  double checkpoint_seconds = 0;
  if (trainer_->in_flight() == 0) {
    HEARTH_ASSIGN_OR_RETURN(validation_loss, EvaluateIfDue(result->step));
    HEARTH_RETURN_IF_ERROR(Act(*result, checkpoint_seconds));
  }
  Report(*result, validation_loss, checkpoint_seconds);
  return writer_ != nullptr ? TakeCheckpoints(false) : absl::OkStatus();
}

void RankRun::NoteDecisions(std::vector<Decision>& decisions) {
  if (!leader_) {
    return;
  }
  for (Decision& decision : decisions) {
    link_.SendLog(decision.cause == Verdict::kGood ? "info" : "warning", DecisionText(decision));
    decisions_.push_back(std::move(decision));
  }
}

absl::Status RankRun::Act(const StepResult& result, double& checkpoint_seconds) {
  const ControlRequests asked = std::exchange(asked_, ControlRequests{});
  const bool leave = asked.stop || asked.pause;
  if (leave && result.step < spec_.train().steps()) {
    // Train() writes the checkpoint on the way out.
    outcome_ = asked.stop ? v1::EXIT_REASON_STOPPED : v1::EXIT_REASON_PAUSED;
    done_ = true;
    return absl::OkStatus();
  }
  const int64_t every = spec_.checkpoint().every_steps();
  if (writer_ != nullptr && (asked.save || Due(result.step, every))) {
    const absl::Duration start = clock_.Monotonic();
    blame_ = v1::EXIT_REASON_IO;
    HEARTH_RETURN_IF_ERROR(SubmitCheckpoint());
    checkpoint_seconds = absl::ToDoubleSeconds(clock_.Monotonic() - start);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<double>> RankRun::EvaluateIfDue(int64_t step) {
  // The first step too, so that a run shows where it began.
  if (validation_ == nullptr || (step != 1 && !Due(step, spec_.train().eval_every()))) {
    return std::nullopt;
  }
  link_.SendPhase("evaluating");
  absl::StatusOr<double> loss = trainer_->Evaluate();
  if (!loss.ok()) {
    return Blame(loss.status());
  }
  validation_loss_ = *loss;
  validated_step_ = step;
  if (leader_) {
    link_.SendLog("info", absl::StrFormat("step %d: held-out loss %.4f", step, *loss));
  }
  link_.SendPhase("training");
  return std::optional<double>(*loss);
}

void RankRun::Report(const StepResult& result,
                     std::optional<double> validation_loss,
                     double checkpoint_seconds) {
  const absl::Duration now = clock_.Monotonic();
  if (now - last_progress_ >= absl::Seconds(1)) {
    last_progress_ = now;
    link_.SendProgress(result.step);
  }
  if (!leader_) {
    return;
  }
  v1::StepReport report;
  report.set_epoch(task_.epoch());
  report.set_step(result.step);
  SetTime(*report.mutable_time(), clock_.Now());
  report.set_loss(result.facts.loss);
  report.set_grad_norm(result.facts.grad_norm);
  report.set_learning_rate(result.learning_rate);
  report.set_tokens(result.tokens);
  report.set_step_seconds(result.seconds);
  report.set_tokens_per_second(
      result.seconds > 0 ? static_cast<double>(batch_.global_tokens()) / result.seconds : 0);
  report.set_memory_bytes(MemoryInUse());
  report.set_mfu(peak_flops_ > 0 ? report.tokens_per_second() * flops_per_token_ / peak_flops_ : 0);
  report.set_weight_quantizations(result.weight_quantizations);
  if (validation_loss.has_value()) {
    report.set_validation_loss(*validation_loss);
  }
  report.set_data_wait_seconds(result.data_wait_seconds);
  report.set_comm_seconds(result.comm_seconds);
  report.set_comm_bytes(result.comm_bytes);
  report.set_checkpoint_seconds(checkpoint_seconds);
  report.set_recipe(std::string(result.quantised || !engine_->precision().quantised()
                                    ? engine_->recipe().name
                                    : spec::RecipeOf(spec::RecipeKind::kBf16).name));
  report.set_data_pass(static_cast<int32_t>(result.data_pass));
  AddGuard(trainer_->ladder().counts(), decisions_, report);
  if (result.counted) {
    AddTensorStats(*engine_, report);
  }
  link_.SendStep(report);
}

absl::Status RankRun::SubmitCheckpoint() {
  RunIdentity identity;
  identity.job_id = task_.job_id();
  identity.epoch = task_.epoch();
  identity.validation_loss = validated_step_ == trainer_->step() ? validation_loss_ : 0;
  identity.tokenizer_from = TokenizerFolder(*train_);
  submitted_step_ = trainer_->step();
  if (const absl::Status whole = trainer_->CompleteWeights(); !whole.ok()) {
    return Blame(whole);
  }
  CheckpointContent content =
      MakeCheckpointContent(*engine_, *trainer_, batch_, task_.world_size(), identity);
  content.sharded.store = &link_;
  return writer_->Submit(content);
}

absl::Status RankRun::TakeCheckpoints(bool wait) {
  while (std::optional<absl::StatusOr<CommittedCheckpoint>> done = writer_->Take(wait)) {
    const absl::Status& newest = newest_checkpoint_ = done->status();
    lacking_ = newest.ok() ? 0 : lacking_ + 1;
    if (newest.ok() && leader_) {
      AnnounceCheckpoint(**done);
    }
    if (newest.ok()) {
      continue;
    }
    // What the other ranks could not write, rank 0 hears; the checkpoint before still stands.
    // Several in a row are no passing trouble.
    const bool passing =
        shards_ > 1 && (!leader_ || (absl::IsUnavailable(newest) && lacking_ < kLackingMax));
    if (!passing) {
      blame_ = v1::EXIT_REASON_IO;
      return Annotate(newest, "checkpoint");
    }
    link_.SendLog("error", absl::StrCat("no checkpoint: ", newest.message()));
  }
  // A run does not end well without its last one, also if its failure was taken note of before.
  return wait ? newest_checkpoint_ : absl::OkStatus();
}

void RankRun::AnnounceCheckpoint(const CommittedCheckpoint& committed) {
  committed_step_ = committed.step;
  link_.SendCheckpoint(MakeAnnouncement(committed));
  link_.SendLog("info",
                absl::StrFormat("checkpoint of step %d: %s, %s in %.2f s", committed.step,
                                committed.path, FormatBytes(committed.bytes), committed.seconds));
}

}  // namespace

v1::TrainerExit RunRank(const RankOptions& options) {
  auto run = std::make_unique<RankRun>(options);
  v1::TrainerExit exit = run->Run();
  if (run->broken()) {
    static_cast<void>(run.release());
  }
  return exit;
}

}  // namespace hearth::trainer
