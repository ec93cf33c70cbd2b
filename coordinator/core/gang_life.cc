// Gangs: how they start, how they are stopped, and what follows when their ranks are gone.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "coordinator/core/errors.h"
#include "coordinator/core/parts.h"

namespace hearth::coordinator {
namespace {

constexpr int kDefaultGraceSeconds = 60;
constexpr int kDefaultMaxRestarts = 3;
}  // namespace

absl::Duration Grace(const v1::Job& job) {
  const v1::CheckpointSpec& spec = job.spec().checkpoint();
  return absl::Seconds(spec.has_grace_seconds() ? spec.grace_seconds() : kDefaultGraceSeconds);
}

std::string FolderOn(const v1::Worker& worker, const v1::Checkpoint& checkpoint) {
  const std::string part = absl::StrCat("/", checkpoint.job_id(), "/e", checkpoint.epoch(), "/");
  const size_t at = checkpoint.path().rfind(part);
  if (at == std::string::npos || worker.checkpoint_root().empty()) {
    return checkpoint.path();
  }
  return worker.checkpoint_root() + checkpoint.path().substr(at);
}

void CoreParts::StartGang(JobState& job, const std::vector<std::string>& workers) {
  HEARTH_CHECK(AllGone(job.record()), "a gang starts only when the ranks of the last one are gone");
  rendezvous_.Clear(job.job().job_id(), effects_);
  LookAtRootsOf(job);
  v1::Job& view = job.job();
  view.set_epoch(view.epoch() + 1);
  view.clear_workers();
  view.clear_run_info();
  job.gang().Begin(now_.wall);
  gangs_.Start(view.job_id(), view.checkpoint().step(), Mono());
  for (const std::string& id : workers) {
    const WorkerState& worker = workers_.at(id);
    job.gang().AddRank(id, worker.worker().incarnation());
    view.add_workers(id);
    workers_.Assign(worker, view.job_id());
  }
  NoteDevices(job);
  Transition(
      job, v1::JOB_STATE_STARTING, "scheduler", "scheduled",
      absl::StrCat(
          "epoch ", view.epoch(), " on ", absl::StrJoin(workers, ", "),
          view.has_checkpoint() ? absl::StrCat(" from step ", view.checkpoint().step()) : ""));
  for (int i = 0; i < job.record().ranks_size(); ++i) {
    SendStart(job, i);
  }
}

void CoreParts::NoteDevices(JobState& job) {
  auto& groups = *job.job().mutable_devices()->mutable_groups();
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

void CoreParts::SendStart(JobState& job, int rank) {
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
  for (const v1::Checkpoint& checkpoint : job.record().checkpoints()) {
    if (task.resume_path().empty()) {
      task.set_resume_path(FolderOn(host, checkpoint));
      task.set_resume_step(checkpoint.step());
      task.set_resume_manifest_sha256(checkpoint.manifest_sha256());
    } else if (checkpoint.root_uuid() == host.root_uuid()) {
      v1::Checkpoint& earlier = *task.add_earlier_checkpoints();
      earlier = checkpoint;
      earlier.set_path(FolderOn(host, checkpoint));
    }
  }
  Send(worker, std::move(message));
}

void CoreParts::Stop(JobState& job,
                     v1::JobState to,
                     v1::ControlBit bit,
                     const std::string& actor,
                     const std::string& code,
                     const std::string& reason,
                     bool kill_now) {
  // Before its first step a gang has nothing to save and may hang in rendezvous. A worker out of
  // reach may have trained on, so it is asked.
  bool all_reached = true;
  for (const v1::RankRecord& rank : job.record().ranks()) {
    const WorkerState& worker = workers_.at(rank.worker_id());
    all_reached = all_reached && (rank.gone() || (worker.connection != 0 && !Silent(worker)));
  }
  const bool nothing_to_save =
      job.state() == v1::JOB_STATE_STARTING && all_reached &&
      gangs_.of(job.job().job_id()).step() <= job.job().checkpoint().step();
  Transition(job, to, actor, code, reason);
  job.gang().Stop(bit, code, reason);
  gangs_.of(job.job().job_id()).EndBy(Mono() + Grace(job.job()));
  if (kill_now || nothing_to_save) {
    Kill(job, reason);
  } else {
    for (int i = 0; i < job.record().ranks_size(); ++i) {
      SendStop(job, i);
    }
  }
  Settle(job);
}

void CoreParts::Kill(JobState& job, const std::string& why) {
  job.gang().Kill(why);
  jobs_.Mark(job, true);
  for (int i = 0; i < job.record().ranks_size(); ++i) {
    SendStop(job, i);
  }
}

void CoreParts::SendStop(JobState& job, int rank) {
  const v1::StopRecord& stop = job.record().stop();
  const v1::RankRecord& record = job.record().ranks(rank);
  if (!job.record().has_stop() || record.gone()) {
    return;
  }
  v1::CoordinatorMessage message;
  if (stop.kill()) {
    gangs_.of(job.job().job_id()).KillSent(Mono());
    message.mutable_kill()->set_job_id(job.job().job_id());
    message.mutable_kill()->set_epoch(job.job().epoch());
    message.mutable_kill()->set_reason(stop.reason());
  } else if (stop.control_bit() != v1::CONTROL_BIT_UNSPECIFIED) {
    message.mutable_control()->set_job_id(job.job().job_id());
    message.mutable_control()->set_epoch(job.job().epoch());
    message.mutable_control()->set_bit(static_cast<v1::ControlBit>(stop.control_bit()));
  } else {
    return;
  }
  Send(workers_.at(record.worker_id()), std::move(message));
}

void CoreParts::ReleaseWorker(JobState& job, int rank) {
  if (rank == 0) {
    job.job().clear_phase();
  }
  workers_.Release(workers_.at(job.record().ranks(rank).worker_id()), job.job().job_id(), Mono());
}

void CoreParts::LoseRank(JobState& job, int rank, const std::string& why, const std::string& code) {
  HEARTH_CHECK(rank >= 0, "a worker's task is a rank of its job");
  const v1::RankRecord& record = job.record().ranks(rank);
  if (record.gone()) {
    return;
  }
  job.gang().Lost(rank, why, now_.wall - (Mono() - workers_.at(record.worker_id()).last_seen));
  jobs_.CountReason(code);
  jobs_.Mark(job, true);
  ReleaseWorker(job, rank);
  Settle(job);
}

void CoreParts::NoteFault(JobState& job, const Verdict& verdict) {
  if (verdict.rank < 0) {
    return;
  }
  v1::Recovery& recovery = *job.job().mutable_recovery();
  if (recovery.seconds() > 0.0) {
    recovery.Clear();  // of an earlier one
  }
  const v1::RankRecord& rank = job.record().ranks(verdict.rank);
  const absl::Time fault = rank.has_fault_time() ? FromProto(rank.fault_time()) : now_.wall;
  if (!recovery.has_fault_time() || fault < FromProto(recovery.fault_time())) {
    *recovery.mutable_fault_time() = ToProto(fault);
  }
  recovery.set_rank(verdict.rank);
  recovery.set_worker_id(rank.worker_id());
  recovery.set_host(workers_.at(rank.worker_id()).worker().host());
  recovery.set_reason_code(verdict.code);
  const std::string& said = rank.lost()       ? rank.lost_reason()
                            : rank.has_exit() ? rank.exit().exit().message()
                                              : rank.dying().message();
  recovery.set_reason(said.empty() ? verdict.message : said);
  jobs_.Mark(job, true);
}

void CoreParts::NoteRecovered(JobState& job, int64_t step) {
  if (!job.job().has_recovery()) {
    return;
  }
  v1::Recovery& recovery = *job.job().mutable_recovery();
  if (!recovery.has_fault_time() || recovery.seconds() > 0.0) {
    return;
  }
  // By the wall clock, for a restart of the coordinator may lie between.
  recovery.set_seconds(
      std::max(0.001, absl::ToDoubleSeconds(now_.wall - FromProto(recovery.fault_time()))));
  recovery.set_step(step - 1);
  recovery.set_workers(job.record().ranks_size());
  AddEvent(
      job, "recovery", "coordinator", recovery.reason_code(),
      absl::StrFormat("recovered in %.1f s: lost rank %d on %s (%s), resumed from step %d with "
                      "%d worker%s",
                      recovery.seconds(), recovery.rank(), recovery.worker_id(), recovery.reason(),
                      recovery.step(), recovery.workers(), recovery.workers() == 1 ? "" : "s"),
      job.state(), job.state());
}

bool CoreParts::MayRestart(JobState& job) {
  const v1::ResourceSpec& spec = job.job().spec().resources();
  job.job().set_restarts(job.job().restarts() + 1);
  jobs_.Mark(job, true);
  return job.job().restarts() <=
         (spec.has_max_restarts() ? spec.max_restarts() : kDefaultMaxRestarts);
}

void CoreParts::Settle(JobState& job) {
  switch (job.state()) {
    case v1::JOB_STATE_STARTING:
    case v1::JOB_STATE_RUNNING:
      return SettleRunning(job);
    case v1::JOB_STATE_RECOVERING:
      return SettleRecovering(job);
    case v1::JOB_STATE_PAUSING:
    case v1::JOB_STATE_REQUEUEING:
    case v1::JOB_STATE_CANCELLING:
      return SettleStopping(job);
    default:
      return;
  }
}

void CoreParts::Finish(JobState& job,
                       v1::JobState to,
                       const std::string& code,
                       const std::string& reason) {
  if (to == v1::JOB_STATE_SUCCEEDED && job.state() == v1::JOB_STATE_STARTING) {
    Transition(job, v1::JOB_STATE_RUNNING, "trainer", "finished", "no step was left to do");
  }
  Transition(job, to, "trainer", code, reason);
}

void CoreParts::SettleRunning(JobState& job) {
  const auto& ranks = job.record().ranks();
  if (Finished(ranks[0])) {
    // The final checkpoint is announced; what becomes of the others cannot undo that.
    if (AllGone(job.record())) {
      Finish(job, v1::JOB_STATE_SUCCEEDED, "finished", "all steps are done");
    } else {
      gangs_.of(job.job().job_id()).EndBy(Mono() + Grace(job.job()));
    }
    return;
  }
  const bool broken = AnyBroken(job.record());
  const bool left = std::any_of(ranks.begin(), ranks.end(), [](const v1::RankRecord& rank) {
    return rank.gone() && !Finished(rank);
  });
  if (broken || left || AllGone(job.record())) {
    Recover(job);
  }
}

void CoreParts::Recover(JobState& job) {
  const Verdict verdict = JudgeGang(job.record());
  if (AllGone(job.record()) && verdict.exit_class == ExitClass::kFatal) {
    Finish(job, v1::JOB_STATE_FAILED, verdict.code, verdict.message);
    return;
  }
  if (AllGone(job.record()) && !verdict.lost && verdict.exit_class != ExitClass::kStopped &&
      !MayRestart(job)) {
    Finish(job, v1::JOB_STATE_FAILED, "max_restarts",
           absl::StrCat("failed ", job.job().restarts(),
                        " times without a new checkpoint; last: ", verdict.message));
    return;
  }
  NoteFault(job, verdict);
  Transition(job, v1::JOB_STATE_RECOVERING, verdict.actor, verdict.code, verdict.message);
  if (AllGone(job.record())) {
    job.gang().ClearStop();
    return;
  }
  job.gang().SayWhy(verdict.code, verdict.message);
  gangs_.of(job.job().job_id()).EndBy(Mono() + Grace(job.job()));
  if (AnyBroken(job.record())) {
    Kill(job, verdict.message);
  }
}

void CoreParts::SettleRecovering(JobState& job) {
  if (!AllGone(job.record())) {
    if (!job.record().stop().kill() && AnyBroken(job.record())) {
      Kill(job, JudgeGang(job.record()).message);
    }
    return;
  }
  if (!job.record().has_stop()) {
    return;
  }
  const Verdict verdict = JudgeGang(job.record());
  if (verdict.exit_class == ExitClass::kFatal) {
    Finish(job, v1::JOB_STATE_FAILED, verdict.code, verdict.message);
    return;
  }
  const bool counts = !verdict.lost && verdict.exit_class != ExitClass::kStopped &&
                      verdict.exit_class != ExitClass::kFinished;
  if (counts && !MayRestart(job)) {
    Finish(job, v1::JOB_STATE_FAILED, "max_restarts",
           absl::StrCat("failed ", job.job().restarts(),
                        " times without a new checkpoint; last: ", verdict.message));
    return;
  }
  NoteFault(job, verdict);  // by now it may be known better who was first
  job.gang().ClearStop();
  job.job().set_reason_code(verdict.code);
  job.job().set_reason(absl::StrCat(verdict.message, "; all ranks are gone"));
  jobs_.Mark(job, true);
  plan_.Ask();
}

void CoreParts::SettleStopping(JobState& job) {
  if (!AllGone(job.record())) {
    if (!job.record().stop().kill() && AnyBroken(job.record())) {
      Kill(job, JudgeGang(job.record()).message);
    }
    return;
  }
  const Verdict verdict = JudgeGang(job.record());
  const v1::StopRecord stop = job.record().stop();
  if (verdict.exit_class == ExitClass::kFinished) {
    Finish(job, v1::JOB_STATE_SUCCEEDED, "finished", "all steps are done");
    return;
  }
  if (verdict.exit_class == ExitClass::kFatal) {
    Finish(job, v1::JOB_STATE_FAILED, verdict.code, verdict.message);
    return;
  }
  std::string reason = stop.reason();
  const bool failed =
      verdict.exit_class == ExitClass::kFailure || verdict.exit_class == ExitClass::kPeers;
  if (failed || verdict.lost) {
    absl::StrAppend(&reason, "; ended at the last checkpoint: ", verdict.message);
  }
  if (stop.fail()) {
    Finish(job, v1::JOB_STATE_FAILED, stop.reason_code(), reason);
  } else if (job.state() == v1::JOB_STATE_CANCELLING) {
    Finish(job, v1::JOB_STATE_CANCELLED, stop.reason_code(), reason);
  } else if (job.state() == v1::JOB_STATE_PAUSING) {
    Finish(job, v1::JOB_STATE_PAUSED, stop.reason_code(), reason);
    if (job.job().desired() == v1::DESIRED_RUN) {
      Transition(job, v1::JOB_STATE_QUEUED, "user", "user_resume", "resumed by the user");
    }
  } else if (failed && !MayRestart(job)) {
    Finish(job, v1::JOB_STATE_FAILED, "max_restarts", reason);
  } else {
    Finish(job, v1::JOB_STATE_QUEUED, stop.reason_code(), reason);
  }
}

}  // namespace hearth::coordinator
