#include "coordinator/core/folders/checkpoints.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/spec/fields/rows.h"
#include "coordinator/core/errors.h"
#include "coordinator/core/transitions.h"

namespace hearth::coordinator {

namespace {

// Type of the events that say who holds checkpoints: remarks in jobs.cc.
constexpr const char* kHeldEvent = "keep_last";

int Keep(const v1::Job& job) {
  return std::max(1, static_cast<int>(spec::IntOrDefault(
                         job.spec().checkpoint(), v1::CheckpointSpec::kKeepLastFieldNumber)));
}

}  // namespace

std::vector<CommandRow> Checkpoints::Rows() {
  return {
      Row<&Checkpoints::Delete>("delete_checkpoint"),
  };
}

void Checkpoints::Announced(const WorkerState& worker,
                            JobState& job,
                            int rank,
                            const v1::CheckpointAnnouncement& announcement) {
  if (rank != 0) {
    return;
  }
  const v1::Job& view = job.job();
  v1::Checkpoint checkpoint;
  checkpoint.set_job_id(view.job_id());
  checkpoint.set_epoch(view.epoch());
  checkpoint.set_step(announcement.step());
  checkpoint.set_path(announcement.path());
  checkpoint.set_root_uuid(worker.worker().root_uuid());
  checkpoint.set_bytes(announcement.bytes());
  checkpoint.set_manifest_sha256(announcement.manifest_sha256());
  checkpoint.set_validation_loss(announcement.validation_loss());
  *checkpoint.mutable_create_time() = ToProto(turn_.wall());

  auto& kept = job.checkpoints();
  kept.erase(std::remove_if(kept.begin(), kept.end(),
                            [&](const v1::Checkpoint& old) {
                              const auto& removed = announcement.removed_steps();
                              return old.epoch() == view.epoch() &&
                                     (old.step() == announcement.step() ||
                                      std::find(removed.begin(), removed.end(), old.step()) !=
                                          removed.end());
                            }),
             kept.end());
  *kept.Add() = checkpoint;
  // Newest first, by swaps, as a repeated field has no insert.
  for (int i = kept.size() - 1; i > 0; --i) {
    kept.SwapElements(i, i - 1);
  }
  job.NameNewest();
  // A new checkpoint is progress: what failed before does not count against the next failure.
  job.set_restarts(0);
  job.checkpoint_time = turn_.mono();
  turn_.effects().checkpoint_writes.push_back({view.job_id(), announcement.seconds()});
  rendezvous_.ForgetCheckpoints(view.job_id(), view.epoch(), announcement.step(), turn_.effects());
  gangs_.of(view.job_id()).Progress(announcement.step(), turn_.mono());
  // A walk over all jobs, so only where there is something to remove.
  Prune(job, job.checkpoints().size() > Keep(job.job()) ? FindAwaited() : Awaited());
  states_.Note(
      job, "checkpoint", "trainer",
      absl::StrCat("checkpoint of step ", announcement.step(), " in ", announcement.path()));
  if (view.workers_size() < view.spec().resources().workers()) {
    plan_.Ask();  // it may grow right after a checkpoint
  }
}

int Checkpoints::Prune(JobState& job, const Awaited& awaited) {
  const int keep = Keep(job.job());
  auto& kept = job.checkpoints();
  const int before = kept.size();
  Holders holders;
  // At least one is kept, so the newest, at 0, never goes: it is what the job resumes from.
  for (int i = kept.size() - 1; i >= keep; --i) {
    const auto found = awaited.find({kept[i].job_id(), kept[i].epoch(), kept[i].step()});
    if (found == awaited.end()) {
      folders_.Drop(kept[i]);
      kept.erase(kept.begin() + i);
      continue;
    }
    for (const std::string& id : found->second) {
      holders[id] = jobs_.at(id).state() == v1::JOB_STATE_PAUSED;
    }
  }
  Say(job, holders);
  return before - kept.size();
}

void Checkpoints::Say(JobState& job, const Holders& holders) {
  const std::string& id = job.job().job_id();
  if (holders.empty()) {
    over_.erase(id);
    return;
  }
  const auto found = over_.find(id);
  // Empty: of the time before this process, which may have ended before it said who is paused.
  const bool restored = found != over_.end() && found->second.empty();
  const bool any_paused =
      std::any_of(holders.begin(), holders.end(), [](const auto& holder) { return holder.second; });
  const bool said = restored ? !any_paused : found != over_.end() && found->second == holders;
  const Holders before = found == over_.end() ? Holders() : found->second;
  over_[id] = holders;
  if (said) {
    return;
  }
  std::vector<std::string> names;
  for (const auto& [holder, paused] : holders) {
    names.push_back(absl::StrCat(holder, paused ? " (paused)" : ""));
    const auto known = before.find(holder);
    if (paused && (known == before.end() || !known->second)) {
      states_.Note(
          *jobs_.Edit(holder), kHeldEvent, "coordinator",
          absl::StrCat("checkpoints of ", id,
                       " stay beyond its checkpoint.keep_last while this job is paused: it "
                       "still has to evaluate them; cancel it to release them"));
    }
  }
  states_.Note(
      job, kHeldEvent, "coordinator",
      absl::StrCat("checkpoints stay beyond checkpoint.keep_last: ", absl::StrJoin(names, ", "),
                   " still ", names.size() == 1 ? "has" : "have", " to evaluate them"));
}

Checkpoints::Awaited Checkpoints::FindAwaited() const {
  Awaited awaited;
  for (const auto& [id, job] : jobs_.Walk()) {
    if (IsTerminal(job.state())) {
      continue;
    }
    const auto& models = job.job().models();
    // A report of a worker may name any step.
    for (int64_t i = std::max<int64_t>(0, job.job().step()); i < models.size(); ++i) {
      const v1::Checkpoint& checkpoint = models[static_cast<int>(i)].checkpoint();
      awaited[{checkpoint.job_id(), checkpoint.epoch(), checkpoint.step()}].push_back(id);
    }
  }
  return awaited;
}

void Checkpoints::Check() {
  if (!std::exchange(restored_, true)) {
    for (const auto& [id, job] : jobs_.all()) {
      if (job.record().checkpoints_size() > Keep(job.job())) {
        over_.try_emplace(id);
      }
    }
  }
  if (!jobs_.TakeReadersChanged() || over_.empty()) {
    return;
  }
  const Awaited awaited = FindAwaited();
  for (const auto& [id, holders] : std::map<std::string, Holders>(over_)) {
    JobState* const job = jobs_.Edit(id);
    if (job == nullptr) {
      over_.erase(id);
    } else if (const int dropped = Prune(*job, awaited); dropped > 0) {
      states_.Note(
          *job, "checkpoint", "coordinator",
          absl::StrCat(dropped, " beyond checkpoint.keep_last dropped: no job still has to ",
                       "evaluate ", dropped == 1 ? "it" : "them"));
    }
  }
}

void Checkpoints::Delete(const v1::DeleteCheckpointRequest& request) {
  JobState* job = states_.FindOrReply(request.job_id());
  if (job == nullptr) {
    return;
  }
  auto& kept = job->checkpoints();
  auto it = std::find_if(kept.begin(), kept.end(), [&request](const v1::Checkpoint& c) {
    return c.step() == request.step() && c.epoch() == request.epoch();
  });
  if (it == kept.end()) {
    turn_.ReplyError(
        MakeError(absl::StatusCode::kNotFound, "CHECKPOINT_NOT_FOUND",
                  absl::StrCat("job ", request.job_id(), " has no checkpoint of epoch ",
                               request.epoch(), ", step ", request.step())));
    return;
  }
  if (it == kept.begin() && !IsTerminal(job->state())) {
    turn_.ReplyError(MakeError(absl::StatusCode::kFailedPrecondition, "NEWEST_CHECKPOINT",
                               "the newest checkpoint of a living job is what it resumes from"));
    return;
  }
  folders_.Drop(*it);
  kept.erase(it);
  job->NameNewest();
  states_.Note(*job, "checkpoint", turn_.user(),
               absl::StrCat("checkpoint of step ", request.step(), " deleted"));
  turn_.ReplyJob(job->job());
}

}  // namespace hearth::coordinator
