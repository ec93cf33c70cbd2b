#include "coordinator/core/agents/hello_tasks.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/reasons/reason_codes.h"
#include "coordinator/core/gangs/verdict.h"

namespace hearth::coordinator {

void HelloTasks::Reconcile(const WorkerState& worker, const v1::Hello& hello) {
  v1::CoordinatorMessage welcome;
  welcome.mutable_welcome()->set_heartbeat_seconds(absl::ToDoubleSeconds(options_.heartbeat));
  struct Match {
    JobState* job;
    int rank;
    const v1::TaskStatus* status;
  };
  std::vector<Match> matches;
  std::vector<const v1::TaskStatus*> stale;
  bool assigned_listed = worker.job_id.empty();
  for (const v1::TaskStatus& status : hello.tasks()) {
    JobState* job = jobs_.Edit(status.job_id());
    const int rank = job == nullptr ? -1 : RankOf(job->record(), status.epoch(), worker.worker());
    v1::ReportAck& ack = *welcome.mutable_welcome()->add_acks();
    ack.set_job_id(status.job_id());
    ack.set_epoch(status.epoch());
    ack.set_rank(status.rank());
    if (rank < 0 || job->record().ranks(rank).lost()) {
      // The task is over. Acknowledged in full, so that the worker's buffer empties; nothing of it
      // is applied.
      ack.set_seq(status.last_seq());
      stale.push_back(&status);
      continue;
    }
    const v1::RankRecord& record = job->record().ranks(rank);
    if (status.first_unacked_seq() > record.applied_seq() + 1) {
      states_.Note(
          *job, "warning", absl::StrCat("worker:", hello.worker_id()),
          absl::StrCat("rank ", rank, ": ", status.first_unacked_seq() - record.applied_seq() - 1,
                       " reports were lost to the worker's bounded buffer"));
      // Else the next report would look like a gap, close the stream, and come again without end.
      job->gang().Applied(rank, status.first_unacked_seq() - 1);
    }
    ack.set_seq(record.applied_seq());
    matches.push_back({job, rank, &status});
    assigned_listed = assigned_listed || worker.job_id == status.job_id();
  }
  // First: only from here on the agent counts the stream as good, and the acks free its buffer.
  turn_.Send(worker, std::move(welcome));
  for (const v1::TaskStatus* status : stale) {
    v1::CoordinatorMessage message;
    if (status->running()) {
      // Its exit frees the worker; see Reports.
      workers_.Fence(worker, {status->job_id(), status->epoch()}, turn_.mono());
      message.mutable_kill()->set_job_id(status->job_id());
      message.mutable_kill()->set_epoch(status->epoch());
      message.mutable_kill()->set_reason("fenced: this epoch is over");
    } else {
      message.mutable_forget()->set_job_id(status->job_id());
      message.mutable_forget()->set_epoch(status->epoch());
    }
    turn_.Send(worker, std::move(message));
  }
  for (const Match& match : matches) {
    ReconcileRank(worker, *match.job, match.rank, match.status);
  }
  // We believe that the worker has a task, and it does not list it.
  if (!assigned_listed) {
    JobState& job = *jobs_.Edit(worker.job_id);
    ReconcileRank(worker, job, RankOf(job.record(), job.job().epoch(), worker.worker()), nullptr);
  }
}

void HelloTasks::ReconcileRank(const WorkerState& worker,
                               JobState& job,
                               int rank,
                               const v1::TaskStatus* status) {
  const v1::RankRecord& record = job.record().ranks(rank);
  if (record.gone()) {
    return;  // its exit is known; the Welcome acknowledged it
  }
  const std::string& name = worker.worker().worker_id();
  if (status == nullptr) {
    // Its word once proved that it had the task. So the task is gone, and starting it again here
    // would repeat steps that were reported.
    if (record.confirmed() || record.applied_seq() > 0) {
      ends_.LoseRank(job, rank, absl::StrCat("worker ", name, " no longer knows its task"),
                     reasons::kTaskVanished);
    } else if (job.state() == v1::JOB_STATE_STARTING && !job.record().has_stop()) {
      starts_.SendStart(job, rank);  // the first StartTask was lost with its stream
    } else {
      ends_.LoseRank(job, rank, absl::StrCat("worker ", name, " had not started its task"),
                     reasons::kTaskVanished);
    }
    return;
  }
  if (job.gang().Confirm(rank)) {
    jobs_.Mark(job, true);
  }
  gangs_.of(job.job().job_id())
      .Progress(std::min(status->step(), Jobs::LastStep(job)), turn_.mono());
  if (status->running()) {
    // The stop may have gone down with the old stream; a second one changes nothing.
    ends_.SendStop(job, rank);
  }
}

}  // namespace hearth::coordinator
