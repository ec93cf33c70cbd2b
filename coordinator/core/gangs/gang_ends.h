// How a gang is stopped, how its ranks are lost, and what follows for the job when they are gone.
// Owns nothing; the stop under way is in GangRow, the clocks are in Gang.
#pragma once

#include <optional>
#include <string>

#include "coordinator/core/gangs/gang.h"
#include "coordinator/core/gangs/recoveries.h"
#include "coordinator/core/jobs/job_states.h"
#include "coordinator/core/jobs/jobs.h"
#include "coordinator/core/liveness/liveness.h"
#include "coordinator/core/placement/plan_timer.h"
#include "coordinator/core/turn.h"
#include "coordinator/core/workers/workers.h"
#include "coordinator/scheduler/waiting_lines.h"

namespace hearth::coordinator {

// Not thread-safe.
class GangEnds {
 public:
  // All that is passed in outlives this.
  GangEnds(Turn& turn,
           Workers& workers,
           const Liveness& liveness,
           Jobs& jobs,
           Gangs& gangs,
           JobStates& states,
           Recoveries& recoveries,
           PlanTimer& plan)
      : turn_(turn),
        workers_(workers),
        liveness_(liveness),
        jobs_(jobs),
        gangs_(gangs),
        states_(states),
        recoveries_(recoveries),
        plan_(plan) {}

  // Control bit first, SIGKILL when grace_seconds are over; `kill_now` kills at once.
  void Stop(JobState& job,
            v1::JobState to,
            v1::ControlBit bit,
            const std::string& actor,
            const std::string& code,
            const std::string& reason,
            bool kill_now);
  void Kill(JobState& job, const std::string& why);
  // Sends a rank what the stop under way asks for; nothing without one.
  void SendStop(JobState& job, int rank);
  // Marks the rank lost, for `why`; `code` is counted in reason_counts. Does nothing if it is gone.
  void LoseRank(JobState& job, int rank, const std::string& why, const std::string& code);
  // The same, with worker_lost, for the rank that this worker runs, if any.
  void LoseRankOn(const WorkerState& worker, const std::string& why);
  // A rank reports that it is dying, or has exited.
  void Dying(JobState& job, int rank, const v1::TaskDying& dying);
  void Exited(const WorkerState& worker, JobState& job, int rank, const v1::TaskExit& exit);

 private:
  void ReleaseWorker(JobState& job, int rank);
  // To be called after any rank has gone: moves the job on.
  void Settle(JobState& job);
  void SettleRunning(JobState& job);
  void SettleRecovering(JobState& job);
  void SettleStopping(JobState& job);
  void Recover(JobState& job);
  void Finish(JobState& job, v1::JobState to, const std::string& code, const std::string& reason);
  // Counts a failure of all ranks, and avoids devices that are too small from now on; why the job
  // must not start again, or nullopt.
  std::optional<WaitText> WhyNoRestart(JobState& job, const Verdict& verdict);
  // After a gang that was as large as the job wants, and whose device was too small: the job takes
  // only larger ones. A job that has not had all the ranks it wants may fit when it has: more ranks
  // share its state. False: too few workers have larger ones, wherever they are now.
  bool AvoidSmallDevices(JobState& job, const Verdict& verdict);

  Turn& turn_;
  Workers& workers_;
  const Liveness& liveness_;
  Jobs& jobs_;
  Gangs& gangs_;
  JobStates& states_;
  Recoveries& recoveries_;
  PlanTimer& plan_;
};

}  // namespace hearth::coordinator
