// The checkpoints that a job's record names: recorded when rank 0 announces them, dropped when
// newer ones take their places or a user deletes them. Owns nothing; JobState::checkpoints() is
// changed only here.
#pragma once

#include <vector>

#include "coordinator/core/folders/checkpoint_folders.h"
#include "coordinator/core/gangs/gang.h"
#include "coordinator/core/jobs/job_states.h"
#include "coordinator/core/part_rows.h"
#include "coordinator/core/placement/plan_timer.h"
#include "coordinator/core/rendezvous/rendezvous.h"
#include "coordinator/core/turn.h"

namespace hearth::coordinator {

// Not thread-safe.
class Checkpoints {
 public:
  // All that is passed in outlives this.
  Checkpoints(Turn& turn,
              Gangs& gangs,
              Rendezvous& rendezvous,
              CheckpointFolders& folders,
              JobStates& states,
              PlanTimer& plan)
      : turn_(turn),
        gangs_(gangs),
        rendezvous_(rendezvous),
        folders_(folders),
        states_(states),
        plan_(plan) {}

  static std::vector<CommandRow> Rows();

  // The rank, on this worker, has written one. Only rank 0's counts.
  void Announced(const WorkerState& worker,
                 JobState& job,
                 int rank,
                 const v1::CheckpointAnnouncement& announcement);

 private:
  void Delete(const v1::DeleteCheckpointRequest& request);
  // keep_last over all epochs. The coordinator thins out, not the trainer: only here is it known
  // that a newer one is recorded, and a folder whose successor's announcement was lost is what the
  // job will resume from.
  void Prune(JobState& job);

  Turn& turn_;
  Gangs& gangs_;
  Rendezvous& rendezvous_;
  CheckpointFolders& folders_;
  JobStates& states_;
  PlanTimer& plan_;
};

}  // namespace hearth::coordinator
