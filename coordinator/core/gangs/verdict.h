// The state of a gang as a whole, derived from its ranks: pure functions of the record.
#pragma once

#include <cstdint>
#include <string>

#include "coordinator/core/transitions.h"
#include "hearth/v1/store.pb.h"

namespace hearth::coordinator {

// The rank has done all steps.
bool Finished(const v1::RankRecord& rank);
// Some rank has ended, was lost, was killed, but not by us, or is about to end in one of these
// ways: the others cannot go on without it.
bool AnyBroken(const v1::JobRecord& record);
// Rank of the job's present epoch that this worker's present daemon runs or ran; -1 = none.
int RankOf(const v1::JobRecord& record, int64_t epoch, const v1::Worker& worker);
bool AllGone(const v1::JobRecord& record);
// RECOVERING, old ranks gone, accounted for: waits for workers alone.
bool ReadyToRestart(const v1::JobRecord& record);

// Why the gang ended, or ends, and who is to blame: a fatal error, else a lost worker, else a
// trainer's own failure, else peers that lost each other.
struct Verdict {
  ExitClass exit_class = ExitClass::kStopped;
  bool lost = false;
  int rank = 0;                   // the one to blame; -1 = none, the gang as a whole
  bool device_too_small = false;  // the job needs more memory than that rank's device has
  std::string code;
  std::string message;
  std::string actor;
};
Verdict JudgeGang(const v1::JobRecord& record);

}  // namespace hearth::coordinator
