// What is known of a gang only while the process lives: how far its ranks are, and the clocks of
// its start and its end. What must survive (ranks, the stop under way) is in GangRow.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/time/time.h"
#include "coordinator/core/core.h"
#include "coordinator/core/gangs/straggler_watch.h"

namespace hearth::coordinator {

// Time that a stopping gang may take.
absl::Duration Grace(const v1::Job& job);

// One job's present gang. All durations are monotonic times. Not thread-safe.
class Gang {
 public:
  // It starts now, or was found running after a start of the coordinator, at that step.
  Gang(int64_t step, absl::Duration now) : step_(step), last_progress_(now), started_(now) {}

  absl::Duration started() const { return started_; }
  // Progress that any rank reports, on any stream. `made`: the time of that step, or earlier.
  void Progress(int64_t step, absl::Duration made);
  int64_t step() const { return step_; }
  absl::Duration last_progress() const { return last_progress_; }
  // A step was made since the beginning above.
  bool progressed() const { return progressed_; }
  // What a step takes: the longest of the last few, so rather too long than too short. Infinite:
  // not known yet.
  absl::Duration step_time() const { return step_time_; }

  // Then the ranks that are left are killed; an earlier time stays.
  void EndBy(absl::Duration deadline);
  bool GraceIsOver(absl::Duration now) const { return now >= stop_deadline_; }
  // A KillTask was sent. It is repeated from time to time, until a worker that does not confirm it
  // within `timeout` of the first is given up.
  void KillSent(absl::Duration now);
  bool KillIsDue(absl::Duration now) const { return now >= kill_again_; }
  bool KillTimedOut(absl::Duration now, absl::Duration timeout) const {
    return now - kill_time_ >= timeout;
  }

  // What a rank does on its way to the first step (v1::Job.phase), as heartbeats say it.
  void HeardPhase(int ranks, int rank, const std::string& phase, absl::Duration now);
  // Why the gang takes too long to its first step; empty: it forms, or may still.
  std::string WhyNotFormed(const v1::JobRecord& record,
                           const CoreOptions& options,
                           absl::Duration now) const;

  StragglerWatch& stragglers() { return stragglers_; }

  // Joules that the device of this rank (not 0) used since it was asked before; 0 the first time.
  // `counter` is the device's own.
  double EnergySince(int rank, double counter);
  // The next answers count from then on.
  void ForgetEnergy() { energy_seen_.clear(); }

 private:
  struct Phase {
    std::string name;  // empty = nothing was heard of it yet
    absl::Duration since;
    absl::Duration met = absl::InfiniteDuration();  // when it came to the rendezvous
  };

  int64_t step_;  // highest that was heard of
  absl::Duration last_progress_;
  bool progressed_ = false;
  absl::Duration step_time_ = absl::InfiniteDuration();
  absl::Duration started_;
  std::vector<Phase> phases_;  // by rank; empty = none has sent a heartbeat
  absl::Duration stop_deadline_ = absl::InfiniteDuration();
  absl::Duration kill_time_ = absl::InfiniteDuration();  // of the first KillTask
  absl::Duration kill_again_ = absl::InfiniteDuration();
  StragglerWatch stragglers_;
  std::map<int, double> energy_seen_;  // rank -> its device's counter when last added
};

// The gangs of all jobs. Not thread-safe.
class Gangs {
 public:
  // The job's next gang; what was known of the one before is dropped.
  void Start(const std::string& job_id, int64_t step, absl::Duration now);
  void Drop(const std::string& job_id) { gangs_.erase(job_id); }
  // The gang of a job that has had one since the coordinator's start, or when it started.
  Gang& of(const std::string& job_id) { return gangs_.at(job_id); }
  const Gang& of(const std::string& job_id) const { return gangs_.at(job_id); }

 private:
  std::unordered_map<std::string, Gang> gangs_;  // by job id
};

}  // namespace hearth::coordinator
