// Deletes a job with its gang and its keys, tells all workers to forget its task, and removes its
// checkpoint folders if the user asks. Answers to old request_ids stay. Owns nothing.
#pragma once

#include <vector>

#include "coordinator/core/folders/checkpoint_folders.h"
#include "coordinator/core/gangs/gang.h"
#include "coordinator/core/jobs/job_states.h"
#include "coordinator/core/jobs/jobs.h"
#include "coordinator/core/part_rows.h"
#include "coordinator/core/rendezvous/rendezvous.h"
#include "coordinator/core/turn.h"
#include "coordinator/core/workers/workers.h"

namespace hearth::coordinator {

// Not thread-safe.
class JobDeletion {
 public:
  // All that is passed in outlives this.
  JobDeletion(Turn& turn,
              const Workers& workers,
              Jobs& jobs,
              Gangs& gangs,
              Rendezvous& rendezvous,
              CheckpointFolders& folders,
              JobStates& states)
      : turn_(turn),
        workers_(workers),
        jobs_(jobs),
        gangs_(gangs),
        rendezvous_(rendezvous),
        folders_(folders),
        states_(states) {}

  static std::vector<CommandRow> Rows();

 private:
  void Delete(const v1::DeleteJobRequest& request);

  Turn& turn_;
  const Workers& workers_;
  Jobs& jobs_;
  Gangs& gangs_;
  Rendezvous& rendezvous_;
  CheckpointFolders& folders_;
  JobStates& states_;
};

}  // namespace hearth::coordinator
