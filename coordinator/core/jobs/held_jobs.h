// The jobs that wait for a time or for another job (spec.start), so that neither a plan nor a tick
// looks at jobs that still have to wait.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "hearth/v1/store.pb.h"

namespace hearth::coordinator {

// A condition of spec.start is not met yet.
bool IsHeld(const v1::JobRecord& record);

// Not thread-safe.
class HeldJobs {
 public:
  // The job waits from now on, or what it waits for has changed.
  void Put(const v1::JobRecord& record);
  // It waits no longer; nothing happens if it did not.
  void Remove(const std::string& job_id);

  // By start.not_before, the earliest first.
  const std::set<std::pair<absl::Time, std::string>>& by_time() const { return by_time_; }
  // The jobs that wait for a job, by that job's id.
  const std::map<std::string, std::set<std::string>>& by_job() const { return by_job_; }
  // Jobs that have not been told yet what they wait for; they count as told now.
  std::set<std::string> TakeUntold() { return std::exchange(untold_, {}); }

 private:
  struct Held {
    absl::Time time = absl::InfiniteFuture();  // infinite: it waits for none
    std::string after;                         // empty: it waits for none

    friend bool operator==(const Held& a, const Held& b) = default;
  };
  void Unlink(const std::string& job_id, const Held& held);

  std::map<std::string, Held> held_;  // by job id
  std::set<std::pair<absl::Time, std::string>> by_time_;
  std::map<std::string, std::set<std::string>> by_job_;
  std::set<std::string> untold_;
};

}  // namespace hearth::coordinator
