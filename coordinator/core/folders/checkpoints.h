// The checkpoints that a job's record names: recorded when rank 0 announces them, dropped when
// newer ones take their places or a user deletes them. Checkpoints that a job of task: eval still
// has to evaluate are kept beyond keep_last until then, also while that job is paused; only a user
// can remove them. Both jobs say so in events of type "keep_last" when that changes, and once more
// after a restart if a holder is paused. JobState::checkpoints() is changed only here. Owns the
// list of jobs that have more than keep_last for that reason.
#pragma once

#include <map>
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
  // In a Tick: drops those beyond keep_last that nothing evaluates any more. Looks only after a
  // change to a job that evaluates.
  void Check();

 private:
  struct Key {
    std::string job_id;
    int64_t epoch = 0;
    int64_t step = 0;
    auto operator<=>(const Key&) const = default;  // NOLINT(modernize-use-nullptr)
  };

  // The jobs that are still to evaluate a checkpoint, in the order of their ids.
  using Awaited = std::map<Key, std::vector<std::string>>;
  // Jobs that hold what is beyond keep_last, and whether they are paused.
  using Holders = std::map<std::string, bool>;

  void Delete(const v1::DeleteCheckpointRequest& request);
  // keep_last over all epochs. The coordinator thins out, not the trainer: only here is it known
  // that a newer one is recorded, and a folder whose successor's announcement was lost is what the
  // job will resume from. Returns how many it dropped.
  int Prune(JobState& job, const Awaited& awaited);
  // Those that jobs which have not ended are still to evaluate.
  Awaited FindAwaited() const;
  // Tells both sides who holds more than keep_last of `job`, when that changes.
  void Say(JobState& job, const Holders& holders);

  Turn& turn_;
  Jobs& jobs_;
  Gangs& gangs_;
  Rendezvous& rendezvous_;
  CheckpointFolders& folders_;
  JobStates& states_;
  PlanTimer& plan_;
  bool restored_ = false;                // over_ has those of the time before this process
  std::map<std::string, Holders> over_;  // jobs with more than keep_last, and what was said of them
};

}  // namespace hearth::coordinator
