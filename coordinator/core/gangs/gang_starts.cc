#include "coordinator/core/gangs/gang_starts.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/reasons/reason_codes.h"
#include "coordinator/core/gangs/verdict.h"
#include "coordinator/core/jobs/resume_point.h"

namespace hearth::coordinator {

void GangStarts::Start(JobState& job, const std::vector<std::string>& workers) {
  HEARTH_CHECK(AllGone(job.record()), "a gang starts only when the ranks of the last one are gone");
  // Left keys would send the new ranks to addresses of processes that are gone.
  rendezvous_.Clear(job.job().job_id(), turn_.effects());
  // Reads the ranks of the last gang, so it comes before Begin clears them.
  folders_.LookAtRootsOf(job);
  const v1::Job& view = job.job();
  job.BeginEpoch(workers);
  job.gang().Begin(turn_.wall());
  const int64_t done = ResumePointOf(view).step;
  gangs_.Start(view.job_id(), done, turn_.mono());
  for (const std::string& id : workers) {
    const WorkerState& worker = workers_.at(id);
    // Bound to the incarnation: a daemon that is restarted under this name does not inherit the
    // rank.
    job.gang().AddRank(id, worker.worker().incarnation());
    workers_.Assign(worker, view.job_id());
  }
  NoteDevices(job);
  states_.Transition(job, v1::JOB_STATE_STARTING, "scheduler", reasons::kScheduled,
                     absl::StrCat("epoch ", view.epoch(), " on ", absl::StrJoin(workers, ", "),
                                  done > 0 ? absl::StrCat(" from step ", done) : ""));
  // Last, as a task carries epoch and ranks. The messages leave after the commit, so no worker ever
  // runs an epoch that the store does not know.
  for (int i = 0; i < job.record().ranks_size(); ++i) {
    SendStart(job, i);
  }
}

void GangStarts::NoteDevices(JobState& job) {
  auto& groups = *job.devices().mutable_groups();
  groups.Clear();
  for (const v1::RankRecord& rank : job.record().ranks()) {
    const v1::Worker& worker = workers_.at(rank.worker_id()).worker();
    const v1::DeviceInfo& device = worker.device();
    v1::DeviceGroup made;
    made.set_host(worker.host());
    made.set_kind(device.kind());
    made.set_model(device.model());
    made.set_driver_version(device.driver_version());
    made.set_cuda_version(device.cuda_version());
    made.set_version(worker.version());
    const auto same = [&made](const v1::DeviceGroup& group) {
      return group.host() == made.host() && group.kind() == made.kind() &&
             group.model() == made.model() && group.driver_version() == made.driver_version() &&
             group.cuda_version() == made.cuda_version() && group.version() == made.version();
    };
    auto group = std::find_if(groups.begin(), groups.end(), same);
    if (group == groups.end()) {
      *groups.Add() = std::move(made);
      group = groups.end() - 1;
    }
    group->add_worker_ids(rank.worker_id());
  }
}

void GangStarts::SendStart(JobState& job, int rank) {
  const v1::Job& view = job.job();
  const WorkerState& worker = workers_.at(job.record().ranks(rank).worker_id());
  const v1::Worker& host = worker.worker();
  v1::CoordinatorMessage message;
  v1::Task& task = *message.mutable_start()->mutable_task();
  task.set_job_id(view.job_id());
  task.set_epoch(view.epoch());
  task.set_rank(rank);
  task.set_world_size(job.record().ranks_size());
  *task.mutable_spec() = view.spec();
  if (view.has_trial()) {
    *task.mutable_trial() = view.trial();
  }
  task.set_checkpoint_dir(
      absl::StrCat(host.checkpoint_root(), "/", view.job_id(), "/e", view.epoch()));
  task.set_device(host.device().kind() == "cuda" ? absl::StrCat("cuda:", host.device().index())
                                                 : host.device().kind());
  const int threads = view.spec().resources().threads();
  task.set_rendezvous_seconds(absl::ToDoubleSeconds(options_.rendezvous_timeout));
  // Longer than the coordinator waits: it knows which rank the others wait for.
  task.set_gather_seconds(2 * absl::ToDoubleSeconds(options_.loading_timeout));
  task.set_threads(std::max(1, threads > 0 ? threads : host.device().threads()));
  task.set_resume_step(ResumePointOf(view).step);
  for (const v1::EvaluatedModel& model : view.models()) {
    v1::Checkpoint& folder = *task.add_models();
    folder = model.checkpoint();
    folder.set_path(FolderOn(host, model.checkpoint()));
  }
  // Newest first: the first one is what the gang resumes from.
  for (const v1::Checkpoint& checkpoint : job.record().checkpoints()) {
    if (task.resume_path().empty()) {
      task.set_resume_path(FolderOn(host, checkpoint));
      task.set_resume_manifest_sha256(checkpoint.manifest_sha256());
    } else if (checkpoint.root_uuid() == host.root_uuid()) {
      // Earlier ones in case the newest is damaged: those that this worker can read.
      v1::Checkpoint& earlier = *task.add_earlier_checkpoints();
      earlier = checkpoint;
      earlier.set_path(FolderOn(host, checkpoint));
    }
  }
  turn_.Send(worker, std::move(message));
}

}  // namespace hearth::coordinator
