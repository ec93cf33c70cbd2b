// A job for tests of the core's parts.
#pragma once

#include <cstdint>
#include <string>

#include "coordinator/core/jobs/jobs.h"

namespace hearth::coordinator {

// Waits for a gang; its gangs so far were those of the epochs 1 to `epoch`.
inline JobState QueuedJob(const std::string& id, int64_t epoch = 0) {
  v1::JobRecord record;
  record.mutable_job()->set_job_id(id);
  record.mutable_job()->set_state(v1::JOB_STATE_QUEUED);
  record.mutable_job()->set_epoch(epoch);
  return JobState(record);
}

}  // namespace hearth::coordinator
