#include "coordinator/core/workers/workers.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "coordinator/core/errors.h"

namespace hearth::coordinator {
namespace {

constexpr int kRetiredKept = 8;
// Heartbeats between a worker's last word and the end of its stream. TCP gives up a peer that no
// packet reaches after 5 s (keepalive in common/rpc).
constexpr int kEndedAtOnce = 6;

}  // namespace

WorkerState& Workers::Mine(const WorkerState& worker) {
  return *index_.at(worker.worker().worker_id());
}

WorkerState& Workers::Known(const std::string& worker_id) {
  const auto known = workers_.try_emplace(worker_id).first;
  index_[known->first] = &known->second;
  return known->second;
}

void Workers::Mark(const WorkerState& worker, bool durable) {
  bool& mark = dirty_[worker.worker().worker_id()];
  mark = mark || durable;
}

const WorkerState* Workers::Find(const std::string& worker_id) const {
  ++visits_;
  const auto it = index_.find(worker_id);
  return it == index_.end() ? nullptr : it->second;
}

const WorkerState* Workers::OnConnection(uint64_t connection_id) const {
  const auto it = connections_.find(connection_id);
  return it == connections_.end() ? nullptr : Find(it->second);
}

void Workers::Restore(const v1::WorkerRecord& record, absl::Duration now) {
  WorkerState& worker = Known(record.worker().worker_id());
  worker.record = record;
  // Silence is counted from this start: earlier moments are of another process and tell how long
  // nobody listened.
  worker.last_seen = worker.gone_since = worker.idle_since = worker.connected_since = now;
}

void Workers::RestoreRank(const v1::RankRecord& rank,
                          const std::string& job_id,
                          absl::Duration now) {
  // A rank may outlive the record of its worker; liveness has to find one all the same.
  if (!index_.contains(rank.worker_id())) {
    v1::WorkerRecord record;
    record.mutable_worker()->set_worker_id(rank.worker_id());
    record.mutable_worker()->set_incarnation(rank.incarnation());
    Restore(record, now);
  }
  if (!rank.gone()) {
    index_.at(rank.worker_id())->job_id = job_id;
  }
}

void Workers::RetireIncarnation(const WorkerState& worker) {
  WorkerState& mine = Mine(worker);
  auto& retired = *mine.record.mutable_retired_incarnations();
  retired.Add(std::string(mine.worker().incarnation()));
  // The newest goes to the front, so that the oldest one falls out.
  for (int i = retired.size() - 1; i > 0; --i) {
    retired.SwapElements(i, i - 1);
  }
  while (retired.size() > kRetiredKept) {
    retired.RemoveLast();
  }
  // What made it unhealthy was a task of the process that is gone.
  mine.record.clear_unhealthy();
}

const WorkerState& Workers::Connect(const AgentConnected& command, Now now) {
  const v1::Hello& hello = command.hello;
  WorkerState& worker = Known(hello.worker_id());
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
  *view.mutable_confinement() = hello.confinement();
  *view.mutable_connect_time() = ToProto(now.wall);
  HeardHealth(worker, hello.unhealthy_reason());
  HeardStopping(worker, hello.stopping());
  // The Hello lists all tasks of the worker: what was fenced or forgotten is judged again by that
  // list.
  worker.foreign.clear();
  worker.forgotten.clear();
  worker.record.set_name_key_sha256(command.name_key_sha256);  // the same, or the first
  worker.connection = command.connection_id;
  connections_[command.connection_id] = hello.worker_id();
  Heard(worker, now);
  worker.lost = false;
  worker.idle_since = worker.connected_since = now.monotonic;
  worker.address = command.address;
  worker.local = command.local;
  worker.ended_by_peer = false;
  worker.seen = true;
  Mark(worker, true);
  plan_.Ask();
  return worker;
}

void Workers::Disconnect(const WorkerState& worker, absl::Duration now) {
  WorkerState& mine = Mine(worker);
  connections_.erase(mine.connection);
  mine.connection = 0;
  mine.gone_since = now;
  Mark(mine, false);
  plan_.Ask();
}

void Workers::StreamEnded(const WorkerState& worker, absl::Duration now) {
  Disconnect(worker, now);
  // Heard of a moment ago: then the other side has ended the stream. A cut cable is silent first.
  Mine(worker).ended_by_peer = now - worker.last_seen < kEndedAtOnce * options_.heartbeat;
}

void Workers::SaidGoodbye(const WorkerState& worker, absl::Duration now) {
  Disconnect(worker, now);
  Mark(worker, true);
}

void Workers::Close(const WorkerState& worker,
                    const absl::Status& status,
                    absl::Duration now,
                    Effects& effects) {
  if (worker.connection != 0) {
    effects.closes.push_back({worker.connection, status});
    Disconnect(worker, now);
  }
}

void Workers::MarkLost(const WorkerState& worker) {
  Mine(worker).lost = true;
  Mark(worker, false);
}

void Workers::Heard(const WorkerState& worker, Now now) {
  WorkerState& mine = Mine(worker);
  mine.last_seen = now.monotonic;
  *mine.worker().mutable_last_seen_time() = ToProto(now.wall);
}

void Workers::HeardHealth(const WorkerState& worker, const std::string& reason) {
  WorkerState& mine = Mine(worker);
  if (mine.reported_unhealthy == reason) {
    return;
  }
  // What made a task's end unclean is gone at last: the agent, who saw it, says so.
  if (reason.empty() && !mine.record.unhealthy().empty()) {
    mine.record.clear_unhealthy();
    Mark(mine, true);
  }
  mine.reported_unhealthy = reason;
  plan_.Ask();
}

void Workers::HeardStopping(const WorkerState& worker, bool stopping) {
  WorkerState& mine = Mine(worker);
  if (mine.reported_stopping != stopping) {
    mine.reported_stopping = stopping;
    Mark(mine, false);
    plan_.Ask();
  }
}

void Workers::HeardDevice(const WorkerState& worker, const v1::Heartbeat& heartbeat) {
  WorkerState& mine = Mine(worker);
  *mine.worker().mutable_device_status() = heartbeat.device();
  mine.worker().set_checkpoint_free_bytes(heartbeat.checkpoint_free_bytes());
  Mark(mine, false);
}

void Workers::MarkUnhealthy(const WorkerState& worker, const std::string& reason) {
  Mine(worker).record.set_unhealthy(reason);
  Mark(worker, true);
}

void Workers::Assign(const WorkerState& worker, const std::string& job_id) {
  HEARTH_CHECK(worker.job_id.empty() && worker.connection != 0, "gangs start on free workers");
  Mine(worker).job_id = job_id;
  Mark(worker, false);
}

void Workers::Release(const WorkerState& worker, const std::string& job_id, absl::Duration now) {
  WorkerState& mine = Mine(worker);
  // Only if it is still this job's: a late release must not free a worker that runs another one.
  if (mine.job_id == job_id) {
    mine.job_id.clear();
    mine.idle_since = now;
    Mark(mine, false);
    plan_.Ask();
  }
}

void Workers::Fence(const WorkerState& worker, const TaskKey& task, absl::Duration now) {
  Mine(worker).foreign[task] = now;
}

void Workers::FencedTaskEnded(const WorkerState& worker,
                              const TaskKey& task,
                              const v1::TaskExit& exit,
                              absl::Duration now) {
  WorkerState& mine = Mine(worker);
  mine.foreign.erase(task);
  mine.idle_since = now;
  if (exit.clean()) {
    mine.record.clear_unhealthy();  // a kill that took too long has come to its end
  } else {
    mine.record.set_unhealthy(exit.unclean_reason().empty() ? "a task could not be proven gone"
                                                            : exit.unclean_reason());
  }
  Mark(mine, true);
  plan_.Ask();
}

void Workers::CheckFenced(const WorkerState& worker, absl::Duration now) {
  for (const auto& [task, since] : worker.foreign) {
    if (worker.connection != 0 && worker.record.unhealthy().empty() &&
        now - since >= options_.kill_timeout) {
      MarkUnhealthy(worker, absl::StrCat("does not confirm the kill of ", task.first, " epoch ",
                                         task.second));
      plan_.Ask();
    }
  }
}

Workers::Forgetting Workers::ForgetTask(const WorkerState& worker, const TaskKey& task) {
  WorkerState& mine = Mine(worker);
  if (mine.forgotten.size() >= kForgottenMax) {
    return Forgetting::kTooMany;
  }
  return mine.forgotten.insert(task).second ? Forgetting::kTell : Forgetting::kTold;
}

v1::WorkerRecord& Workers::Edit(const WorkerState& worker) {
  Mark(worker, true);
  plan_.Ask();
  return Mine(worker).record;
}

void Workers::Delete(const std::string& worker_id, Effects& effects) {
  effects.worker_deletes.push_back(worker_id);
  // Both look up by views of the key in workers_, so they go first.
  dirty_.erase(worker_id);
  index_.erase(worker_id);
  workers_.erase(worker_id);
}

void Workers::Expire(const std::function<bool(const WorkerState&)>& has_rank,
                     absl::Duration now,
                     Effects& effects) {
  visits_ += static_cast<int64_t>(workers_.size());
  for (auto it = workers_.begin(); it != workers_.end();) {
    // Delete removes this entry, so the iterator goes on first.
    const WorkerState& worker = (it++)->second;
    // A cordon, and the mark of a kill that was never confirmed, must not be forgotten by the mere
    // passing of time.
    if (worker.connection == 0 && !worker.worker().cordoned() &&
        worker.record.unhealthy().empty() && now - worker.gone_since >= options_.worker_ttl &&
        !has_rank(worker)) {
      Delete(std::string(worker.worker().worker_id()), effects);
    }
  }
}

void Workers::UpdateView(const WorkerState& worker, const Facts& facts) {
  v1::Worker& view = Mine(worker).worker();
  view.clear_job_id();
  view.clear_epoch();
  view.clear_rank();
  view.clear_reason();
  if (!worker.job_id.empty()) {
    view.set_job_id(worker.job_id);
    view.set_epoch(facts.epoch);
    view.set_rank(facts.rank);
  }
  if (worker.lost) {
    view.set_state(v1::WORKER_STATE_LOST);
    view.set_reason("silent");
  } else if (worker.connection != 0 && worker.Unhealthy()) {
    view.set_state(v1::WORKER_STATE_UNHEALTHY);
    view.set_reason(worker.record.unhealthy().empty() ? worker.reported_unhealthy
                                                      : worker.record.unhealthy());
  } else if (worker.connection != 0 && !facts.silent) {
    view.set_state(worker.job_id.empty() ? v1::WORKER_STATE_IDLE : v1::WORKER_STATE_BUSY);
    if (!worker.foreign.empty()) {
      view.set_reason("an old task is being killed");
    }
  } else if (!worker.job_id.empty()) {
    view.set_state(v1::WORKER_STATE_UNREACHABLE);
    view.set_reason("silent; its job is believed to go on");
  } else {
    view.set_state(v1::WORKER_STATE_OFFLINE);
  }
  if (view.draining() && view.reason().empty()) {
    view.set_reason("draining");
  }
  if (worker.Stopping() && view.reason().empty()) {
    view.set_reason("stopping");
  }
}

void Workers::ReviewState(const WorkerState& worker, const Facts& facts) {
  const v1::WorkerState before = worker.worker().state();
  UpdateView(worker, facts);
  if (worker.worker().state() != before) {
    Mark(worker, false);
    plan_.Ask();
  }
}

void Workers::Flush(const std::function<Facts(const WorkerState&)>& facts, Effects& effects) {
  for (const auto& [id, durable] : dirty_) {
    if (const WorkerState* worker = Find(id)) {
      UpdateView(*worker, facts(*worker));
      effects.workers.push_back({worker->record, durable});
    }
  }
  dirty_.clear();
}

}  // namespace hearth::coordinator
