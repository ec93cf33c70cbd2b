// Calls that are sent again under the same request_id change nothing twice: their answer is the job
// that the first one was answered with, as it is now. Owns which request was answered with which
// job.
#pragma once

#include <string>
#include <vector>

#include "coordinator/core/jobs/jobs.h"
#include "coordinator/core/jobs/requests.h"
#include "coordinator/core/turn.h"

namespace hearth::coordinator {

// Not thread-safe.
class RepeatedCalls {
 public:
  // `turn` and `jobs` outlive this.
  RepeatedCalls(const CoreOptions& options, Turn& turn, const Jobs& jobs)
      : turn_(turn), jobs_(jobs), requests_(options) {}

  void Restore(const std::vector<v1::RequestRecord>& records) {
    requests_.Restore(records, turn_.mono());
  }
  // A request with this id was answered: the job is the reply, or an error if the id was used for
  // another call. False: it is to be applied.
  bool AnsweredBefore(const RequestKey& key, const CommandRow& row);
  // It is answered with this job now. Nothing is kept without a request_id.
  void Remember(const RequestKey& key, const CommandRow& row, const std::string& job_id);
  void Expire() { requests_.Expire(turn_.mono(), turn_.effects()); }

 private:
  Turn& turn_;
  const Jobs& jobs_;
  Requests requests_;
};

}  // namespace hearth::coordinator
