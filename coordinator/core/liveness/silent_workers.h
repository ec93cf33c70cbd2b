// What follows from silence: workers are lost, and their ranks with them. Owns nothing; Liveness
// judges.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "coordinator/core/gangs/gang.h"
#include "coordinator/core/gangs/gang_ends.h"
#include "coordinator/core/jobs/job_states.h"
#include "coordinator/core/jobs/jobs.h"
#include "coordinator/core/liveness/isolation.h"
#include "coordinator/core/liveness/liveness.h"
#include "coordinator/core/turn.h"
#include "coordinator/core/workers/workers.h"

namespace hearth::coordinator {

// Not thread-safe.
class SilentWorkers {
 public:
  // All that is passed in outlives this.
  SilentWorkers(Turn& turn,
                Workers& workers,
                Liveness& liveness,
                Jobs& jobs,
                const Gangs& gangs,
                JobStates& states,
                GangEnds& ends,
                Isolation& isolation)
      : turn_(turn),
        workers_(workers),
        liveness_(liveness),
        jobs_(jobs),
        gangs_(gangs),
        states_(states),
        ends_(ends),
        isolation_(isolation) {}

  // Judges who is silent and ends what was lost; called in a Tick.
  void Check();
  // The next Check is due then, whatever the last one saw.
  void CheckAt(absl::Duration time) { next_ = time; }
  // The earliest time at which a silence or an excuse that the last Check saw will be over;
  // infinite = none is known. A message from the worker before then only makes it later.
  absl::Duration NextCheck() const { return next_; }
  // A user says that this silent worker, which is not lost yet, is gone.
  void DeclareLost(const WorkerState& worker);

 private:
  // Whether the monotonic time `at` has come; else it counts for NextCheck.
  bool IsOver(absl::Duration at);
  // A grace after a start, a stall or an isolation still holds for this worker.
  // `returns` is made when it is needed.
  bool InQuiet(const WorkerState& worker, std::optional<Liveness::Returns>& returns) const;
  // Its job gets an event that it is silent and not lost, once for each silence.
  void NoteUnreachable(const WorkerState& worker);
  std::string SilentFor(const WorkerState& worker) const;
  // `by` is appended to the reason; "" = the coordinator itself has noticed.
  void Lose(const WorkerState& worker, const std::string& by);

  Turn& turn_;
  Workers& workers_;
  Liveness& liveness_;
  Jobs& jobs_;
  const Gangs& gangs_;
  JobStates& states_;
  GangEnds& ends_;
  Isolation& isolation_;
  absl::Duration next_ = absl::InfiniteDuration();  // monotonic
  std::map<std::string, absl::Duration> noted_;     // of NoteUnreachable: by worker, its last_seen
};

}  // namespace hearth::coordinator
