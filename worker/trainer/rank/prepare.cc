// A rank's life up to its first step.
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"
#include "common/facts/complete_spec.h"
#include "common/fault/fault.h"
#include "common/spec/fields/choices.h"
#include "common/spec/recipe/trial_recipes.h"
#include "worker/trainer/device/rank_device.h"
#include "worker/trainer/rank/agreement.h"
#include "worker/trainer/rank/rank_run.h"

namespace hearth::trainer {

absl::Status RankRun::Prepare() {
  HEARTH_RETURN_IF_ERROR(fault::Check("trainer.start"));
  rank_.link.SendPhase("loading");
  rank_.blame = v1::EXIT_REASON_BAD_DATA;
  HEARTH_RETURN_IF_ERROR(data_.VerifyModel());
  const absl::Status complete =
      facts::CompleteSpec(rank_.spec, rank_.env,
                          rank_.task.resume_path().empty() ? facts::Tokenizers::kCompare
                                                           : facts::Tokenizers::kAsTheyAre);
  if (absl::IsInvalidArgument(complete)) {
    rank_.blame = v1::EXIT_REASON_BAD_SPEC;
  }
  HEARTH_RETURN_IF_ERROR(complete);
  HEARTH_RETURN_IF_ERROR(data_.Open());
  HEARTH_RETURN_IF_ERROR(
      evaluations_.Open(data_.validation() != nullptr, data_.tokenizer_folder()));
  // In the background, beside what follows.
  data_.StartCheck();
  // What can fail on one rank alone comes before the rendezvous: its peers would wait for it.
  HEARTH_RETURN_IF_ERROR(OpenCheckpoint());
  HEARTH_RETURN_IF_ERROR(trial_.Recall(resumed_.has_value() ? &*resumed_ : nullptr));
  HEARTH_RETURN_IF_ERROR(OpenDevice());
  HEARTH_RETURN_IF_ERROR(data_.AwaitCheck());
  HEARTH_RETURN_IF_ERROR(fault::Check("trainer.before_rendezvous"));
  HEARTH_RETURN_IF_ERROR(meeting_.Meet());
  HEARTH_RETURN_IF_ERROR(Agree());
  // After Agree: the runs of a trial take the batch of the job itself and divide as much.
  HEARTH_ASSIGN_OR_RETURN(left_, trial_.Choose());
  if (left_.has_value()) {
    return absl::OkStatus();
  }
  rank_.link.SendPhase("loading");
  HEARTH_RETURN_IF_ERROR(session_.Open(rank_.spec, RankSession::Purpose::kJob,
                                       resumed_.has_value() ? &*resumed_ : nullptr));
  // Each rank falls back by itself from a checkpoint that it cannot read. Ranks that came to
  // different ones must not train on together.
  HEARTH_RETURN_IF_ERROR(CheckSameStart());
  HEARTH_RETURN_IF_ERROR(checkpoints_.Start());
  if (rank_.leader) {
    if (resumed_.has_value()) {
      reporter_.WarnIfNotExact(resumed_->meta);
    }
    reporter_.Announce();
  }
  return absl::OkStatus();
}

absl::Status RankRun::OpenCheckpoint() {
  if (rank_.task.resume_path().empty()) {
    return absl::OkStatus();
  }
  HEARTH_RETURN_IF_ERROR(fault::Check("checkpoint.before_load"));
  std::vector<CheckpointCandidate> candidates = {
      {rank_.task.resume_path(), rank_.task.resume_step(), rank_.task.resume_manifest_sha256()}};
  for (const v1::Checkpoint& earlier : rank_.task.earlier_checkpoints()) {
    candidates.push_back({earlier.path(), earlier.step(), earlier.manifest_sha256()});
  }
  HEARTH_ASSIGN_OR_RETURN(resumed_, LoadCheckpoint(rank_.env, candidates, rank_.spec.model()));
  for (const std::string& note : resumed_->notes) {
    rank_.link.SendLog("warning", note);
  }
  return absl::OkStatus();
}

absl::Status RankRun::OpenDevice() {
  if (absl::string_view(rank_.task.device()).substr(0, 4) != "cuda") {
    return absl::OkStatus();
  }
  rank_.blame = v1::EXIT_REASON_DEVICE;
  HEARTH_ASSIGN_OR_RETURN(
      rank_.cuda, OpenGpu(rank_.task.device(), spec::WantsDeterministic(rank_.spec.train())));
  return absl::OkStatus();
}

absl::StatusOr<int64_t> RankRun::PlanBytes() const {
  return rank_.cuda == nullptr ? CpuMemoryBytes(rank_.task.world_size())
                               : GpuMemoryBytes(*rank_.cuda, rank_.task.world_size());
}

// An open global batch stays what the run took at its beginning, whatever fits now, if it has a
// sequence for every rank.
void RankRun::KeepGlobalBatch() {
  v1::BatchSpec& batch = *rank_.spec.mutable_batch();
  const bool open = batch.micro_batch_size() == 0 && !batch.has_global_batch_tokens();
  if (resumed_.has_value() && open) {
    const int64_t tokens = resumed_->meta.global_batch_tokens;
    const int64_t sequence = rank_.spec.data().sequence_length();
    if (tokens % sequence == 0 && tokens / sequence >= std::max(1, rank_.task.world_size())) {
      batch.set_global_batch_tokens(tokens);
    }
  }
}

absl::Status RankRun::Agree() {
  KeepGlobalBatch();
  AgreementParts parts;
  for (const std::string& recipe : spec::TrialRecipes(rank_.spec)) {
    parts.forms.push_back(spec::InRecipe(rank_.spec, recipe));
  }
  if (parts.forms.empty()) {
    parts.forms.push_back(rank_.spec);
  }
  parts.task = &rank_.task;
  parts.comm = &meeting_.comm();
  parts.resumed = resumed_.has_value() ? &*resumed_ : nullptr;
  // The level first: how much memory a micro-batch leaves depends on what is divided.
  rank_.blame = v1::EXIT_REASON_BAD_SPEC;
  HEARTH_ASSIGN_OR_RETURN(parts.plan_bytes, PlanBytes());
  HEARTH_ASSIGN_OR_RETURN(parts.whole_bytes,
                          WholeMemoryBytes(rank_.cuda.get(), rank_.task.world_size()));
  rank_.host_bytes = HostMemoryBytes(rank_.env, rank_.task.world_size());
  HEARTH_ASSIGN_OR_RETURN(rank_.agreed.shard, AgreeOnShardLevel(parts, rank_.blame));
  HEARTH_ASSIGN_OR_RETURN(rank_.agreed.micro_batch,
                          AgreeOnMicroBatch(parts, rank_.agreed.shard, rank_.blame));
  rank_.blame = v1::EXIT_REASON_BAD_SPEC;
  HEARTH_ASSIGN_OR_RETURN(
      rank_.agreed.batch,
      spec::ResolveBatchPlan(rank_.spec, rank_.agreed.micro_batch, rank_.task.world_size()));
  return absl::OkStatus();
}

absl::Status RankRun::CheckSameStart() {
  rank_.blame = v1::EXIT_REASON_COMM;
  const absl::Status same =
      CheckSame(meeting_.comm(), "ranks resume from different steps", session_.trainer().step());
  if (!absl::IsDataLoss(same)) {
    return same;
  }
  rank_.blame = v1::EXIT_REASON_BAD_DATA;
  return absl::DataLossError(absl::StrCat(same.message(), "; the ranks see different checkpoints"));
}

}  // namespace hearth::trainer
