// The newest epoch of each job that was started here, so that an older one is never started again.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>

#include "worker/daemon/supervise/task_key.h"

namespace hearth::worker {

// Not thread-safe.
class EpochMemory {
 public:
  // Beyond it the job that came first is forgotten.
  static constexpr size_t kMaxJobs = 4096;

  // Absent: none that is remembered.
  std::optional<int64_t> Newest(const std::string& job_id) const;
  void Remember(const TaskKey& key);
  // Forgets the job, unless a newer epoch of it was here: a deleted job's id may be used again, and
  // its epochs begin at 1 again.
  void Forget(const TaskKey& key);

 private:
  std::map<std::string, int64_t> newest_;  // by job id
  std::deque<std::string> order_;          // in which the jobs of newest_ came
};

}  // namespace hearth::worker
