// Finds the folders under the workers' checkpoint roots that nobody needs. One worker of each root
// is asked to list the root: after the worker connects, when gangs end, and periodically. Owns the
// listings; reads jobs and workers, and changes neither.
//
// Without being asked, it removes only what certainly belongs to one of our jobs and is not needed.
// In epochs whose ranks are all gone (so that no announcement can still arrive), that is everything
// that is not a checkpoint, and checkpoints that no record names and that are older than a recorded
// one. Everything else stays until somebody prunes it: folders of jobs that are not known here
// (deleted, or another coordinator's), folders of epochs that the job has not reached (the store is
// an older copy, or the name was used before), and whole checkpoints that changed when the job did
// not run. The rest of an interrupted write or removal from such a time is removed too, once it has
// been listed without a change for a while, because file times are wrong after a jump of the wall
// clock.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/core/folders/roots.h"
#include "coordinator/core/jobs/jobs.h"
#include "coordinator/core/liveness/liveness.h"
#include "coordinator/core/part_rows.h"
#include "coordinator/core/turn.h"
#include "coordinator/core/workers/workers.h"

namespace hearth::coordinator {

// The checkpoint's folder as that worker sees it; roots that are shared may be mounted at different
// places.
std::string FolderOn(const v1::Worker& worker, const v1::Checkpoint& checkpoint);

// Not thread-safe.
class CheckpointFolders {
 public:
  // All that is passed in outlives this.
  CheckpointFolders(Turn& turn, const Workers& workers, const Jobs& jobs, const Liveness& liveness)
      : turn_(turn), workers_(workers), jobs_(jobs), liveness_(liveness) {}

  static std::vector<CommandRow> Rows();

  // The root is to be listed again, `after` at the earliest (Roots::LookAt).
  void LookAt(const std::string& root_uuid, absl::Duration after) {
    roots_.LookAt(root_uuid, after, turn_.mono());
  }
  // ... those of the gang's workers, soon: it may have left folders behind.
  void LookAtRootsOf(const JobState& job);
  // Asks workers for the listings that are due.
  void AskForListings();
  // <root>/<job id> of each root with checkpoints of the job.
  std::vector<v1::JobFolder> FoldersOf(const JobState& job) const;
  // The first connected worker of this root that is not silent; null = none.
  const WorkerState* WorkerOfRoot(const std::string& root_uuid) const;
  // Why the worker cannot read checkpoints of this root for other work than training now, for
  // people: "runs job-x7k2m"; "" = it can.
  std::string WhyNotIdleReader(const WorkerState& worker, const std::string& root_uuid) const;
  // Removes a checkpoint's folder that no record names any more. If no worker sees it now, it is
  // found when one dials in.
  void Drop(const v1::Checkpoint& checkpoint);

 private:
  struct Leftover {
    bool needed = true;      // recorded, or may be being written
    bool by_itself = false;  // to be removed without being asked
    bool rest = false;   // of an interrupted write or removal; to be removed once it is unchanged
    std::string reason;  // why nobody needs it
  };

  void Prune(const v1::PruneCheckpointsRequest& request);
  void Listed(const AgentFolders& command);
  // Connected, not silent, and it has a root.
  bool Sees(const WorkerState& worker) const;
  // The same of all roots.
  std::map<std::string_view, const WorkerState*> SeersOfRoots() const;
  Leftover JudgeFolder(const v1::CheckpointFolder& folder) const;
  void RemoveFolder(const WorkerState& worker, const v1::CheckpointFolder& folder);
  // Adds what is left under a root to the answer and, unless it is a dry run, removes it.
  void PruneRoot(const v1::PruneCheckpointsRequest& request,
                 const std::string& uuid,
                 const Root& root,
                 v1::PruneCheckpointsResponse& response);

  Turn& turn_;
  const Workers& workers_;
  const Jobs& jobs_;
  const Liveness& liveness_;
  Roots roots_;
};

}  // namespace hearth::coordinator
