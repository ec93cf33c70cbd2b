#include "coordinator/core/rendezvous/key_values.h"

#include <utility>

#include "coordinator/core/gangs/verdict.h"

namespace hearth::coordinator {

std::vector<CommandRow> KeyValues::Rows() {
  return {
      Row<&KeyValues::Wait>("agent_kv_wait"),
  };
}

void KeyValues::Put(JobState& job, int rank, const v1::KvPut& put) {
  Rendezvous::PutResult result =
      rendezvous_.Put(job.job().job_id(), job.job().epoch(), rank, put, turn_.effects());
  if (!result.refused.empty()) {
    states_.Note(job, "warning", "coordinator", result.refused);
  }
  for (Rendezvous::Answer& answer : result.answers) {
    Answer(job, answer.rank, std::move(answer.value));
  }
}

void KeyValues::Wait(const AgentKvWait& command) {
  const WorkerState* worker = workers_.OnConnection(command.connection_id);
  if (worker == nullptr) {
    return;
  }
  workers_.Heard(*worker, turn_.now());
  const JobState* job = jobs_.Find(command.wait.job_id());
  const int rank =
      job == nullptr ? -1 : RankOf(job->record(), command.wait.epoch(), worker->worker());
  if (rank < 0 || job->record().ranks(rank).gone()) {
    return;
  }
  if (auto value = rendezvous_.Wait(job->job().job_id(), rank, command.wait.key())) {
    Answer(*job, rank, *std::move(value));
  }
}

void KeyValues::Answer(const JobState& job, int rank, v1::KvValue value) {
  const v1::RankRecord& record = job.record().ranks(rank);
  const WorkerState* worker = workers_.Find(record.worker_id());
  // The process that had this rank is gone; its successor under the same name did not ask.
  if (worker == nullptr || worker->worker().incarnation() != record.incarnation()) {
    return;
  }
  v1::CoordinatorMessage message;
  message.mutable_kv_value()->set_job_id(job.job().job_id());
  message.mutable_kv_value()->set_epoch(job.job().epoch());
  message.mutable_kv_value()->set_rank(rank);
  *message.mutable_kv_value()->mutable_value() = std::move(value);
  turn_.Send(*worker, std::move(message));
}

}  // namespace hearth::coordinator
