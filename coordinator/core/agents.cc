// Connections: who may speak for a worker, and what its tasks are to us.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "coordinator/core/errors.h"
#include "coordinator/core/parts.h"

namespace hearth::coordinator {
namespace {

bool IsRetired(const v1::WorkerRecord& record, const std::string& incarnation) {
  for (const std::string& old : record.retired_incarnations()) {
    if (old == incarnation) {
      return true;
    }
  }
  return false;
}

}  // namespace

std::vector<CommandRow> AgentCommands() {
  return {
      Row<AgentConnected>("agent_connected"),
      Row<AgentDisconnected>("agent_disconnected"),
      Row<AgentHeartbeat>("agent_heartbeat"),
      Row<AgentGoodbye>("agent_goodbye"),
  };
}

absl::Status CoreParts::Admit(const AgentConnected& command) {
  const v1::Hello& hello = command.hello;
  if (absl::Status id = ValidateWorkerId(hello.worker_id()); !id.ok()) {
    return MakeError(id.code(), "BAD_WORKER_ID", std::string(id.message()));
  }
  if (hello.incarnation().empty() || hello.device().kind().empty()) {
    return MakeError(absl::StatusCode::kInvalidArgument, "BAD_HELLO",
                     "Hello needs an incarnation and a device kind");
  }
  if (hello.generation() > options_.generation) {
    return MakeError(absl::StatusCode::kAborted, "STALE_GENERATION",
                     absl::StrCat("this coordinator is generation ", options_.generation,
                                  ", the worker has seen ", hello.generation(),
                                  "; if its store was put back from a copy, start it once with "
                                  "--restore"));
  }
  if (workers_.all().size() >= options_.max_workers &&
      workers_.Find(hello.worker_id()) == nullptr) {
    return MakeError(absl::StatusCode::kResourceExhausted, "TOO_MANY_WORKERS",
                     absl::StrCat(workers_.all().size(),
                                  " workers are known, which is the limit; delete "
                                  "those that will not come back"));
  }
  for (const auto& [id, worker] : workers_.all()) {
    const v1::Worker& known = worker.worker();
    const bool live = worker.connection != 0 && !Silent(worker);
    if (id == hello.worker_id()) {
      if (!worker.record.name_key_sha256().empty() &&
          worker.record.name_key_sha256() != command.name_key_sha256) {
        return MakeError(
            absl::StatusCode::kAlreadyExists, "WORKER_NAME_TAKEN",
            absl::StrCat("the name ", id, " belongs to a worker with another data dir (host ",
                         known.host(), "); if that one is gone for good: jobctl forget ", id));
      }
      if (IsRetired(worker.record, hello.incarnation())) {
        return MakeError(absl::StatusCode::kAborted, "STALE_INCARNATION",
                         absl::StrCat("a newer daemon has taken the name ", id));
      }
      if (live && known.incarnation() != hello.incarnation()) {
        return MakeError(
            absl::StatusCode::kAlreadyExists, "WORKER_NAME_TAKEN",
            absl::StrCat("another live worker has the name ", id, " (host ", known.host(), ")"));
      }
    } else if (live && !hello.device().uuid().empty() &&
               known.device().uuid() == hello.device().uuid()) {
      return MakeError(absl::StatusCode::kAlreadyExists, "GPU_TAKEN",
                       absl::StrCat("GPU ", hello.device().uuid(), " belongs to live worker ", id));
    }
  }
  return absl::OkStatus();
}

void CoreParts::On(const AgentConnected& command) {
  const v1::Hello& hello = command.hello;
  if (absl::Status admitted = Admit(command); !admitted.ok()) {
    ReplyError(std::move(admitted));
    return;
  }
  if (const WorkerState* known = workers_.Find(hello.worker_id())) {
    // In this order: the old daemon's rank is found by its incarnation, which Connect replaces.
    if (!known->worker().incarnation().empty() &&
        known->worker().incarnation() != hello.incarnation()) {
      workers_.RetireIncarnation(*known);
      // A trainer dies with its daemon, so whatever the old one ran is gone.
      LoseRankOn(*known, absl::StrCat("worker ", hello.worker_id(), " was restarted"));
    }
    Close(*known, absl::CancelledError("replaced by a newer stream of the same worker"));
  }
  const WorkerState& worker = workers_.Connect(command, now_);
  liveness_.NoteReturn(hello.worker_id(), Mono());
  Reconcile(worker, hello);
  roots_.LookAt(hello.root_uuid(), absl::ZeroDuration(), Mono());
  UpdateWorkerView(worker);
  effects_.reply = Reply{absl::OkStatus(), std::nullopt, worker.worker()};
}

void CoreParts::LoseRankOn(const WorkerState& worker, const std::string& why) {
  if (JobState* job = worker.job_id.empty() ? nullptr : jobs_.Edit(worker.job_id)) {
    LoseRank(*job, RankOf(*job, job->job().epoch(), worker), why, "worker_lost");
  }
}

void CoreParts::Reconcile(const WorkerState& worker, const v1::Hello& hello) {
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
    const int rank = job == nullptr ? -1 : RankOf(*job, status.epoch(), worker);
    v1::ReportAck& ack = *welcome.mutable_welcome()->add_acks();
    ack.set_job_id(status.job_id());
    ack.set_epoch(status.epoch());
    ack.set_rank(status.rank());
    if (rank < 0 || job->record().ranks(rank).lost()) {
      ack.set_seq(status.last_seq());
      stale.push_back(&status);
      continue;
    }
    const v1::RankRecord& record = job->record().ranks(rank);
    if (status.first_unacked_seq() > record.applied_seq() + 1) {
      Note(*job, "warning", absl::StrCat("worker:", hello.worker_id()),
           absl::StrCat("rank ", rank, ": ", status.first_unacked_seq() - record.applied_seq() - 1,
                        " reports were lost to the worker's bounded buffer"));
      job->gang().Applied(rank, status.first_unacked_seq() - 1);
    }
    ack.set_seq(record.applied_seq());
    matches.push_back({job, rank, &status});
    assigned_listed = assigned_listed || worker.job_id == status.job_id();
  }
  Send(worker, std::move(welcome));
  for (const v1::TaskStatus* status : stale) {
    v1::CoordinatorMessage message;
    if (status->running()) {
      // Its exit frees the worker; see StaleReport.
      workers_.Fence(worker, {status->job_id(), status->epoch()}, Mono());
      message.mutable_kill()->set_job_id(status->job_id());
      message.mutable_kill()->set_epoch(status->epoch());
      message.mutable_kill()->set_reason("fenced: this epoch is over");
    } else {
      message.mutable_forget()->set_job_id(status->job_id());
      message.mutable_forget()->set_epoch(status->epoch());
    }
    Send(worker, std::move(message));
  }
  for (const Match& match : matches) {
    ReconcileRank(worker, *match.job, match.rank, match.status);
  }
  if (!assigned_listed) {
    JobState& job = *jobs_.Edit(worker.job_id);
    ReconcileRank(worker, job, RankOf(job, job.job().epoch(), worker), nullptr);
  }
}

void CoreParts::ReconcileRank(const WorkerState& worker,
                              JobState& job,
                              int rank,
                              const v1::TaskStatus* status) {
  const v1::RankRecord& record = job.record().ranks(rank);
  if (record.gone()) {
    return;  // its exit is known; the Welcome acknowledged it
  }
  const std::string& name = worker.worker().worker_id();
  if (status == nullptr) {
    if (record.confirmed() || record.applied_seq() > 0) {
      LoseRank(job, rank, absl::StrCat("worker ", name, " no longer knows its task"),
               "task_vanished");
    } else if (job.state() == v1::JOB_STATE_STARTING && !job.record().has_stop()) {
      SendStart(job, rank);  // the first StartTask was lost with its stream
    } else {
      LoseRank(job, rank, absl::StrCat("worker ", name, " had not started its task"),
               "task_vanished");
    }
    return;
  }
  if (job.gang().Confirm(rank)) {
    jobs_.Mark(job, true);
  }
  gangs_.of(job.job().job_id()).Progress(std::min(status->step(), LastStep(job)), Mono());
  if (status->running()) {
    SendStop(job, rank);
  }
}

void CoreParts::On(const AgentDisconnected& command) {
  if (const WorkerState* worker = workers_.OnConnection(command.connection_id)) {
    workers_.StreamEnded(*worker, Mono());
  }
}

void CoreParts::On(const AgentGoodbye& command) {
  const WorkerState* worker = workers_.OnConnection(command.connection_id);
  if (worker == nullptr) {
    return;
  }
  const std::string why =
      absl::StrCat("worker ", worker->worker().worker_id(), " left: ", command.goodbye.reason());
  workers_.SaidGoodbye(*worker, Mono());
  LoseRankOn(*worker, why);
}

void CoreParts::On(const AgentHeartbeat& command) {
  const WorkerState* worker = workers_.OnConnection(command.connection_id);
  if (worker == nullptr) {
    return;
  }
  const v1::Heartbeat& heartbeat = command.heartbeat;
  workers_.Heard(*worker, now_);
  workers_.HeardDevice(*worker, heartbeat);
  workers_.HeardHealth(*worker, heartbeat.unhealthy_reason());
  JobState* job = heartbeat.job_id().empty() ? nullptr : jobs_.Edit(heartbeat.job_id());
  const int rank = job == nullptr ? -1 : RankOf(*job, heartbeat.epoch(), *worker);
  if (rank < 0 || job->record().ranks(rank).gone()) {
    return;
  }
  if (job->gang().Confirm(rank)) {
    jobs_.Mark(*job, true);
  }
  if (heartbeat.step() > LastStep(*job)) {
    Close(*worker, FieldError("heartbeat.step", heartbeat.step(), LastStep(*job)));
    return;
  }
  Gang& gang = gangs_.of(heartbeat.job_id());
  gang.Progress(heartbeat.step(), Mono());
  gang.HeardPhase(job->record().ranks_size(), rank, heartbeat.phase(), Mono());
  if (rank == 0 && heartbeat.phase() != job->job().phase()) {
    job->job().set_phase(heartbeat.phase());
    jobs_.Mark(*job, false);
  }
  NoteTemperature(*job, *worker);
}

void CoreParts::NoteTemperature(JobState& job, const WorkerState& worker) {
  const double celsius = worker.worker().device_status().temperature_celsius();
  if (!(celsius > job.job().devices().hottest_celsius())) {
    return;
  }
  v1::JobDevices& devices = *job.job().mutable_devices();
  devices.set_hottest_celsius(celsius);
  devices.set_hottest_worker_id(worker.worker().worker_id());
  *devices.mutable_hottest_time() = ToProto(now_.wall);
  devices.set_hottest_step(job.job().step());
  jobs_.Mark(job, true);  // devices report whole degrees: some tens of writes in a job's life
}

}  // namespace hearth::coordinator
