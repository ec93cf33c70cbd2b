#include "coordinator/core/jobs/start_conditions.h"

#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/reasons/reason_codes.h"
#include "coordinator/core/errors.h"
#include "coordinator/core/transitions.h"

namespace hearth::coordinator {
namespace {

std::string TimeText(const google::protobuf::Timestamp& time) {
  return absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", FromProto(time), absl::UTCTimeZone());
}

absl::Status BadStart(const std::string& message) {
  return MakeError(absl::StatusCode::kInvalidArgument, "BAD_START",
                   absl::StrCat("start.after: ", message));
}

// Whether `job_id` is among the jobs that `first` waits for. Jobs wait for one another in chains
// without circles, because this is asked for each new link.
bool WaitsFor(const JobState* first, const std::string& job_id, const Jobs& jobs) {
  // Links that are fulfilled, or of jobs that have ended, hold nobody.
  while (first != nullptr && !IsTerminal(first->state()) &&
         !first->record().start().job_succeeded() && !first->job().spec().start().after().empty()) {
    const std::string& next = first->job().spec().start().after();
    if (next == job_id) {
      return true;
    }
    first = jobs.Find(next);
  }
  return false;
}

absl::StatusOr<bool> HasSucceeded(const std::string& after,
                                  const std::string& job_id,
                                  const Jobs& jobs) {
  const JobState* first = jobs.Find(after);
  if (first == nullptr) {
    return BadStart(absl::StrCat("there is no job ", after));
  }
  if (after == job_id || WaitsFor(first, job_id, jobs)) {
    return BadStart(absl::StrCat("job ", after, " waits for this job"));
  }
  if (first->state() == v1::JOB_STATE_SUCCEEDED) {
    return true;
  }
  if (IsTerminal(first->state())) {
    return MakeError(
        absl::StatusCode::kFailedPrecondition, "AFTER_ENDED",
        absl::StrCat("start.after: job ", after, " is ", StateName(first->state()),
                     ", so a job that waits for its success would never start; resume it first"));
  }
  return false;
}

}  // namespace

absl::StatusOr<v1::StartRecord> StartRecordOf(const v1::StartSpec& start,
                                              const std::string& job_id,
                                              const v1::StartRecord& before,
                                              const Jobs& jobs,
                                              absl::Time now) {
  v1::StartRecord record = before;
  if (start.has_not_before() && FromProto(start.not_before()) <= now) {
    record.set_time_came(true);
  }
  if (!start.after().empty() && !record.job_succeeded()) {
    HEARTH_ASSIGN_OR_RETURN(const bool succeeded, HasSucceeded(start.after(), job_id, jobs));
    record.set_job_succeeded(succeeded);
  }
  return record;
}

void StartConditions::Check() {
  TakeTimes();
  std::map<std::string, EndOfJob> ended = jobs_.TakeEnded();
  if (!std::exchange(restored_looked_at_, true)) {
    // The coordinator may have stopped between the end of a job and this look.
    for (const auto& [job_id, waiting] : jobs_.held().by_job()) {
      const JobState* const first = jobs_.Find(job_id);
      ended.try_emplace(job_id, first == nullptr ? EndOfJob{v1::JOB_STATE_UNSPECIFIED, true}
                                                 : EndOfJob{first->state(), false});
    }
  }
  // Jobs that are cancelled here may have jobs that wait for them.
  while (!ended.empty()) {
    for (const auto& [job_id, end] : ended) {
      TakeEnd(job_id, end);
    }
    ended = jobs_.TakeEnded();
  }
  for (const std::string& job_id : jobs_.TakeUntoldHeld()) {
    Say(*jobs_.Edit(job_id));
  }
}

void StartConditions::TakeTimes() {
  while (!jobs_.held().by_time().empty()) {
    const auto [time, job_id] = *jobs_.held().by_time().begin();
    if (time > turn_.wall()) {
      return;
    }
    JobState& job = *jobs_.Edit(job_id);
    v1::StartRecord start = job.record().start();
    start.set_time_came(true);
    LetGo(job, start, "its start time has come (start.not_before)");
  }
}

void StartConditions::TakeEnd(const std::string& job_id, const EndOfJob& end) {
  const auto found = jobs_.held().by_job().find(job_id);
  if (found == jobs_.held().by_job().end()) {
    return;
  }
  const bool succeeded = end.state == v1::JOB_STATE_SUCCEEDED;
  if (!succeeded && !end.deleted && !IsTerminal(jobs_.at(job_id).state())) {
    return;  // it was resumed
  }
  // A copy: each of them leaves the set.
  const std::vector<std::string> waiting(found->second.begin(), found->second.end());
  for (const std::string& id : waiting) {
    JobState& job = *jobs_.Edit(id);
    if (succeeded) {
      v1::StartRecord start = job.record().start();
      start.set_job_succeeded(true);
      LetGo(job, start, absl::StrCat("job ", job_id, " has succeeded (start.after)"));
      continue;
    }
    job.set_desired(v1::DESIRED_CANCEL);
    states_.Transition(job, v1::JOB_STATE_CANCELLED, "coordinator", reasons::kAfterNotSucceeded,
                       absl::StrCat("job ", job_id, ", whose success it waited for (start.after), ",
                                    end.deleted ? "was deleted" : "is " + StateName(end.state)));
  }
}

void StartConditions::LetGo(JobState& job, const v1::StartRecord& start, const std::string& why) {
  jobs_.SetStart(job, /*was_held=*/true, start, turn_.now());
  states_.Note(job, "update", "coordinator", why);
}

void StartConditions::Say(JobState& job) {
  const v1::StartSpec& start = job.job().spec().start();
  const v1::StartRecord& record = job.record().start();
  std::vector<std::string> waits;
  if (start.has_not_before() && !record.time_came()) {
    waits.push_back(
        absl::StrCat("for its start time, ", TimeText(start.not_before()), " (start.not_before)"));
  }
  if (!start.after().empty() && !record.job_succeeded()) {
    waits.push_back(absl::StrCat("for job ", start.after(), " to succeed (start.after)"));
  }
  job.set_reason(
      start.has_not_before() && !record.time_came() ? reasons::kStartTime : reasons::kAfterJob,
      absl::StrCat("waits ", absl::StrJoin(waits, " and ")));
  jobs_.Mark(job, false);
}

}  // namespace hearth::coordinator
