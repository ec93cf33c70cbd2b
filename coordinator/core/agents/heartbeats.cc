#include "coordinator/core/agents/heartbeats.h"

#include "coordinator/core/errors.h"
#include "coordinator/core/gangs/verdict.h"

namespace hearth::coordinator {

std::vector<CommandRow> Heartbeats::Rows() {
  return {
      Row<&Heartbeats::Heard>("agent_heartbeat"),
  };
}

void Heartbeats::Heard(const AgentHeartbeat& command) {
  const WorkerState* worker = workers_.OnConnection(command.connection_id);
  if (worker == nullptr) {
    return;
  }
  const v1::Heartbeat& heartbeat = command.heartbeat;
  workers_.Heard(*worker, turn_.now());
  workers_.HeardDevice(*worker, heartbeat);
  workers_.HeardHealth(*worker, heartbeat.unhealthy_reason());
  workers_.HeardStopping(*worker, heartbeat.stopping());
  JobState* job = heartbeat.job_id().empty() ? nullptr : jobs_.Edit(heartbeat.job_id());
  const int rank = job == nullptr ? -1 : RankOf(job->record(), heartbeat.epoch(), worker->worker());
  if (rank < 0 || job->record().ranks(rank).gone()) {
    return;
  }
  if (job->gang().Confirm(rank)) {
    jobs_.Mark(*job, true);
  }
  if (heartbeat.step() > Jobs::LastStep(*job)) {
    workers_.Close(*worker, FieldError("heartbeat.step", heartbeat.step(), Jobs::LastStep(*job)),
                   turn_.mono(), turn_.effects());
    return;
  }
  Gang& gang = gangs_.of(heartbeat.job_id());
  // The step may be as old as the heartbeat before this one. A peer of the rank may have been cut
  // off right after that, and must not look alive for longer.
  gang.Progress(heartbeat.step(), turn_.mono() - options_.heartbeat);
  gang.HeardPhase(job->record().ranks_size(), rank, heartbeat.phase(), turn_.mono());
  gang.stragglers().Heard(job->record().ranks_size(), rank, heartbeat.compute_seconds());
  if (rank == 0 && heartbeat.phase() != job->job().phase()) {
    job->set_phase(heartbeat.phase());
    jobs_.Mark(*job, false);
  }
  NoteTemperature(*job, *worker);
}

void Heartbeats::NoteTemperature(JobState& job, const WorkerState& worker) {
  const double celsius = worker.worker().device_status().temperature_celsius();
  if (!(celsius > job.job().devices().hottest_celsius())) {
    return;
  }
  v1::JobDevices& devices = job.devices();
  devices.set_hottest_celsius(celsius);
  devices.set_hottest_worker_id(worker.worker().worker_id());
  *devices.mutable_hottest_time() = ToProto(turn_.wall());
  devices.set_hottest_step(job.job().step());
  jobs_.Mark(job, true);  // devices report whole degrees: some tens of writes in a job's life
}

}  // namespace hearth::coordinator
