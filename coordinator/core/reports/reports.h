// What tasks report: applied in order of seq, once each, and only from ranks of the present epoch
// that are not fenced. Owns nothing; it checks a report, counts it and hands it to the part that it
// is about.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "coordinator/core/folders/checkpoints.h"
#include "coordinator/core/gangs/gang_ends.h"
#include "coordinator/core/jobs/jobs.h"
#include "coordinator/core/part_rows.h"
#include "coordinator/core/rendezvous/key_values.h"
#include "coordinator/core/reports/job_logs.h"
#include "coordinator/core/reports/step_reports.h"
#include "coordinator/core/turn.h"
#include "coordinator/core/workers/workers.h"

namespace hearth::coordinator {

// Not thread-safe.
class Reports {
 public:
  // All that is passed in outlives this.
  Reports(Turn& turn,
          Workers& workers,
          Jobs& jobs,
          StepReports& steps,
          JobLogs& logs,
          KeyValues& key_values,
          Checkpoints& checkpoints,
          GangEnds& ends)
      : turn_(turn),
        workers_(workers),
        jobs_(jobs),
        steps_(steps),
        logs_(logs),
        key_values_(key_values),
        checkpoints_(checkpoints),
        ends_(ends) {}

  static std::vector<CommandRow> Rows();

  // kInvalidArgument: steps that the job cannot be at.
  static absl::Status Check(const JobState& job, const v1::TaskReport& report);

 private:
  void Take(const AgentReport& command);
  // Hands a report that is new to the part that it is about.
  void Apply(const WorkerState& worker, JobState& job, int rank, const v1::TaskReport& report);
  // The report of a task that is over for us.
  void TakeStale(const WorkerState& worker, const v1::TaskReport& report);
  void Ack(
      const WorkerState& worker, const std::string& job_id, int64_t epoch, int rank, int64_t seq);

  Turn& turn_;
  Workers& workers_;
  Jobs& jobs_;
  StepReports& steps_;
  JobLogs& logs_;
  KeyValues& key_values_;
  Checkpoints& checkpoints_;
  GangEnds& ends_;
};

}  // namespace hearth::coordinator
