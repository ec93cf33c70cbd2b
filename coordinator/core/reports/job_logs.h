// The lines that ranks log, within the bounds of a job. Owns nothing; JobState::log_rate and the
// log's cursor are changed only here.
#pragma once

#include "coordinator/core/core.h"
#include "coordinator/core/jobs/jobs.h"
#include "coordinator/core/turn.h"

namespace hearth::coordinator {

// Not thread-safe.
class JobLogs {
 public:
  // All that is passed in outlives this.
  JobLogs(const CoreOptions& options, Turn& turn) : options_(options), turn_(turn) {}

  void Append(JobState& job, int rank, const v1::LogBatch& logs);

 private:
  const CoreOptions& options_;
  Turn& turn_;
};

}  // namespace hearth::coordinator
