// A Tick: the work that time triggers, in a fixed order. Owns the time of the last Tick.
#pragma once

#include <vector>

#include "coordinator/core/folders/checkpoint_folders.h"
#include "coordinator/core/folders/checkpoints.h"
#include "coordinator/core/gangs/deadlines.h"
#include "coordinator/core/gangs/stragglers.h"
#include "coordinator/core/gangs/stuck_jobs.h"
#include "coordinator/core/identity/token_commands.h"
#include "coordinator/core/jobs/jobs.h"
#include "coordinator/core/jobs/notifications.h"
#include "coordinator/core/jobs/repeated_calls.h"
#include "coordinator/core/jobs/start_conditions.h"
#include "coordinator/core/liveness/silent_workers.h"
#include "coordinator/core/part_rows.h"
#include "coordinator/core/placement/placement.h"
#include "coordinator/core/turn.h"
#include "coordinator/core/workers/worker_views.h"

namespace hearth::coordinator {

// Not thread-safe.
class Ticks {
 public:
  // All that is passed in outlives this.
  Ticks(const Turn& turn,
        const Jobs& jobs,
        SilentWorkers& silent,
        CheckpointFolders& folders,
        Checkpoints& checkpoints,
        Deadlines& deadlines,
        Stragglers& stragglers,
        StuckJobs& stuck,
        WorkerViews& views,
        RepeatedCalls& calls,
        TokenCommands& tokens,
        StartConditions& conditions,
        Placement& placement,
        Notifications& notifications)
      : turn_(turn),
        jobs_(jobs),
        silent_(silent),
        folders_(folders),
        checkpoints_(checkpoints),
        deadlines_(deadlines),
        stragglers_(stragglers),
        stuck_(stuck),
        views_(views),
        calls_(calls),
        tokens_(tokens),
        conditions_(conditions),
        placement_(placement),
        notifications_(notifications),
        last_(turn.mono()) {}

  static std::vector<CommandRow> Rows();

  // When the next one is due, whatever is asked for.
  absl::Duration Due() const;

 private:
  void Pass(const Tick& tick);
  // Looks who is silent, late or slow.
  void Judge();

  const Turn& turn_;
  const Jobs& jobs_;
  SilentWorkers& silent_;
  CheckpointFolders& folders_;
  Checkpoints& checkpoints_;
  Deadlines& deadlines_;
  Stragglers& stragglers_;
  StuckJobs& stuck_;
  WorkerViews& views_;
  RepeatedCalls& calls_;
  TokenCommands& tokens_;
  StartConditions& conditions_;
  Placement& placement_;
  Notifications& notifications_;
  absl::Duration last_;  // monotonic
};

}  // namespace hearth::coordinator
