// The workers that the coordinator knows: their records, their streams, and what runs on them.
//
// This part alone changes a WorkerState; others read it and call what is named here. Each change
// marks the worker's row, which Flush hands out with its state brought up to date. Changes that
// matter to the scheduler ask for a plan.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "coordinator/core/core.h"
#include "coordinator/core/placement/plan_timer.h"
#include "coordinator/core/workers/worker_state.h"

namespace hearth::coordinator {

// Not thread-safe. Every WorkerState passed in is one of all(); references stay valid until the
// worker is deleted or forgotten.
class Workers {
 public:
  // Tasks that a stream may be told to forget; one that reports more of them makes them up.
  static constexpr size_t kForgottenMax = 4096;

  // `plan` outlives this.
  Workers(const CoreOptions& options, PlanTimer& plan) : options_(options), plan_(plan) {}

  // All workers, to loop over.
  const WorkerMap& all() const {
    visits_ += static_cast<int64_t>(workers_.size());
    return workers_;
  }
  // Null when unknown.
  const WorkerState* Find(const std::string& worker_id) const;
  // For ranks' workers, which are always known.
  const WorkerState& at(const std::string& worker_id) const {
    ++visits_;
    return *index_.at(worker_id);
  }
  // Null when the stream is no longer its worker's newest.
  const WorkerState* OnConnection(uint64_t connection_id) const;

  // Takes a stored row over after a start.
  void Restore(const v1::WorkerRecord& record, absl::Duration now);
  // After all rows: a rank of a job that has a gang. Its worker's row may be missing: the worker
  // will say Hello, or be lost.
  void RestoreRank(const v1::RankRecord& rank, const std::string& job_id, absl::Duration now);

  // Its daemon was replaced by another one; the old one is never admitted again.
  void RetireIncarnation(const WorkerState& worker);
  // A stream of an admitted worker; the one before has been disconnected.
  const WorkerState& Connect(const AgentConnected& command, Now now);
  void Disconnect(const WorkerState& worker, absl::Duration now);
  // ... and it was the other end that ended it.
  void StreamEnded(const WorkerState& worker, absl::Duration now);
  // ... and it said why before.
  void SaidGoodbye(const WorkerState& worker, absl::Duration now);
  // It is we who end its stream, with that status. Nothing happens when it has none.
  void Close(const WorkerState& worker,
             const absl::Status& status,
             absl::Duration now,
             Effects& effects);
  // It is lost until it says Hello.
  void MarkLost(const WorkerState& worker);

  void Heard(const WorkerState& worker, Now now);
  // What the agent says of its health; "" = healthy.
  void HeardHealth(const WorkerState& worker, const std::string& reason);
  // Whether its daemon is ending.
  void HeardStopping(const WorkerState& worker, bool stopping);
  void HeardDevice(const WorkerState& worker, const v1::Heartbeat& heartbeat);
  // Kept over restarts, until the agent says that it is healthy or somebody has looked.
  void MarkUnhealthy(const WorkerState& worker, const std::string& reason);

  // A rank of the job is on it. It has none and is connected.
  void Assign(const WorkerState& worker, const std::string& job_id);
  // The rank is gone; nothing happens if the worker has another job by now.
  void Release(const WorkerState& worker, const std::string& job_id, absl::Duration now);

  // A task of an epoch that is over runs there and was told to end.
  void Fence(const WorkerState& worker, const TaskKey& task, absl::Duration now);
  // Such a task has ended.
  void FencedTaskEnded(const WorkerState& worker,
                       const TaskKey& task,
                       const v1::TaskExit& exit,
                       absl::Duration now);
  // A fenced task that does not end makes its worker unhealthy.
  void CheckFenced(const WorkerState& worker, absl::Duration now);
  enum class Forgetting { kTold, kTell, kTooMany };
  // Whether a task that is not known here is to be forgotten on this connection.
  Forgetting ForgetTask(const WorkerState& worker, const TaskKey& task);

  // For the calls of users (worker_commands.cc): the record, to be changed.
  v1::WorkerRecord& Edit(const WorkerState& worker);
  // It has no rank, and is not connected.
  void Delete(const std::string& worker_id, Effects& effects);
  // Those that have not been connected for worker_ttl and that nobody has marked.
  void Expire(const std::function<bool(const WorkerState&)>& has_rank,
              absl::Duration now,
              Effects& effects);

  // What the derived fields of v1::Worker are made of and other parts know.
  struct Facts {
    int64_t epoch = 0;  // of its job, if it has one
    int rank = 0;
    bool silent = false;  // and that is to be shown
  };
  void UpdateView(const WorkerState& worker, const Facts& facts);
  // The same, and marks the row if the state is another one.
  void ReviewState(const WorkerState& worker, const Facts& facts);
  // Workers that were looked up or gone through since the last call; Visits.
  int64_t TakeVisits() { return std::exchange(visits_, 0); }
  // Hands out the rows that were marked.
  void Flush(const std::function<Facts(const WorkerState&)>& facts, Effects& effects);

 private:
  // The worker of that name, a new one if there is none.
  WorkerState& Known(const std::string& worker_id);
  WorkerState& Mine(const WorkerState& worker);
  void Mark(const WorkerState& worker, bool durable);

  const CoreOptions options_;
  PlanTimer& plan_;
  WorkerMap workers_;
  std::unordered_map<std::string_view, WorkerState*> index_;  // the same, to look up
  std::unordered_map<uint64_t, std::string> connections_;     // -> worker_id
  std::map<std::string, bool> dirty_;                         // worker_id -> durable
  mutable int64_t visits_ = 0;
};

}  // namespace hearth::coordinator
