// What the core knows of one worker.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "hearth/v1/store.pb.h"

namespace hearth::coordinator {

using TaskKey = std::pair<std::string, int64_t>;  // job id, epoch

// A worker's record and what is known of it only while the process lives. Durations are monotonic
// times.
struct WorkerState {
  v1::WorkerRecord record;
  uint64_t connection = 0;  // 0 = none
  absl::Duration last_seen;
  absl::Duration gone_since;  // since when it has not been usable, for the queue's head
  absl::Duration idle_since;
  absl::Duration connected_since;
  bool seen = false;    // it has dialled in since this process began
  std::string address;  // of its last stream; empty = not known
  bool local = false;   // ... which came from this machine
  // Its last stream ended right after a word: the peer's kernel closed it, for one that no packet
  // reaches ends later, by a timeout.
  bool ended_by_peer = false;
  bool lost = false;
  bool reported_stopping = false;  // by its agent: the daemon has been asked to end
  std::string reported_unhealthy;  // by its agent
  std::string job_id;              // whose rank is here and not gone
  // Fenced tasks that still run here -> when their kill was sent.
  std::map<TaskKey, absl::Duration> foreign;
  std::set<TaskKey> forgotten;  // told to forget on this connection

  v1::Worker& worker() { return *record.mutable_worker(); }
  const v1::Worker& worker() const { return record.worker(); }
  bool Unhealthy() const { return !reported_unhealthy.empty() || !record.unhealthy().empty(); }
  // It ends and takes no new task. What it said on a stream that has ended does not count.
  bool Stopping() const { return reported_stopping && connection != 0; }
};

using WorkerMap = std::map<std::string, WorkerState>;  // by worker_id

}  // namespace hearth::coordinator
