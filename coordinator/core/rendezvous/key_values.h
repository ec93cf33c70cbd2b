// The ranks' side of the rendezvous: what they put, and answers to what they wait for. Owns
// nothing; keys and values are Rendezvous'.
#pragma once

#include <vector>

#include "coordinator/core/jobs/job_states.h"
#include "coordinator/core/jobs/jobs.h"
#include "coordinator/core/part_rows.h"
#include "coordinator/core/rendezvous/rendezvous.h"
#include "coordinator/core/turn.h"
#include "coordinator/core/workers/workers.h"

namespace hearth::coordinator {

// Not thread-safe.
class KeyValues {
 public:
  // All that is passed in outlives this.
  KeyValues(
      Turn& turn, Workers& workers, const Jobs& jobs, Rendezvous& rendezvous, JobStates& states)
      : turn_(turn), workers_(workers), jobs_(jobs), rendezvous_(rendezvous), states_(states) {}

  static std::vector<CommandRow> Rows();

  // A rank of the present epoch reports a value; ranks that wait for it are answered.
  void Put(JobState& job, int rank, const v1::KvPut& put);

 private:
  void Wait(const AgentKvWait& command);
  void Answer(const JobState& job, int rank, v1::KvValue value);

  Turn& turn_;
  Workers& workers_;
  const Jobs& jobs_;
  Rendezvous& rendezvous_;
  JobStates& states_;
};

}  // namespace hearth::coordinator
