// Connections: who may speak for a worker, and what its tasks are to us.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "coordinator/core/errors.h"
#include "coordinator/core/impl.h"

namespace hearth::coordinator {
namespace {

constexpr int kRetiredKept = 8;
// Heartbeats between a worker's last word and the end of its stream. TCP gives up a peer that no
// packet reaches after 5 s (keepalive in common/rpc).
constexpr int kEndedAtOnce = 3;

bool IsRetired(const v1::WorkerRecord& record, const std::string& incarnation) {
  for (const std::string& old : record.retired_incarnations()) {
    if (old == incarnation) {
      return true;
    }
  }
  return false;
}

}  // namespace

absl::Status Core::Impl::Admit(const AgentConnected& command) {
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
  if (workers_.size() >= options_.max_workers && workers_.count(hello.worker_id()) == 0) {
    return MakeError(absl::StatusCode::kResourceExhausted, "TOO_MANY_WORKERS",
                     absl::StrCat(workers_.size(),
                                  " workers are known, which is the limit; delete "
                                  "those that will not come back"));
  }
  for (const auto& [id, worker] : workers_) {
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

void Core::Impl::On(const AgentConnected& command) {
  const v1::Hello& hello = command.hello;
  if (absl::Status admitted = Admit(command); !admitted.ok()) {
    ReplyError(std::move(admitted));
    return;
  }
  WorkerState& worker = workers_[hello.worker_id()];
  const std::string old = worker.worker().incarnation();
  if (!old.empty() && old != hello.incarnation()) {
    NewIncarnation(worker);
  }
  Close(worker, absl::CancelledError("replaced by a newer stream of the same worker"));
  TakeHello(worker, hello);
  worker.record.set_name_key_sha256(command.name_key_sha256);  // the same, or the first
  worker.connection = command.connection_id;
  connections_[command.connection_id] = hello.worker_id();
  Heard(worker);
  worker.lost = false;
  worker.idle_since = worker.connected_since = Mono();
  worker.address = command.address;
  worker.local = command.local;
  worker.ended_by_peer = false;
  worker.seen = true;
  std::erase_if(recent_losses_,
                [&hello](const Loss& loss) { return loss.worker_id == hello.worker_id(); });
  Reconcile(worker, hello);
  LookAtRoot(hello.root_uuid(), absl::ZeroDuration());
  MarkWorker(worker, true);
  plan_due_ = true;
  UpdateWorkerView(worker);
  effects_.reply = Reply{absl::OkStatus(), std::nullopt, worker.worker()};
}

void Core::Impl::NewIncarnation(WorkerState& worker) {
  auto& retired = *worker.record.mutable_retired_incarnations();
  retired.Add(std::string(worker.worker().incarnation()));
  for (int i = retired.size() - 1; i > 0; --i) {
    retired.SwapElements(i, i - 1);
  }
  while (retired.size() > kRetiredKept) {
    retired.RemoveLast();
  }
  worker.record.clear_unhealthy();
  // A trainer dies with its daemon, so whatever the old one ran is gone.
  JobState* job = worker.job_id.empty() ? nullptr : Find(worker.job_id);
  if (job != nullptr) {
    LoseRank(*job, RankOf(*job, job->job().epoch(), worker),
             absl::StrCat("worker ", worker.worker().worker_id(), " was restarted"), "worker_lost");
  }
}

void Core::Impl::TakeHello(WorkerState& worker, const v1::Hello& hello) {
  v1::Worker& view = worker.worker();
  view.set_worker_id(hello.worker_id());
  view.set_incarnation(hello.incarnation());
  view.set_host(hello.host());
  *view.mutable_device() = hello.device();
  *view.mutable_labels() = hello.labels();
  view.set_http_address(hello.http_address());
  view.set_checkpoint_root(hello.checkpoint_root());
  view.set_root_uuid(hello.root_uuid());
  view.set_version(hello.version());
  *view.mutable_connect_time() = ToProto(now_.wall);
  HeardHealth(worker, hello.unhealthy_reason());
  worker.foreign.clear();
  worker.forgotten.clear();
}

void Core::Impl::Reconcile(WorkerState& worker, const v1::Hello& hello) {
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
    JobState* job = Find(status.job_id());
    const int rank = job == nullptr ? -1 : RankOf(*job, status.epoch(), worker);
    v1::ReportAck& ack = *welcome.mutable_welcome()->add_acks();
    ack.set_job_id(status.job_id());
    ack.set_epoch(status.epoch());
    ack.set_rank(status.rank());
    if (rank < 0 || job->record.ranks(rank).lost()) {
      ack.set_seq(status.last_seq());
      stale.push_back(&status);
      continue;
    }
    v1::RankRecord& record = *job->record.mutable_ranks(rank);
    if (status.first_unacked_seq() > record.applied_seq() + 1) {
      Note(*job, "warning", absl::StrCat("worker:", hello.worker_id()),
           absl::StrCat("rank ", rank, ": ", status.first_unacked_seq() - record.applied_seq() - 1,
                        " reports were lost to the worker's bounded buffer"));
      record.set_applied_seq(status.first_unacked_seq() - 1);
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
      worker.foreign[{status->job_id(), status->epoch()}] = Mono();
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
    JobState& job = *Find(worker.job_id);
    ReconcileRank(worker, job, RankOf(job, job.job().epoch(), worker), nullptr);
  }
}

void Core::Impl::ReconcileRank(WorkerState& worker,
                               JobState& job,
                               int rank,
                               const v1::TaskStatus* status) {
  v1::RankRecord& record = *job.record.mutable_ranks(rank);
  if (record.gone()) {
    return;  // its exit is known; the Welcome acknowledged it
  }
  const std::string& name = worker.worker().worker_id();
  if (status == nullptr) {
    if (record.confirmed() || record.applied_seq() > 0) {
      LoseRank(job, rank, absl::StrCat("worker ", name, " no longer knows its task"),
               "task_vanished");
    } else if (job.state() == v1::JOB_STATE_STARTING && !job.record.has_stop()) {
      SendStart(job, rank);  // the first StartTask was lost with its stream
    } else {
      LoseRank(job, rank, absl::StrCat("worker ", name, " had not started its task"),
               "task_vanished");
    }
    return;
  }
  if (!record.confirmed()) {
    record.set_confirmed(true);
    MarkJob(job, true);
  }
  Progress(job, std::min(status->step(), LastStep(job)));
  if (status->running()) {
    SendStop(job, rank);
  }
}

void Core::Impl::Disconnect(WorkerState& worker) {
  connections_.erase(worker.connection);
  worker.connection = 0;
  worker.gone_since = Mono();
  MarkWorker(worker, false);
  plan_due_ = true;
}

void Core::Impl::On(const AgentDisconnected& command) {
  if (WorkerState* worker = OnConnection(command.connection_id)) {
    Disconnect(*worker);
    worker->ended_by_peer = Mono() - worker->last_seen < kEndedAtOnce * options_.heartbeat;
  }
}

void Core::Impl::On(const AgentGoodbye& command) {
  WorkerState* worker = OnConnection(command.connection_id);
  if (worker == nullptr) {
    return;
  }
  const std::string why =
      absl::StrCat("worker ", worker->worker().worker_id(), " left: ", command.goodbye.reason());
  Disconnect(*worker);
  MarkWorker(*worker, true);
  JobState* job = worker->job_id.empty() ? nullptr : Find(worker->job_id);
  if (job != nullptr) {
    LoseRank(*job, RankOf(*job, job->job().epoch(), *worker), why, "worker_lost");
  }
}

void Core::Impl::Heard(WorkerState& worker) {
  worker.last_seen = Mono();
  *worker.worker().mutable_last_seen_time() = ToProto(now_.wall);
}

void Core::Impl::HeardHealth(WorkerState& worker, const std::string& reason) {
  if (worker.reported_unhealthy == reason) {
    return;
  }
  // What made a task's end unclean is gone at last: the agent, who saw it, says so.
  if (reason.empty() && !worker.record.unhealthy().empty()) {
    worker.record.clear_unhealthy();
    MarkWorker(worker, true);
  }
  worker.reported_unhealthy = reason;
  plan_due_ = true;
}

void Core::Impl::Progress(JobState& job, int64_t step) {
  if (step > job.progress_step) {
    job.progress_step = step;
    job.last_progress = Mono();
  }
}

void Core::Impl::On(const AgentHeartbeat& command) {
  WorkerState* worker = OnConnection(command.connection_id);
  if (worker == nullptr) {
    return;
  }
  const v1::Heartbeat& heartbeat = command.heartbeat;
  Heard(*worker);
  MarkWorker(*worker, false);
  *worker->worker().mutable_device_status() = heartbeat.device();
  worker->worker().set_checkpoint_free_bytes(heartbeat.checkpoint_free_bytes());
  HeardHealth(*worker, heartbeat.unhealthy_reason());
  JobState* job = heartbeat.job_id().empty() ? nullptr : Find(heartbeat.job_id());
  const int rank = job == nullptr ? -1 : RankOf(*job, heartbeat.epoch(), *worker);
  if (rank < 0 || job->record.ranks(rank).gone()) {
    return;
  }
  if (!job->record.ranks(rank).confirmed()) {
    job->record.mutable_ranks(rank)->set_confirmed(true);
    MarkJob(*job, true);
  }
  if (heartbeat.step() > LastStep(*job)) {
    Close(*worker, FieldError("heartbeat.step", heartbeat.step(), LastStep(*job)));
    return;
  }
  Progress(*job, heartbeat.step());
  HeardPhase(*job, rank, heartbeat.phase());
  if (rank == 0 && heartbeat.phase() != job->job().phase()) {
    job->job().set_phase(heartbeat.phase());
    MarkJob(*job, false);
  }
  NoteTemperature(*job, *worker);
}

void Core::Impl::NoteTemperature(JobState& job, const WorkerState& worker) {
  const double celsius = worker.worker().device_status().temperature_celsius();
  if (!(celsius > job.job().devices().hottest_celsius())) {
    return;
  }
  v1::JobDevices& devices = *job.job().mutable_devices();
  devices.set_hottest_celsius(celsius);
  devices.set_hottest_worker_id(worker.worker().worker_id());
  *devices.mutable_hottest_time() = ToProto(now_.wall);
  devices.set_hottest_step(job.job().step());
  MarkJob(job, true);  // devices report whole degrees: some tens of writes in a job's life
}

}  // namespace hearth::coordinator
