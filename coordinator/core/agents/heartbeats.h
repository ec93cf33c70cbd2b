// Applies heartbeats, which say that a worker is alive, how its device is, and how far its rank is.
// Owns nothing.
#pragma once

#include <vector>

#include "coordinator/core/gangs/gang.h"
#include "coordinator/core/jobs/jobs.h"
#include "coordinator/core/part_rows.h"
#include "coordinator/core/turn.h"
#include "coordinator/core/workers/workers.h"

namespace hearth::coordinator {

// Not thread-safe.
class Heartbeats {
 public:
  // All that is passed in outlives this.
  Heartbeats(Turn& turn, const CoreOptions& options, Workers& workers, Jobs& jobs, Gangs& gangs)
      : turn_(turn), options_(options), workers_(workers), jobs_(jobs), gangs_(gangs) {}

  static std::vector<CommandRow> Rows();

 private:
  void Heard(const AgentHeartbeat& command);
  // Keeps the highest temperature of the job's devices.
  void NoteTemperature(JobState& job, const WorkerState& worker);

  Turn& turn_;
  const CoreOptions& options_;
  Workers& workers_;
  Jobs& jobs_;
  Gangs& gangs_;
};

}  // namespace hearth::coordinator
