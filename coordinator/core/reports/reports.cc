#include "coordinator/core/reports/reports.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/core/errors.h"
#include "coordinator/core/gangs/verdict.h"

namespace hearth::coordinator {

std::vector<CommandRow> Reports::Rows() {
  return {
      Row<&Reports::Take>("agent_report"),
  };
}

void Reports::Take(const AgentReport& command) {
  const WorkerState* worker = workers_.OnConnection(command.connection_id);
  if (worker == nullptr) {
    return;
  }
  workers_.Heard(*worker, turn_.now());
  const v1::TaskReport& report = command.report;
  JobState* job = jobs_.Edit(report.job_id());
  const int rank = job == nullptr ? -1 : RankOf(job->record(), report.epoch(), worker->worker());
  if (rank < 0 || job->record().ranks(rank).lost()) {
    TakeStale(*worker, report);
    return;
  }
  const v1::RankRecord& record = job->record().ranks(rank);
  // A gap: a report was lost on the way. Closing makes the worker connect again, and its Hello
  // makes it resend all that is not acknowledged.
  if (report.seq() > record.applied_seq() + 1) {
    workers_.Close(*worker,
                   absl::UnavailableError(
                       absl::StrCat("report ", report.seq(), " of ", report.job_id(), " follows ",
                                    record.applied_seq(), "; connect again and resend")),
                   turn_.mono(), turn_.effects());
    return;
  }
  // A lower number was applied before: it is acknowledged again and changes nothing.
  if (report.seq() == record.applied_seq() + 1) {
    if (const absl::Status status = Check(*job, report); !status.ok()) {
      workers_.Close(*worker, status, turn_.mono(), turn_.effects());
      return;
    }
    job->gang().Applied(rank, report.seq());
    job->gang().Confirm(rank);
    jobs_.Mark(*job, true);
    // A rank that counts as gone may still have reports in its buffer. They are counted, so that
    // the buffer empties, and not believed.
    if (!record.gone()) {
      Apply(*worker, *job, rank, report);
    }
  }
  // It leaves after the commit (uncommitted.h): only then may the worker forget the report.
  Ack(*worker, report.job_id(), report.epoch(), report.rank(),
      job->record().ranks(rank).applied_seq());
}

absl::Status Reports::Check(const JobState& job, const v1::TaskReport& report) {
  // A step beyond the end would stay the newest, and every true one would look like a repetition.
  const int64_t last = Jobs::LastStep(job);
  if (report.has_step() && (report.step().step() < 1 || report.step().step() > last)) {
    return FieldError("report.step.step", report.step().step(), last);
  }
  if (report.has_checkpoint() &&
      (report.checkpoint().step() < 1 || report.checkpoint().step() > last)) {
    return FieldError("report.checkpoint.step", report.checkpoint().step(), last);
  }
  if (report.has_run_info() && report.run_info().start_step() > last) {
    return FieldError("report.run_info.start_step", report.run_info().start_step(), last);
  }
  return absl::OkStatus();
}

void Reports::TakeStale(const WorkerState& worker, const v1::TaskReport& report) {
  const TaskKey key{report.job_id(), report.epoch()};
  // Nothing of it is applied. It is acknowledged all the same, or it would fill the worker's buffer
  // for ever.
  Ack(worker, report.job_id(), report.epoch(), report.rank(), report.seq());
  const bool foreign = worker.foreign.count(key) > 0;
  if (foreign && report.has_exit()) {
    workers_.FencedTaskEnded(worker, key, report.exit(), turn_.mono());
    return;
  }
  if (foreign) {
    return;  // until its exit
  }
  switch (workers_.ForgetTask(worker, key)) {
    case Workers::Forgetting::kTold:
      return;
    case Workers::Forgetting::kTooMany:
      workers_.Close(worker,
                     MakeError(absl::StatusCode::kResourceExhausted, "TOO_MANY_TASKS",
                               absl::StrCat("reports of more than ", Workers::kForgottenMax,
                                            " tasks that are not known here; connect again")),
                     turn_.mono(), turn_.effects());
      return;
    case Workers::Forgetting::kTell:
      break;
  }
  v1::CoordinatorMessage message;
  message.mutable_forget()->set_job_id(report.job_id());
  message.mutable_forget()->set_epoch(report.epoch());
  turn_.Send(worker, std::move(message));
}

void Reports::Apply(const WorkerState& worker,
                    JobState& job,
                    int rank,
                    const v1::TaskReport& report) {
  switch (report.report_case()) {
    case v1::TaskReport::kRunInfo:
      return steps_.TakeRunInfo(job, rank, report.run_info());
    case v1::TaskReport::kStep:
      return steps_.TakeStep(job, rank, report.step());
    case v1::TaskReport::kTrial:
      return steps_.TakeTrial(job, rank, report.trial());
    case v1::TaskReport::kLogs:
      return logs_.Append(job, rank, report.logs());
    case v1::TaskReport::kCheckpoint:
      return checkpoints_.Announced(worker, job, rank, report.checkpoint());
    case v1::TaskReport::kKvPut:
      return key_values_.Put(job, rank, report.kv_put());
    case v1::TaskReport::kDying:
      return ends_.Dying(job, rank, report.dying());
    case v1::TaskReport::kExit:
      if (rank == 0) {
        steps_.NoteDecisions(job, report.exit().exit().decisions());
      }
      return ends_.Exited(worker, job, rank, report.exit());
    case v1::TaskReport::REPORT_NOT_SET:
      return;  // of a newer agent
  }
}

void Reports::Ack(
    const WorkerState& worker, const std::string& job_id, int64_t epoch, int rank, int64_t seq) {
  v1::CoordinatorMessage message;
  v1::ReportAck& ack = *message.mutable_ack();
  ack.set_job_id(job_id);
  ack.set_epoch(epoch);
  ack.set_rank(rank);
  ack.set_seq(seq);
  turn_.Send(worker, std::move(message));
}

}  // namespace hearth::coordinator
