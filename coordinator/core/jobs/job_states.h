// What happens to a job, as others see it: its events and its states. When a job has no gang any
// more, its keys go (Rendezvous) and its folders are looked at (CheckpointFolders). Owns nothing;
// records and revisions are Jobs'.
#pragma once

#include <string>

#include "coordinator/core/folders/checkpoint_folders.h"
#include "coordinator/core/jobs/jobs.h"
#include "coordinator/core/rendezvous/rendezvous.h"
#include "coordinator/core/turn.h"

namespace hearth::coordinator {

// Not thread-safe.
class JobStates {
 public:
  // All that is passed in outlives this.
  JobStates(Turn& turn, Jobs& jobs, Rendezvous& rendezvous, CheckpointFolders& folders)
      : turn_(turn), jobs_(jobs), rendezvous_(rendezvous), folders_(folders) {}

  // Null, with an error as the reply, when the job is unknown.
  JobState* FindOrReply(const std::string& job_id);
  // The same, and when `etag` is neither empty nor the job's.
  JobState* FindOrReply(const std::string& job_id, const std::string& etag);
  void AddEvent(JobState& job,
                const std::string& type,
                const std::string& actor,
                const std::string& code,
                const std::string& message,
                v1::JobState from,
                v1::JobState to);
  // An event that leaves the state as it is.
  void Note(JobState& job,
            const std::string& type,
            const std::string& actor,
            const std::string& message);
  // Aborts when the edge or the reason code is not in the tables (transitions.h).
  void Transition(JobState& job,
                  v1::JobState to,
                  const std::string& actor,
                  const std::string& code,
                  const std::string& reason);

 private:
  Turn& turn_;
  Jobs& jobs_;
  Rendezvous& rendezvous_;
  CheckpointFolders& folders_;
};

}  // namespace hearth::coordinator
