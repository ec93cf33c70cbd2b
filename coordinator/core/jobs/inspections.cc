#include "coordinator/core/jobs/inspections.h"

#include "common/reasons/reason_codes.h"
#include "coordinator/core/transitions.h"
#include "coordinator/scheduler/scheduler.h"

namespace hearth::coordinator {
namespace {

constexpr absl::Duration kInspectTimeout = absl::Seconds(10);

}  // namespace

std::vector<CommandRow> Inspections::Rows() {
  return {
      Row<&Inspections::Done>("inspection_done"),
  };
}

void Inspections::Ask(JobState& job, const std::string& worker_id) {
  if (turn_.mono() >= job.inspect_until) {
    job.inspect_until = turn_.mono() + kInspectTimeout;
    turn_.effects().inspections.push_back({job.job().job_id(), job.job().etag(),
                                           workers_.at(worker_id).connection, worker_id,
                                           job.job().spec()});
  }
}

const WorkerState* Inspections::FindWorker(const v1::JobSpec& spec) const {
  for (const auto& [id, worker] : workers_.all()) {
    if (worker.connection != 0 && !worker.Unhealthy() && !liveness_.Silent(worker, turn_.mono()) &&
        Suits(worker.worker(), spec.resources())) {
      return &worker;
    }
  }
  return nullptr;
}

void Inspections::Done(const InspectionDone& command) {
  JobState* job = jobs_.Edit(command.job_id);
  if (job == nullptr || job->record().paths_checked() || job->state() != v1::JOB_STATE_QUEUED) {
    return;
  }
  plan_.Ask();
  job->inspect_until = -absl::InfiniteDuration();
  if (!command.etag.empty() && command.etag != job->job().etag()) {
    return;  // asked about an older spec
  }
  const absl::StatusCode code = command.status.code();
  if (code == absl::StatusCode::kUnavailable || code == absl::StatusCode::kDeadlineExceeded) {
    // The worker left or did not answer: a reason to ask again soon, not to fail the job.
    job->inspect_until = turn_.mono() + absl::Seconds(2);
    return;
  }
  if (!command.status.ok()) {
    const bool too_large = code == absl::StatusCode::kResourceExhausted;
    states_.Transition(*job, v1::JOB_STATE_FAILED, "coordinator",
                       too_large ? reasons::kBadSpec : reasons::kBadData,
                       std::string(command.status.message()));
    return;
  }
  job->set_paths_checked(true);
  if (command.spec.has_value()) {
    job->set_spec(*command.spec);
  }
  jobs_.Mark(*job, true);
}

}  // namespace hearth::coordinator
