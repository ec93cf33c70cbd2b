// Gangs: how they start, how they are stopped, and what follows when their ranks are gone.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "coordinator/core/errors.h"
#include "coordinator/core/impl.h"

namespace hearth::coordinator {
namespace {

constexpr int kDefaultGraceSeconds = 60;
constexpr int kDefaultMaxRestarts = 3;
constexpr absl::Duration kKillAgain = absl::Seconds(10);

bool Finished(const v1::RankRecord& rank) {
  return rank.gone() && !rank.lost() && rank.exit().exit().reason() == v1::EXIT_REASON_FINISHED;
}

// Ended, lost, or killed by nobody of ours, or about to be gone so: the others cannot go on without
// it.
bool Broken(const v1::RankRecord& rank) {
  if (!rank.gone()) {
    return rank.has_dying();
  }
  if (rank.lost()) {
    return true;
  }
  const ExitClass exit_class = ExitRowOf(rank.exit().exit().reason()).exit_class;
  return exit_class != ExitClass::kFinished && exit_class != ExitClass::kStopped;
}

}  // namespace

absl::Duration Grace(const JobState& job) {
  const v1::CheckpointSpec& spec = job.job().spec().checkpoint();
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

bool Core::Impl::AllGone(const JobState& job) const {
  const auto& ranks = job.record.ranks();
  return std::all_of(ranks.begin(), ranks.end(),
                     [](const v1::RankRecord& rank) { return rank.gone(); });
}

bool Core::Impl::ReadyToRestart(const JobState& job) const {
  return job.state() == v1::JOB_STATE_RECOVERING && !job.record.has_stop() && AllGone(job);
}

void Core::Impl::StartGang(JobState& job, const std::vector<std::string>& workers) {
  HEARTH_CHECK(AllGone(job), "a gang starts only when the ranks of the last one are gone");
  ClearKv(job.job().job_id());
  LookAtRootsOf(job);
  v1::Job& view = job.job();
  view.set_epoch(view.epoch() + 1);
  view.clear_workers();
  view.clear_run_info();
  job.record.clear_ranks();
  job.record.clear_stop();
  job.record.set_epoch_opened(false);
  job.phases.clear();
  *job.record.mutable_epoch_time() = ToProto(now_.wall);
  job.progress_step = view.checkpoint().step();
  job.last_progress = job.gang_start = Mono();
  job.stop_deadline = job.kill_time = job.kill_again = absl::InfiniteDuration();
  for (const std::string& id : workers) {
    WorkerState& worker = *FindWorker(id);
    HEARTH_CHECK(worker.job_id.empty() && worker.connection != 0, "gangs start on free workers");
    v1::RankRecord& rank = *job.record.add_ranks();
    rank.set_worker_id(id);
    rank.set_incarnation(worker.worker().incarnation());
    view.add_workers(id);
    worker.job_id = view.job_id();
    MarkWorker(worker, false);
  }
  NoteDevices(job);
  Transition(
      job, v1::JOB_STATE_STARTING, "scheduler", "scheduled",
      absl::StrCat(
          "epoch ", view.epoch(), " on ", absl::StrJoin(workers, ", "),
          view.has_checkpoint() ? absl::StrCat(" from step ", view.checkpoint().step()) : ""));
  for (int i = 0; i < job.record.ranks_size(); ++i) {
    SendStart(job, i);
  }
}

void Core::Impl::NoteDevices(JobState& job) {
  auto& groups = *job.job().mutable_devices()->mutable_groups();
  groups.Clear();
  for (const v1::RankRecord& rank : job.record.ranks()) {
    const v1::Worker& worker = FindWorker(rank.worker_id())->worker();
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

void Core::Impl::SendStart(JobState& job, int rank) {
  const v1::Job& view = job.job();
  const WorkerState& worker = *FindWorker(job.record.ranks(rank).worker_id());
  const v1::Worker& host = worker.worker();
  v1::CoordinatorMessage message;
  v1::Task& task = *message.mutable_start()->mutable_task();
  task.set_job_id(view.job_id());
  task.set_epoch(view.epoch());
  task.set_rank(rank);
  task.set_world_size(job.record.ranks_size());
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
  for (const v1::Checkpoint& checkpoint : job.record.checkpoints()) {
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

void Core::Impl::Stop(JobState& job,
                      v1::JobState to,
                      v1::ControlBit bit,
                      const std::string& actor,
                      const std::string& code,
                      const std::string& reason,
                      bool kill_now) {
  // Before its first step a gang has nothing to save and may hang in rendezvous. A worker out of
  // reach may have trained on, so it is asked.
  bool all_reached = true;
  for (const v1::RankRecord& rank : job.record.ranks()) {
    const WorkerState& worker = *FindWorker(rank.worker_id());
    all_reached = all_reached && (rank.gone() || (worker.connection != 0 && !Silent(worker)));
  }
  const bool nothing_to_save = job.state() == v1::JOB_STATE_STARTING && all_reached &&
                               job.progress_step <= job.job().checkpoint().step();
  Transition(job, to, actor, code, reason);
  v1::StopRecord& stop = *job.record.mutable_stop();
  stop.set_control_bit(bit);
  stop.set_reason_code(code);
  stop.set_reason(reason);
  stop.set_fail(false);
  job.stop_deadline = std::min(job.stop_deadline, Mono() + Grace(job));
  if (kill_now || nothing_to_save) {
    Kill(job, reason);
  } else {
    for (int i = 0; i < job.record.ranks_size(); ++i) {
      SendStop(job, i);
    }
  }
  Settle(job);
}

void Core::Impl::Kill(JobState& job, const std::string& why) {
  job.record.mutable_stop()->set_kill(true);
  if (job.record.stop().reason().empty()) {
    job.record.mutable_stop()->set_reason(why);
  }
  MarkJob(job, true);
  for (int i = 0; i < job.record.ranks_size(); ++i) {
    SendStop(job, i);
  }
}

void Core::Impl::SendStop(JobState& job, int rank) {
  const v1::StopRecord& stop = job.record.stop();
  const v1::RankRecord& record = job.record.ranks(rank);
  if (!job.record.has_stop() || record.gone()) {
    return;
  }
  v1::CoordinatorMessage message;
  if (stop.kill()) {
    job.kill_time = std::min(job.kill_time, Mono());
    job.kill_again = Mono() + kKillAgain;
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
  Send(*FindWorker(record.worker_id()), std::move(message));
}

void Core::Impl::ReleaseWorker(JobState& job, int rank) {
  if (rank == 0) {
    job.job().clear_phase();
  }
  WorkerState& worker = *FindWorker(job.record.ranks(rank).worker_id());
  if (worker.job_id == job.job().job_id()) {
    worker.job_id.clear();
    worker.idle_since = Mono();
    MarkWorker(worker, false);
    plan_due_ = true;
  }
}

void Core::Impl::LoseRank(JobState& job,
                          int rank,
                          const std::string& why,
                          const std::string& code) {
  HEARTH_CHECK(rank >= 0, "a worker's task is a rank of its job");
  v1::RankRecord& record = *job.record.mutable_ranks(rank);
  if (record.gone()) {
    return;
  }
  record.set_gone(true);
  record.set_lost(true);
  record.set_lost_reason(why);
  if (!record.has_dying()) {
    *record.mutable_fault_time() =
        ToProto(now_.wall - (Mono() - FindWorker(record.worker_id())->last_seen));
  }
  ++reason_counts_[code];
  MarkJob(job, true);
  ReleaseWorker(job, rank);
  Settle(job);
}

Core::Impl::Verdict Core::Impl::Judge(const JobState& job) const {
  const auto& ranks = job.record.ranks();
  Verdict verdict;
  verdict.code = "trainer_stopped";
  verdict.message = "the trainer left on request";
  verdict.actor = "trainer";
  if (ranks.empty() || Finished(ranks[0])) {
    verdict.exit_class = ExitClass::kFinished;
    verdict.code = "finished";
    verdict.message = "all steps are done";
    return verdict;
  }
  // Who is to blame: a fatal error, else a lost worker, else a trainer's own failure, else peers
  // that lost each other.
  int best = 0;
  for (int i = 0; i < ranks.size(); ++i) {
    const v1::RankRecord& rank = ranks[i];
    const v1::TrainerExit& end = rank.has_exit() ? rank.exit().exit() : rank.dying();
    const ExitRow& row = ExitRowOf(end.reason());
    if (!rank.gone() && !rank.has_dying()) {
      continue;
    }
    int weight = 0;
    if (rank.lost()) {
      weight = 3;
    } else if (row.exit_class == ExitClass::kFatal) {
      weight = 4;
    } else if (row.exit_class == ExitClass::kFailure && !rank.killed_by_us()) {
      weight = 2;
    } else if (row.exit_class == ExitClass::kPeers && !rank.killed_by_us()) {
      weight = 1;
    }
    if (weight <= best) {
      continue;
    }
    best = weight;
    verdict.rank = i;
    verdict.lost = rank.lost();
    verdict.exit_class = rank.lost() ? ExitClass::kStopped : row.exit_class;
    verdict.code = rank.lost() ? "worker_lost" : row.code;
    verdict.actor = absl::StrCat("worker:", rank.worker_id());
    verdict.message =
        rank.lost()
            ? rank.lost_reason()
            : absl::StrCat("rank ", i, " on ", rank.worker_id(), ": ",
                           end.message().empty()
                               ? absl::StrCat("ended with status ", rank.exit().wait_status())
                               : end.message());
  }
  if (best == 0 && job.record.stop().reason_code() == kGangNotFormed) {
    verdict.exit_class = ExitClass::kPeers;
    verdict.rank = -1;
    verdict.code = kGangNotFormed;
    verdict.message = job.record.stop().reason();
    verdict.actor = "coordinator";
  }
  return verdict;
}

void Core::Impl::NoteFault(JobState& job, const Verdict& verdict) {
  if (verdict.rank < 0) {
    return;
  }
  v1::Recovery& recovery = *job.job().mutable_recovery();
  if (recovery.seconds() > 0.0) {
    recovery.Clear();  // of an earlier one
  }
  const v1::RankRecord& rank = job.record.ranks(verdict.rank);
  const absl::Time fault = rank.has_fault_time() ? FromProto(rank.fault_time()) : now_.wall;
  if (!recovery.has_fault_time() || fault < FromProto(recovery.fault_time())) {
    *recovery.mutable_fault_time() = ToProto(fault);
  }
  recovery.set_rank(verdict.rank);
  recovery.set_worker_id(rank.worker_id());
  recovery.set_host(FindWorker(rank.worker_id())->worker().host());
  recovery.set_reason_code(verdict.code);
  const std::string& said = rank.lost()       ? rank.lost_reason()
                            : rank.has_exit() ? rank.exit().exit().message()
                                              : rank.dying().message();
  recovery.set_reason(said.empty() ? verdict.message : said);
  MarkJob(job, true);
}

void Core::Impl::NoteRecovered(JobState& job, int64_t step) {
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
  recovery.set_workers(job.record.ranks_size());
  AddEvent(
      job, "recovery", "coordinator", recovery.reason_code(),
      absl::StrFormat("recovered in %.1f s: lost rank %d on %s (%s), resumed from step %d with "
                      "%d worker%s",
                      recovery.seconds(), recovery.rank(), recovery.worker_id(), recovery.reason(),
                      recovery.step(), recovery.workers(), recovery.workers() == 1 ? "" : "s"),
      job.state(), job.state());
}

bool Core::Impl::MayRestart(JobState& job) {
  const v1::ResourceSpec& spec = job.job().spec().resources();
  job.job().set_restarts(job.job().restarts() + 1);
  MarkJob(job, true);
  return job.job().restarts() <=
         (spec.has_max_restarts() ? spec.max_restarts() : kDefaultMaxRestarts);
}

void Core::Impl::Settle(JobState& job) {
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

void Core::Impl::Finish(JobState& job,
                        v1::JobState to,
                        const std::string& code,
                        const std::string& reason) {
  if (to == v1::JOB_STATE_SUCCEEDED && job.state() == v1::JOB_STATE_STARTING) {
    Transition(job, v1::JOB_STATE_RUNNING, "trainer", "finished", "no step was left to do");
  }
  Transition(job, to, "trainer", code, reason);
}

void Core::Impl::SettleRunning(JobState& job) {
  const auto& ranks = job.record.ranks();
  if (Finished(ranks[0])) {
    // The final checkpoint is announced; what becomes of the others cannot undo that.
    if (AllGone(job)) {
      Finish(job, v1::JOB_STATE_SUCCEEDED, "finished", "all steps are done");
    } else {
      job.stop_deadline = std::min(job.stop_deadline, Mono() + Grace(job));
    }
    return;
  }
  const bool broken = std::any_of(ranks.begin(), ranks.end(), Broken);
  const bool left = std::any_of(ranks.begin(), ranks.end(), [](const v1::RankRecord& rank) {
    return rank.gone() && !Finished(rank);
  });
  if (broken || left || AllGone(job)) {
    Recover(job);
  }
}

void Core::Impl::Recover(JobState& job) {
  const Verdict verdict = Judge(job);
  if (AllGone(job) && verdict.exit_class == ExitClass::kFatal) {
    Finish(job, v1::JOB_STATE_FAILED, verdict.code, verdict.message);
    return;
  }
  if (AllGone(job) && !verdict.lost && verdict.exit_class != ExitClass::kStopped &&
      !MayRestart(job)) {
    Finish(job, v1::JOB_STATE_FAILED, "max_restarts",
           absl::StrCat("failed ", job.job().restarts(),
                        " times without a new checkpoint; last: ", verdict.message));
    return;
  }
  NoteFault(job, verdict);
  Transition(job, v1::JOB_STATE_RECOVERING, verdict.actor, verdict.code, verdict.message);
  if (AllGone(job)) {
    job.record.clear_stop();
    return;
  }
  job.record.mutable_stop()->set_reason_code(verdict.code);
  job.record.mutable_stop()->set_reason(verdict.message);
  job.stop_deadline = std::min(job.stop_deadline, Mono() + Grace(job));
  const auto& ranks = job.record.ranks();
  if (std::any_of(ranks.begin(), ranks.end(), Broken)) {
    Kill(job, verdict.message);
  }
}

void Core::Impl::SettleRecovering(JobState& job) {
  const auto& ranks = job.record.ranks();
  if (!AllGone(job)) {
    if (!job.record.stop().kill() && std::any_of(ranks.begin(), ranks.end(), Broken)) {
      Kill(job, Judge(job).message);
    }
    return;
  }
  if (!job.record.has_stop()) {
    return;
  }
  const Verdict verdict = Judge(job);
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
  job.record.clear_stop();
  job.job().set_reason_code(verdict.code);
  job.job().set_reason(absl::StrCat(verdict.message, "; all ranks are gone"));
  MarkJob(job, true);
  plan_due_ = true;
}

void Core::Impl::SettleStopping(JobState& job) {
  const auto& ranks = job.record.ranks();
  if (!AllGone(job)) {
    if (!job.record.stop().kill() && std::any_of(ranks.begin(), ranks.end(), Broken)) {
      Kill(job, Judge(job).message);
    }
    return;
  }
  const Verdict verdict = Judge(job);
  const v1::StopRecord stop = job.record.stop();
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
