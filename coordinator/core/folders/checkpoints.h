// The checkpoints that a job's record names: recorded when rank 0 announces them, dropped when
// newer ones take their places or a user deletes them. Checkpoints that a job of task: eval still
// has to evaluate are kept beyond keep_last until then; only a user can remove them.
// JobState::checkpoints() is changed only here. Owns the list of jobs that have more than keep_last
// for that reason.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "coordinator/core/folders/checkpoint_folders.h"
#include "coordinator/core/gangs/gang.h"
#include "coordinator/core/jobs/job_states.h"
#include "coordinator/core/jobs/jobs.h"
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
              Jobs& jobs,
              JobStates& states,
              PlanTimer& plan)
      : turn_(turn),
        jobs_(jobs),
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
  // Drops those beyond keep_last that nothing evaluates any more.
  void Check();

 private:
  struct Key {
    std::string job_id;
    int64_t epoch = 0;
    int64_t step = 0;
    auto operator<=>(const Key&) const = default;
  };

  void Delete(const v1::DeleteCheckpointRequest& request);
  // keep_last over all epochs. The coordinator thins out, not the trainer: only here is it known
  // that a newer one is recorded, and a folder whose successor's announcement was lost is what the
  // job will resume from. Returns how many it dropped.
  int Prune(JobState& job, const std::set<Key>& awaited);
  // Those that jobs which have not ended are still to evaluate.
  std::set<Key> Awaited() const;

  Turn& turn_;
  Jobs& jobs_;
  Gangs& gangs_;
  Rendezvous& rendezvous_;
  CheckpointFolders& folders_;
  JobStates& states_;
  PlanTimer& plan_;
  bool restored_ = false;       // over_ has those of the time before this process
  std::set<std::string> over_;  // ids of jobs with more than keep_last
};

}  // namespace hearth::coordinator
