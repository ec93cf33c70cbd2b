// How a gang starts: the next epoch, its ranks on these workers, and a StartTask to each. Owns
// nothing.
#pragma once

#include <string>
#include <vector>

#include "coordinator/core/core.h"
#include "coordinator/core/folders/checkpoint_folders.h"
#include "coordinator/core/gangs/gang.h"
#include "coordinator/core/jobs/job_states.h"
#include "coordinator/core/rendezvous/rendezvous.h"
#include "coordinator/core/turn.h"
#include "coordinator/core/workers/workers.h"

namespace hearth::coordinator {

// Not thread-safe.
class GangStarts {
 public:
  // All that is passed in outlives this.
  GangStarts(Turn& turn,
             const CoreOptions& options,
             Workers& workers,
             Gangs& gangs,
             Rendezvous& rendezvous,
             CheckpointFolders& folders,
             JobStates& states)
      : turn_(turn),
        options_(options),
        workers_(workers),
        gangs_(gangs),
        rendezvous_(rendezvous),
        folders_(folders),
        states_(states) {}

  // The ranks of the last gang are gone; the workers are usable and free.
  void Start(JobState& job, const std::vector<std::string>& workers);
  // Sends StartTask to a rank; again when the first one was lost with its stream.
  void SendStart(JobState& job, int rank);

 private:
  // Writes down the devices of the gang that starts.
  void NoteDevices(JobState& job);

  Turn& turn_;
  const CoreOptions& options_;
  Workers& workers_;
  Gangs& gangs_;
  Rendezvous& rendezvous_;
  CheckpointFolders& folders_;
  JobStates& states_;
};

}  // namespace hearth::coordinator
