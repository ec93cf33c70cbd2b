// A rank's life up to its first step.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "common/base/status_macros.h"
#include "common/base/units.h"
#include "common/fault/fault.h"
#include "common/spec/plan/gpus.h"
#include "common/spec/plan/parameter_table.h"
#include "common/spec/recipe/recipe.h"
#include "common/spec/recipe/trial_recipes.h"
#include "kernels/gemm/native_error.h"
#include "worker/trainer/checkpoint/hf_model.h"
#include "worker/trainer/pulse/watched_collective.h"
#include "worker/trainer/rank/agreement.h"
#include "worker/trainer/rank/job_facts.h"
#include "worker/trainer/rank/rank_run.h"
#include "worker/trainer/rank/session.h"
#include "worker/trainer/rank/state.h"

namespace hearth::trainer {
namespace {

// A job waits this long for its data to be verified. Then it begins, and ends if a file turns out
// to be damaged.
constexpr absl::Duration kCheckPatience = absl::Seconds(5);

// Jobs that are older than the field have no value.
bool Verifies(const v1::JobSpec& spec) {
  return !spec.data().has_verify() || spec.data().verify();
}

}  // namespace

absl::Status RankRun::Prepare() {
  HEARTH_RETURN_IF_ERROR(fault::Check("trainer.start"));
  link_.SendPhase("loading");
  blame_ = v1::EXIT_REASON_BAD_DATA;
  HEARTH_RETURN_IF_ERROR(VerifyModel());
  const absl::Status complete = CompleteSpec(
      spec_, env_,
      task_.resume_path().empty() ? facts::Tokenizers::kCompare : facts::Tokenizers::kAsTheyAre);
  if (absl::IsInvalidArgument(complete)) {
    blame_ = v1::EXIT_REASON_BAD_SPEC;
  }
  HEARTH_RETURN_IF_ERROR(complete);
  HEARTH_ASSIGN_OR_RETURN(train_,
                          OpenLoader(spec_, spec_.data().train(), spec_.data().shuffle(), env_));
  if (spec_.data().validation_size() > 0) {
    HEARTH_ASSIGN_OR_RETURN(validation_, OpenLoader(spec_, spec_.data().validation(), false, env_));
  }
  HEARTH_ASSIGN_OR_RETURN(evaluations_, Evaluations::Open(spec_, TokenizerFolder(*train_), env_));
  // In the background, beside what follows.
  StartDataCheck();
  // What can fail on one rank alone comes before the rendezvous: its peers would wait for it.
  HEARTH_RETURN_IF_ERROR(OpenCheckpoint());
  HEARTH_RETURN_IF_ERROR(RecallTrial());
  HEARTH_RETURN_IF_ERROR(OpenDevice());
  if (data_check_ != nullptr) {
    blame_ = v1::EXIT_REASON_BAD_DATA;
    HEARTH_RETURN_IF_ERROR(data_check_->Wait(kCheckPatience));
  }
  HEARTH_RETURN_IF_ERROR(fault::Check("trainer.before_rendezvous"));
  HEARTH_RETURN_IF_ERROR(Meet());
  HEARTH_RETURN_IF_ERROR(Agree());
  // After Agree: the runs of a trial take the batch and the shards of the job itself.
  HEARTH_RETURN_IF_ERROR(ChooseRecipe());
  if (done_) {
    return absl::OkStatus();
  }
  link_.SendPhase("loading");
  HEARTH_RETURN_IF_ERROR(Open(spec_, resumed_.has_value() ? &*resumed_ : nullptr));
  // Each rank falls back by itself from a checkpoint that it cannot read. Ranks that came to
  // different ones must not train on together.
  HEARTH_RETURN_IF_ERROR(CheckSameStart());
  // Rank 0 writes what all ranks have alike; with a divided optimizer each writes its own part.
  if (leader_ || shards_ > 1) {
    HEARTH_RETURN_IF_ERROR(StartWriter());
  }
  if (leader_) {
    WarnIfNotExact();
    Announce();
  }
  return absl::OkStatus();
}

FileVerifier RankRun::Verifier() const {
  // The disk is seldom faster than so many cores hash.
  return FileVerifier(verified_folder_, std::clamp(task_.threads(), 1, 4), env_, clock_);
}

absl::Status RankRun::VerifyModel() {
  if (!spec_.model().has_from() || !task_.resume_path().empty() || !Verifies(spec_)) {
    return absl::OkStatus();
  }
  HEARTH_ASSIGN_OR_RETURN(const std::vector<RecordedFile> files,
                          RecordedModelFiles(env_, spec_.model().from()));
  return Verifier().Verify(files);
}

void RankRun::StartDataCheck() {
  if (!Verifies(spec_)) {
    return;
  }
  std::vector<RecordedFile> files = train_->RecordedFiles();
  if (validation_ != nullptr) {
    const std::vector<RecordedFile> more = validation_->RecordedFiles();
    files.insert(files.end(), more.begin(), more.end());
  }
  if (!files.empty()) {
    data_check_ = std::make_unique<BackgroundCheck>(Verifier(), std::move(files), clock_);
  }
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

absl::Status RankRun::RecallTrial() {
  if (!spec_.precision().has_trial()) {
    return absl::OkStatus();
  }
  trial_before_ = task_.trial();
  if (!resumed_.has_value() || HasChosen(spec_, trial_before_)) {
    return absl::OkStatus();
  }
  HEARTH_ASSIGN_OR_RETURN(const std::optional<v1::PrecisionTrial> kept, TrialOf(resumed_->meta));
  trial_before_ = kept.value_or(trial_before_);
  if (!HasChosen(spec_, trial_before_)) {
    link_.SendLog("warning", "precision.trial is passed over: the job has begun without one");
    spec_ = spec::InRecipe(spec_, spec_.precision().recipe());
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
  HEARTH_ASSIGN_OR_RETURN(std::unique_ptr<Collective> connected, Connect());
  comm_ = Watched(std::move(connected), pulse_, clock_);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Collective>> RankRun::Connect() {
  KeyValueStore* store = &link_;
  // The ranks of an epoch meet again after a trial. Keys of the first meeting are still in the
  // store, so each later one has a prefix of its own.
  if (meetings_++ > 0) {
    meeting_store_ =
        std::make_unique<PrefixedStore>(link_, absl::StrCat("meeting/", meetings_, "/"));
    store = meeting_store_.get();
  }
  const auto seconds = [](double given) { return absl::Seconds(given > 0 ? given : 60); };
  const absl::Duration gather_timeout = seconds(task_.gather_seconds());
  const absl::Duration timeout = seconds(task_.rendezvous_seconds());
  if (cuda_ != nullptr) {
    NcclOptions options;
    options.rank = task_.rank();
    options.world_size = task_.world_size();
    options.cuda = cuda_.get();
    options.host = task_.advertise_host();
    options.gather_timeout = gather_timeout;
    options.rendezvous_timeout = timeout;
    return NewNcclCollective(options, *store);
  }
  GlooOptions options;
  options.rank = task_.rank();
  options.world_size = task_.world_size();
  options.advertise_host = task_.advertise_host();
  options.gather_timeout = gather_timeout;
  options.rendezvous_timeout = timeout;
  options.on_stranger = [this](std::string_view text) {
    link_.SendLog("warning", absl::StrCat("rendezvous: turned a stranger away: ",
                                          absl::string_view(text.data(), text.size())));
  };
  return NewGlooCollective(options, *store);
}

// An open global batch stays what the run took at its beginning, whatever fits now, if it has a
// sequence for every rank.
void RankRun::KeepGlobalBatch() {
  v1::BatchSpec& batch = *spec_.mutable_batch();
  const bool open = batch.micro_batch_size() == 0 && !batch.has_global_batch_tokens();
  if (resumed_.has_value() && open) {
    const int64_t tokens = resumed_->meta.global_batch_tokens;
    const int64_t sequence = spec_.data().sequence_length();
    if (tokens % sequence == 0 && tokens / sequence >= std::max(1, task_.world_size())) {
      batch.set_global_batch_tokens(tokens);
    }
  }
}

absl::Status RankRun::Agree() {
  KeepGlobalBatch();
  AgreementParts parts;
  for (const std::string& recipe : spec::TrialRecipes(spec_)) {
    parts.forms.push_back(spec::InRecipe(spec_, recipe));
  }
  if (parts.forms.empty()) {
    parts.forms.push_back(spec_);
  }
  parts.task = &task_;
  parts.comm = comm_.get();
  parts.resumed = resumed_.has_value() ? &*resumed_ : nullptr;
  // Shards first: how much memory a micro-batch leaves depends on how far the state is divided.
  blame_ = v1::EXIT_REASON_BAD_SPEC;
  HEARTH_ASSIGN_OR_RETURN(parts.plan_bytes, PlanBytes());
  HEARTH_ASSIGN_OR_RETURN(shards_, AgreeOnShards(parts, blame_));
  HEARTH_ASSIGN_OR_RETURN(micro_batch_, AgreeOnMicroBatch(parts, shards_, blame_));
  blame_ = v1::EXIT_REASON_BAD_SPEC;
  HEARTH_ASSIGN_OR_RETURN(batch_, spec::ResolveBatchPlan(spec_, micro_batch_, task_.world_size()));
  return absl::OkStatus();
}

absl::Status RankRun::Open(const v1::JobSpec& spec, LoadedCheckpoint* resumed) {
  HEARTH_RETURN_IF_ERROR(OpenEngine(spec, resumed));
  pulse_.Restart(trainer_->step());
  return absl::OkStatus();
}

absl::Status RankRun::OpenEngine(const v1::JobSpec& spec, LoadedCheckpoint* resumed) {
  pulse_.Begin(Activity::kOther, "loading");
  SessionOptions options;
  options.engine.spec = spec;
  options.engine.micro_batch = micro_batch_;
  options.engine.threads = std::max(1, task_.threads());
  options.engine.cuda = cuda_.get();
  options.engine.world_size = std::max(1, task_.world_size());
  options.engine.rank = task_.rank();
  options.engine.shards = shards_;
  if (spec.data().attention() == "document") {
    blame_ = v1::EXIT_REASON_BAD_DATA;
    HEARTH_ASSIGN_OR_RETURN(options.engine.seen, train_->SeenShare());
  }
  options.trainer.comm = comm_.get();
  options.trainer.train = train_.get();
  options.trainer.validation = validation_.get();
  options.trainer.clock = &clock_;
  options.trainer.batch = batch_;
  options.trainer.pulse = &pulse_;
  options.trainer.dump_gradients = trying_ ? "" : dump_gradients_;
  options.env = &env_;
  options.link = &link_;
  options.resumed = resumed;
  blame_ = v1::EXIT_REASON_BAD_SPEC;
  const absl::Status opened = OpenSession(options, engine_, trainer_, blame_);
  // All ranks have GPUs and libraries of one kind, so the library refuses a product to all of them
  // or to none. Any other failure may be this rank's alone or have spoilt the device, and ends the
  // run. If ranks differ all the same, those that go on meet a deadline where they wait for peers.
  const spec::Recipe* recipe = spec::FindRecipe(spec.precision().recipe());
  const bool native_or_nothing =
      recipe->on_cuda == spec::Execution::kEmulated && !spec.precision().emulate();
  if (!kernels::IsNativeGemmError(opened) || !absl::IsUnimplemented(opened) || native_or_nothing) {
    return opened;
  }
  link_.SendLog("warning", absl::StrCat("going on without block-scaled matrix units, as a product "
                                        "failed on them: ",
                                        opened.message()));
  HEARTH_RETURN_IF_ERROR(CloseSession());
  link_.SendPhase(trying_ ? "trial" : "loading");
  options.engine.no_native_blocks = std::string(opened.message());
  options.trainer.comm = comm_.get();
  blame_ = v1::EXIT_REASON_BAD_SPEC;
  return OpenSession(options, engine_, trainer_, blame_);
}

absl::Status RankRun::ChooseRecipe() {
  if (!task_.spec().precision().has_trial()) {
    return absl::OkStatus();
  }
  // A rank that passes the trial over takes part in none of its collectives, so all must agree.
  blame_ = v1::EXIT_REASON_COMM;
  const bool counts = spec_.precision().has_trial();
  HEARTH_RETURN_IF_ERROR(
      CheckSame(*comm_, "some ranks pass precision.trial over, others do not", counts ? 1 : 0));
  if (!counts) {
    return absl::OkStatus();
  }
  Trial trial(spec_, TrialMadeWith(spec_, task_.world_size(), shards_, micro_batch_),
              trial_before_);
  HEARTH_RETURN_IF_ERROR(
      CheckSame(*comm_, "ranks know of different runs of the trial", trial.state().runs_size()));
  if (trial.decided() && leader_) {
    link_.SendLog("info", absl::StrCat("decided before: ", trial.state().text()));
  }
  HEARTH_RETURN_IF_ERROR(HoldTrial(trial));
  if (done_) {
    return absl::OkStatus();
  }
  trial_ = trial.state();
  spec_ = spec::InRecipe(spec_, trial_->chosen());
  blame_ = v1::EXIT_REASON_COMM;
  return CheckSame(*comm_, "ranks have chosen different recipes",
                   spec::FindRecipe(spec_.precision().recipe()) - spec::Recipes().data());
}

absl::Status RankRun::HoldTrial(Trial& trial) {
  if (leader_ && !trial.decided() && trial.state().runs().empty()) {
    link_.SendTrial(trial.state());
  }
  while (!trial.decided() && !done_) {
    HEARTH_ASSIGN_OR_RETURN(const TrialRunResult result, TryRecipe(trial.next()));
    HEARTH_RETURN_IF_ERROR(TakeTrialRun(result, trial));
    HEARTH_RETURN_IF_ERROR(CloseTrialRun());
  }
  return absl::OkStatus();
}

absl::Status RankRun::TakeTrialRun(const TrialRunResult& result, Trial& trial) {
  asked_.save |= result.asked.save;
  if (result.asked.stop || result.asked.pause) {
    // Finished runs are with whoever started this; there is no step to save.
    outcome_ = result.asked.stop ? v1::EXIT_REASON_STOPPED : v1::EXIT_REASON_PAUSED;
    done_ = true;
  }
  if (result.left) {
    return absl::OkStatus();
  }
  blame_ = v1::EXIT_REASON_NUMERICAL;
  HEARTH_RETURN_IF_ERROR(trial.Add(result.run));
  if (leader_) {
    link_.SendTrial(trial.state());
  }
  return absl::OkStatus();
}

absl::StatusOr<TrialRunResult> RankRun::TryRecipe(const std::string& recipe) {
  trying_ = true;
  link_.SendPhase("trial");
  HEARTH_RETURN_IF_ERROR(Annotate(Open(spec::InRecipe(spec_, recipe), nullptr),
                                  absl::StrCat("precision.trial: ", recipe)));
  TrialRunOptions options;
  options.steps = spec_.precision().trial().steps();
  options.evaluates = validation_ != nullptr;
  options.recipe = recipe;
  options.link = leader_ ? &link_ : nullptr;
  options.take_control = [this] { return TakeControl(); };
  absl::StatusOr<TrialRunResult> result = RunTrial(*trainer_, options);
  pulse_.Begin(Activity::kOther, "ending a run of the trial");
  return result.ok() ? std::move(result) : Blame(result.status());
}

absl::Status RankRun::CloseTrialRun() {
  HEARTH_RETURN_IF_ERROR(CloseSession());
  trying_ = false;
  return absl::OkStatus();
}

absl::Status RankRun::CloseSession() {
  if (cuda_ != nullptr && comm_->world_size() > 1) {
    // Peers may have the engine's memory mapped until their communicators are gone, which they are
    // when all have met again.
    blame_ = v1::EXIT_REASON_COMM;
    HEARTH_RETURN_IF_ERROR(Part());
    HEARTH_RETURN_IF_ERROR(Meet());
  }
  trainer_.reset();
  engine_.reset();
  return absl::OkStatus();
}

absl::Status RankRun::CheckSameStart() {
  blame_ = v1::EXIT_REASON_COMM;
  const absl::Status same =
      CheckSame(*comm_, "ranks resume from different steps", trainer_->step());
  if (!absl::IsDataLoss(same)) {
    return same;
  }
  blame_ = v1::EXIT_REASON_BAD_DATA;
  return absl::DataLossError(
      absl::StrCat(same.message(), "; the checkpoint is not the same everywhere"));
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

void RankRun::Announce() {
  flops_per_token_ = spec::FlopsPerToken(engine_->shape(), spec_.data().sequence_length());
  if (cuda_ != nullptr) {
    const spec::GpuRow* row = spec::FindGpu(cuda_->gpu().name);
    peak_flops_ = row == nullptr ? 0 : row->bf16_flops();
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
  for (int i = 0; i < train_->sources() && !UsesLossMask(spec_); ++i) {
    if (train_->source(i).has_mask()) {
      link_.SendLog("info", absl::StrCat(train_->source(i).path(), ": task: ", spec_.task(),
                                         " trains on all tokens; the loss mask counts with sft"));
    }
  }
  if (const kernels::AttentionEngines& attention = trainer_->program().attention();
      !attention.forward.empty()) {
    const std::string within =
        engine_->documents() ? absl::StrFormat("; within documents, %.0f %% of the causal pairs",
                                               100 * engine_->options().seen)
                             : "";
    link_.SendLog("info", absl::StrCat("attention: forward ", attention.forward, ", backward ",
                                       attention.backward, within));
  }
  link_.SendLog(
      "info",
      absl::StrFormat("%s parameters, recipe %s (%s), %d rank%s over %s, %d tokens a step in "
                      "micro-batches of %d sequences, %s planned, from step %d",
                      FormatCount(static_cast<double>(info.parameters())), info.recipe(),
                      info.recipe_execution(), info.world_size(), info.world_size() == 1 ? "" : "s",
                      info.comm(), info.global_batch_tokens(), info.micro_batch_size(),
                      FormatBytes(info.planned_bytes()), info.start_step()));
}

}  // namespace hearth::trainer
