// What tasks report: applied in order of seq, once each, and only from ranks of the present epoch
// that are not fenced.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/clip_text.h"
#include "coordinator/core/errors.h"
#include "coordinator/core/parts.h"

namespace hearth::coordinator {
namespace {

// No cursor grows past this, so that no sum of a few of them overflows.
constexpr int64_t kCursorMax = int64_t{1} << 62;
// Limit of a log line; longer ones are cut.
constexpr size_t kLineBytesMax = 64 << 10;

}  // namespace

std::vector<CommandRow> ReportCommands() {
  return {
      Row<AgentReport>("agent_report"),
      Row<AgentKvWait>("agent_kv_wait"),
  };
}

int CoreParts::RankOf(const JobState& job, int64_t epoch, const WorkerState& worker) const {
  if (epoch != job.job().epoch()) {
    return -1;
  }
  for (int i = 0; i < job.record().ranks_size(); ++i) {
    const v1::RankRecord& rank = job.record().ranks(i);
    if (rank.worker_id() == worker.worker().worker_id() &&
        rank.incarnation() == worker.worker().incarnation()) {
      return i;
    }
  }
  return -1;
}

void CoreParts::Ack(
    const WorkerState& worker, const std::string& job_id, int64_t epoch, int rank, int64_t seq) {
  v1::CoordinatorMessage message;
  v1::ReportAck& ack = *message.mutable_ack();
  ack.set_job_id(job_id);
  ack.set_epoch(epoch);
  ack.set_rank(rank);
  ack.set_seq(seq);
  Send(worker, std::move(message));
}

void CoreParts::On(const AgentReport& command) {
  const WorkerState* worker = workers_.OnConnection(command.connection_id);
  if (worker == nullptr) {
    return;
  }
  workers_.Heard(*worker, now_);
  const v1::TaskReport& report = command.report;
  JobState* job = jobs_.Edit(report.job_id());
  const int rank = job == nullptr ? -1 : RankOf(*job, report.epoch(), *worker);
  if (rank < 0 || job->record().ranks(rank).lost()) {
    StaleReport(*worker, report);
    return;
  }
  const v1::RankRecord& record = job->record().ranks(rank);
  if (report.seq() > record.applied_seq() + 1) {
    Close(*worker, absl::UnavailableError(
                       absl::StrCat("report ", report.seq(), " of ", report.job_id(), " follows ",
                                    record.applied_seq(), "; connect again and resend")));
    return;
  }
  if (report.seq() == record.applied_seq() + 1) {
    if (const absl::Status status = CheckReport(*job, report); !status.ok()) {
      Close(*worker, status);
      return;
    }
    job->gang().Applied(rank, report.seq());
    job->gang().Confirm(rank);
    jobs_.Mark(*job, true);
    if (!record.gone()) {
      ApplyReport(*worker, *job, rank, report);
    }
  }
  Ack(*worker, report.job_id(), report.epoch(), report.rank(),
      job->record().ranks(rank).applied_seq());
}

int64_t CoreParts::LastStep(const JobState& job) {
  // A resume may have set train.steps below what is done.
  return std::max(
      {job.job().spec().train().steps(), job.job().step(), job.job().checkpoint().step()});
}

absl::Status CoreParts::CheckReport(const JobState& job, const v1::TaskReport& report) const {
  const int64_t last = LastStep(job);
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

void CoreParts::StaleReport(const WorkerState& worker, const v1::TaskReport& report) {
  const TaskKey key{report.job_id(), report.epoch()};
  Ack(worker, report.job_id(), report.epoch(), report.rank(), report.seq());
  const bool foreign = worker.foreign.count(key) > 0;
  if (foreign && report.has_exit()) {
    workers_.FencedTaskEnded(worker, key, report.exit(), Mono());
    return;
  }
  if (foreign) {
    return;  // until its exit
  }
  switch (workers_.ForgetTask(worker, key)) {
    case Workers::Forgetting::kTold:
      return;
    case Workers::Forgetting::kTooMany:
      Close(worker, MakeError(absl::StatusCode::kResourceExhausted, "TOO_MANY_TASKS",
                              absl::StrCat("reports of more than ", Workers::kForgottenMax,
                                           " tasks that are not known here; connect again")));
      return;
    case Workers::Forgetting::kTell:
      break;
  }
  v1::CoordinatorMessage message;
  message.mutable_forget()->set_job_id(report.job_id());
  message.mutable_forget()->set_epoch(report.epoch());
  Send(worker, std::move(message));
}

void CoreParts::ApplyReport(const WorkerState& worker,
                            JobState& job,
                            int rank,
                            const v1::TaskReport& report) {
  switch (report.report_case()) {
    case v1::TaskReport::kRunInfo:
      return ApplyRunInfo(job, rank, report.run_info());
    case v1::TaskReport::kStep:
      return ApplyStep(job, rank, report.step());
    case v1::TaskReport::kTrial:
      return ApplyTrial(job, rank, report.trial());
    case v1::TaskReport::kLogs:
      return ApplyLogs(job, rank, report.logs());
    case v1::TaskReport::kCheckpoint:
      return ApplyCheckpoint(worker, job, rank, report.checkpoint());
    case v1::TaskReport::kKvPut:
      return ApplyKvPut(job, rank, report.kv_put());
    case v1::TaskReport::kDying:
      return ApplyDying(job, rank, report.dying());
    case v1::TaskReport::kExit:
      return ApplyExit(worker, job, rank, report.exit());
    case v1::TaskReport::REPORT_NOT_SET:
      return;  // of a newer agent
  }
}

void CoreParts::AppendHistory(JobState& job, v1::MetricRecord record) {
  if (job.record().history_cursor() >= kCursorMax) {
    return;  // of a damaged store: there is no number left for it
  }
  job.set_history_cursor(job.record().history_cursor() + 1);
  record.set_cursor(job.record().history_cursor());
  effects_.history.push_back({job.job().job_id(), std::move(record)});
}

void CoreParts::OpenEpoch(JobState& job, int64_t start_step) {
  if (job.record().epoch_opened()) {
    return;
  }
  job.gang().OpenEpoch();
  gangs_.of(job.job().job_id()).ForgetEnergy();
  EnergyOfOtherRanks(job);
  v1::Job& view = job.job();
  const int64_t expected = view.checkpoint().step();
  if (start_step != expected) {
    Note(job, "warning", "trainer",
         absl::StrCat("was to resume from step ", expected, " but starts from step ", start_step));
  }
  if (start_step < view.step()) {
    v1::MetricRecord record;
    record.mutable_rewind()->set_epoch(view.epoch());
    record.mutable_rewind()->set_to_step(start_step);
    AppendHistory(job, std::move(record));
  }
  view.set_step(start_step);
}

double CoreParts::EnergyOfOtherRanks(JobState& job) {
  Gang& gang = gangs_.of(job.job().job_id());
  double joules = 0.0;
  for (int rank = 1; rank < job.record().ranks_size(); ++rank) {
    const WorkerState* worker = workers_.Find(job.record().ranks(rank).worker_id());
    const double counter =
        worker == nullptr ? 0.0 : worker->worker().device_status().energy_joules();
    joules += gang.EnergySince(rank, counter);
  }
  return joules;
}

void CoreParts::ApplyRunInfo(JobState& job, int rank, const v1::RunInfo& info) {
  if (rank == 0) {
    OpenEpoch(job, info.start_step());
    *job.job().mutable_run_info() = info;
  }
}

void CoreParts::ApplyStep(JobState& job, int rank, const v1::StepReport& step) {
  if (rank != 0) {
    return;
  }
  OpenEpoch(job, step.step() - 1);
  v1::Job& view = job.job();
  gangs_.of(view.job_id()).Progress(step.step(), Mono());
  if (step.step() <= view.step()) {
    return;  // the history has it
  }
  v1::MetricRecord record;
  *record.mutable_step() = step;
  record.mutable_step()->set_epoch(view.epoch());
  record.mutable_step()->set_energy_joules(step.energy_joules() + EnergyOfOtherRanks(job));
  view.set_step(step.step());
  // Tensor statistics come now and then; the newest stay in sight.
  auto worst = std::move(*view.mutable_last_report()->mutable_worst_tensors());
  *view.mutable_last_report() = record.step();
  view.mutable_last_report()->clear_decisions();
  if (step.worst_tensors().empty()) {
    *view.mutable_last_report()->mutable_worst_tensors() = std::move(worst);
  }
  AppendHistory(job, std::move(record));
  if (job.state() == v1::JOB_STATE_STARTING) {
    Transition(job, v1::JOB_STATE_RUNNING, "trainer", "first_step",
               absl::StrCat("running since step ", step.step()));
    NoteRecovered(job, step.step());
  } else if (job.state() == v1::JOB_STATE_RUNNING) {
    view.set_running_seconds(Jobs::RunningSeconds(job, Mono()));
  }
  NoteDecisions(job, step.decisions());
}

void CoreParts::NoteDecisions(
    JobState& job, const google::protobuf::RepeatedPtrField<v1::GuardDecision>& decisions) {
  for (const v1::GuardDecision& decision : decisions) {
    *job.job().mutable_last_decision() = decision;
    Note(job, "precision", "trainer", decision.text());
  }
}

void CoreParts::ApplyTrial(JobState& job, int rank, const v1::PrecisionTrial& trial) {
  if (rank != 0) {
    return;
  }
  *job.job().mutable_trial() = trial;
  Note(job, "precision", "trainer", trial.text());
}

void CoreParts::ApplyLogs(JobState& job, int rank, const v1::LogBatch& logs) {
  LogAppend append;
  append.job_id = job.job().job_id();
  if (!job.log_rate.has_value()) {
    job.log_rate.emplace(options_.log_bytes_per_second, options_.log_burst_bytes);
  }
  // Lines that were lost leave a gap in the cursors, by which readers see it.
  int64_t cursor = job.record().log_cursor();
  const auto drop = [&append, &cursor](int64_t lines) {
    append.dropped += lines;
    cursor += std::min(lines, std::max<int64_t>(0, kCursorMax - cursor));
  };
  drop(std::max<int64_t>(0, logs.dropped()));
  for (const v1::LogLine& line : logs.lines()) {
    const size_t bytes = std::min(line.text().size(), kLineBytesMax);
    if (cursor >= kCursorMax || !job.log_rate->Take(static_cast<double>(bytes), Mono())) {
      drop(1);
      continue;
    }
    append.lines.push_back(line);
    v1::LogLine& kept = append.lines.back();
    if (kept.text().size() > bytes) {
      kept.set_text(std::string(ClipBytes(line.text(), bytes)));
    }
    kept.set_epoch(job.job().epoch());
    kept.set_rank(rank);
    kept.set_cursor(++cursor);
  }
  job.set_log_cursor(cursor);
  effects_.logs.push_back(std::move(append));
}

void CoreParts::ApplyCheckpoint(const WorkerState& worker,
                                JobState& job,
                                int rank,
                                const v1::CheckpointAnnouncement& announcement) {
  if (rank != 0) {
    return;
  }
  v1::Job& view = job.job();
  v1::Checkpoint checkpoint;
  checkpoint.set_job_id(view.job_id());
  checkpoint.set_epoch(view.epoch());
  checkpoint.set_step(announcement.step());
  checkpoint.set_path(announcement.path());
  checkpoint.set_root_uuid(worker.worker().root_uuid());
  checkpoint.set_bytes(announcement.bytes());
  checkpoint.set_manifest_sha256(announcement.manifest_sha256());
  checkpoint.set_validation_loss(announcement.validation_loss());
  *checkpoint.mutable_create_time() = ToProto(now_.wall);

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
  for (int i = kept.size() - 1; i > 0; --i) {
    kept.SwapElements(i, i - 1);
  }
  *view.mutable_checkpoint() = checkpoint;
  view.set_restarts(0);
  job.checkpoint_time = Mono();
  effects_.checkpoint_writes.push_back({view.job_id(), announcement.seconds()});
  rendezvous_.ForgetCheckpoints(view.job_id(), view.epoch(), announcement.step(), effects_);
  gangs_.of(view.job_id()).Progress(announcement.step(), Mono());
  PruneCheckpoints(job);
  Note(job, "checkpoint", "trainer",
       absl::StrCat("checkpoint of step ", announcement.step(), " in ", announcement.path()));
  if (view.workers_size() < view.spec().resources().workers()) {
    plan_.Ask();  // it may grow right after a checkpoint
  }
}

void CoreParts::ApplyKvPut(JobState& job, int rank, const v1::KvPut& put) {
  Rendezvous::PutResult result =
      rendezvous_.Put(job.job().job_id(), job.job().epoch(), rank, put, effects_);
  if (!result.refused.empty()) {
    Note(job, "warning", "coordinator", result.refused);
  }
  for (Rendezvous::Answer& answer : result.answers) {
    AnswerKv(job, answer.rank, std::move(answer.value));
  }
}

void CoreParts::On(const AgentKvWait& command) {
  const WorkerState* worker = workers_.OnConnection(command.connection_id);
  if (worker == nullptr) {
    return;
  }
  workers_.Heard(*worker, now_);
  JobState* job = jobs_.Edit(command.wait.job_id());
  const int rank = job == nullptr ? -1 : RankOf(*job, command.wait.epoch(), *worker);
  if (rank < 0 || job->record().ranks(rank).gone()) {
    return;
  }
  if (auto value = rendezvous_.Wait(job->job().job_id(), rank, command.wait.key())) {
    AnswerKv(*job, rank, *std::move(value));
  }
}

void CoreParts::AnswerKv(const JobState& job, int rank, v1::KvValue value) {
  const v1::RankRecord& record = job.record().ranks(rank);
  const WorkerState* worker = workers_.Find(record.worker_id());
  if (worker == nullptr || worker->worker().incarnation() != record.incarnation()) {
    return;
  }
  v1::CoordinatorMessage message;
  message.mutable_kv_value()->set_job_id(job.job().job_id());
  message.mutable_kv_value()->set_epoch(job.job().epoch());
  message.mutable_kv_value()->set_rank(rank);
  *message.mutable_kv_value()->mutable_value() = std::move(value);
  Send(*worker, std::move(message));
}

// keep_last over all epochs. The coordinator thins out, not the trainer: only here is it known that
// a newer one is recorded, and a folder whose successor's announcement was lost is what the job
// will resume from.
void CoreParts::PruneCheckpoints(JobState& job) {
  const v1::CheckpointSpec& spec = job.job().spec().checkpoint();
  const int keep = spec.has_keep_last() ? std::max(1, spec.keep_last()) : 3;
  auto& kept = job.checkpoints();
  for (int i = kept.size() - 1; i >= keep; --i) {
    DropFolder(kept[i]);
    kept.erase(kept.begin() + i);
  }
}

void CoreParts::ApplyDying(JobState& job, int rank, const v1::TaskDying& dying) {
  if (job.gang().Dying(rank, dying, now_.wall)) {
    Settle(job);
  }
}

void CoreParts::ApplyExit(const WorkerState& worker,
                          JobState& job,
                          int rank,
                          const v1::TaskExit& exit) {
  job.gang().Exited(rank, exit, now_.wall);
  if (rank == 0) {
    NoteDecisions(job, exit.exit().decisions());
  }
  if (!exit.clean()) {
    workers_.MarkUnhealthy(worker, exit.unclean_reason().empty() ? "a task could not be proven gone"
                                                                 : exit.unclean_reason());
    Note(job, "warning", absl::StrCat("worker:", worker.worker().worker_id()),
         absl::StrCat("unhealthy: ", worker.record.unhealthy()));
  }
  ReleaseWorker(job, rank);
  Settle(job);
}

}  // namespace hearth::coordinator
