#include "coordinator/core/jobs/held_jobs.h"

#include "coordinator/core/errors.h"

namespace hearth::coordinator {

bool IsHeld(const v1::JobRecord& record) {
  const v1::StartSpec& start = record.job().spec().start();
  return (start.has_not_before() && !record.start().time_came()) ||
         (!start.after().empty() && !record.start().job_succeeded());
}

void HeldJobs::Put(const v1::JobRecord& record) {
  const std::string& job_id = record.job().job_id();
  const v1::StartSpec& start = record.job().spec().start();
  Held held;
  if (start.has_not_before() && !record.start().time_came()) {
    held.time = FromProto(start.not_before());
  }
  if (!record.start().job_succeeded()) {
    held.after = start.after();
  }
  if (const auto found = held_.find(job_id); found != held_.end()) {
    if (found->second == held) {
      return;
    }
    Unlink(job_id, found->second);
  }
  held_[job_id] = held;
  untold_.insert(job_id);
  if (held.time < absl::InfiniteFuture()) {
    by_time_.emplace(held.time, job_id);
  }
  if (!held.after.empty()) {
    by_job_[held.after].insert(job_id);
  }
}

void HeldJobs::Remove(const std::string& job_id) {
  if (const auto found = held_.find(job_id); found != held_.end()) {
    Unlink(job_id, found->second);
    held_.erase(found);
  }
}

void HeldJobs::Unlink(const std::string& job_id, const Held& held) {
  untold_.erase(job_id);
  by_time_.erase({held.time, job_id});
  if (const auto waiting = by_job_.find(held.after); waiting != by_job_.end()) {
    waiting->second.erase(job_id);
    if (waiting->second.empty()) {
      by_job_.erase(waiting);
    }
  }
}

}  // namespace hearth::coordinator
