// The part of a job's row that belongs to its gang: the ranks, the stop that is under way, and
// whether the epoch is open. A job and its gang share one row of the store, so that no commit can
// separate them; this is the only code that changes the gang's fields of it. Each call is one thing
// that can happen to a gang. What follows from it, and that the row is to be written (Jobs::Mark),
// is the caller's.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "coordinator/core/moment.h"
#include "hearth/v1/agent.pb.h"
#include "hearth/v1/store.pb.h"

namespace hearth::coordinator {

// Access to the row, which outlives this object. Ranks are 0..record.ranks_size() - 1. Not
// thread-safe.
class GangRow {
 public:
  explicit GangRow(v1::JobRecord& row) : row_(row) {}

  // After a start of the coordinator: numbers that damage may have left are brought within bounds.
  void Restored();
  // The next epoch begins: there are no ranks, no stop, and its first step is not known.
  void Begin(absl::Time now);
  // The next rank, on that daemon.
  void AddRank(const std::string& worker_id, const std::string& incarnation);
  // The epoch's start step is known and the history was rewound to it.
  void OpenEpoch() { row_.set_epoch_opened(true); }

  // The rank's worker has the task. False: that was known.
  bool Confirm(int rank);
  // All reports up to this one are applied, or known to be lost.
  void Applied(int rank, int64_t seq);
  // It computes no more and is not gone. False: nothing new, it is known to die or all are being
  // killed.
  bool Dying(int rank, const v1::TaskDying& dying, Now now);
  // It has exited.
  void Exited(int rank, const v1::TaskExit& exit, Now now);
  // It counts as gone and is not believed any more. `last_seen`: its worker's last sign of life.
  void Lost(int rank, const std::string& why, Now last_seen);

  // The gang is being stopped; `bit` is what ranks are sent, and the reason is that of the state in
  // which the stop ends. Replaces a stop that was under way.
  void Stop(v1::ControlBit bit, const std::string& code, const std::string& reason);
  // The same reason, whatever else is known of a stop.
  void SayWhy(const std::string& code, const std::string& reason);
  // SIGKILL is asked for. `why` becomes the reason if the row has none yet.
  void Kill(const std::string& why);
  // The stop ends in FAILED, or no longer does.
  void EndInFailure(bool fail) { row_.mutable_stop()->set_fail(fail); }
  void ClearStop() { row_.clear_stop(); }

 private:
  v1::JobRecord& row_;
};

}  // namespace hearth::coordinator
