#include "coordinator/core/transitions.h"

#include "common/base/status_macros.h"
#include "common/base/table_rows.h"
#include "common/reasons/reason_codes.h"

namespace hearth::coordinator {
namespace {

constexpr StateRow kStates[] = {
    {v1::JOB_STATE_QUEUED, "queued", false, false},
    {v1::JOB_STATE_STARTING, "starting", false, true},
    {v1::JOB_STATE_RUNNING, "running", false, true},
    {v1::JOB_STATE_RECOVERING, "recovering", false, true},
    {v1::JOB_STATE_PAUSING, "pausing", false, true},
    {v1::JOB_STATE_REQUEUEING, "requeueing", false, true},
    {v1::JOB_STATE_CANCELLING, "cancelling", false, true},
    {v1::JOB_STATE_PAUSED, "paused", false, false},
    {v1::JOB_STATE_SUCCEEDED, "succeeded", true, false},
    {v1::JOB_STATE_FAILED, "failed", true, false},
    {v1::JOB_STATE_CANCELLED, "cancelled", true, false},
};

struct Edge {
  v1::JobState from;
  v1::JobState to;
};
constexpr Edge kTransitions[] = {
    {v1::JOB_STATE_QUEUED, v1::JOB_STATE_STARTING},
    {v1::JOB_STATE_QUEUED, v1::JOB_STATE_PAUSED},
    {v1::JOB_STATE_QUEUED, v1::JOB_STATE_CANCELLED},
    {v1::JOB_STATE_QUEUED, v1::JOB_STATE_FAILED},
    {v1::JOB_STATE_STARTING, v1::JOB_STATE_RUNNING},
    {v1::JOB_STATE_STARTING, v1::JOB_STATE_RECOVERING},
    {v1::JOB_STATE_STARTING, v1::JOB_STATE_PAUSING},
    {v1::JOB_STATE_STARTING, v1::JOB_STATE_CANCELLING},
    {v1::JOB_STATE_STARTING, v1::JOB_STATE_FAILED},
    {v1::JOB_STATE_RUNNING, v1::JOB_STATE_SUCCEEDED},
    {v1::JOB_STATE_RUNNING, v1::JOB_STATE_FAILED},
    {v1::JOB_STATE_RUNNING, v1::JOB_STATE_RECOVERING},
    {v1::JOB_STATE_RUNNING, v1::JOB_STATE_PAUSING},
    {v1::JOB_STATE_RUNNING, v1::JOB_STATE_CANCELLING},
    {v1::JOB_STATE_RUNNING, v1::JOB_STATE_REQUEUEING},
    {v1::JOB_STATE_RECOVERING, v1::JOB_STATE_STARTING},
    {v1::JOB_STATE_RECOVERING, v1::JOB_STATE_QUEUED},
    {v1::JOB_STATE_RECOVERING, v1::JOB_STATE_PAUSING},
    {v1::JOB_STATE_RECOVERING, v1::JOB_STATE_CANCELLING},
    {v1::JOB_STATE_RECOVERING, v1::JOB_STATE_FAILED},
    {v1::JOB_STATE_PAUSING, v1::JOB_STATE_PAUSED},
    {v1::JOB_STATE_PAUSING, v1::JOB_STATE_SUCCEEDED},
    {v1::JOB_STATE_PAUSING, v1::JOB_STATE_FAILED},
    {v1::JOB_STATE_PAUSING, v1::JOB_STATE_CANCELLING},
    {v1::JOB_STATE_REQUEUEING, v1::JOB_STATE_QUEUED},
    {v1::JOB_STATE_REQUEUEING, v1::JOB_STATE_PAUSING},
    {v1::JOB_STATE_REQUEUEING, v1::JOB_STATE_SUCCEEDED},
    {v1::JOB_STATE_REQUEUEING, v1::JOB_STATE_FAILED},
    {v1::JOB_STATE_REQUEUEING, v1::JOB_STATE_CANCELLING},
    {v1::JOB_STATE_CANCELLING, v1::JOB_STATE_CANCELLED},
    {v1::JOB_STATE_CANCELLING, v1::JOB_STATE_SUCCEEDED},
    {v1::JOB_STATE_CANCELLING, v1::JOB_STATE_FAILED},
    {v1::JOB_STATE_PAUSED, v1::JOB_STATE_QUEUED},
    {v1::JOB_STATE_CANCELLED, v1::JOB_STATE_QUEUED},
    {v1::JOB_STATE_FAILED, v1::JOB_STATE_QUEUED},
    {v1::JOB_STATE_SUCCEEDED, v1::JOB_STATE_QUEUED},
    {v1::JOB_STATE_PAUSED, v1::JOB_STATE_CANCELLED},
};

constexpr ExitRow kExits[] = {
    {v1::EXIT_REASON_UNSPECIFIED, ExitClass::kFailure, reasons::kTrainerFailed},
    {v1::EXIT_REASON_FINISHED, ExitClass::kFinished, reasons::kFinished},
    {v1::EXIT_REASON_STOPPED, ExitClass::kStopped, reasons::kTrainerStopped},
    {v1::EXIT_REASON_PAUSED, ExitClass::kStopped, reasons::kTrainerStopped},
    {v1::EXIT_REASON_BAD_SPEC, ExitClass::kFatal, reasons::kBadSpec},
    {v1::EXIT_REASON_BAD_DATA, ExitClass::kFatal, reasons::kBadData},
    {v1::EXIT_REASON_NUMERICAL, ExitClass::kFatal, reasons::kNumerical},
    {v1::EXIT_REASON_COMM, ExitClass::kPeers, reasons::kPeersLost},
    {v1::EXIT_REASON_DEVICE, ExitClass::kFailure, reasons::kDeviceFailed},
    {v1::EXIT_REASON_IO, ExitClass::kFailure, reasons::kIoFailed},
    {v1::EXIT_REASON_INTERNAL, ExitClass::kFailure, reasons::kTrainerFailed},
    {v1::EXIT_REASON_KILLED, ExitClass::kFailure, reasons::kTrainerKilled},
    {v1::EXIT_REASON_ABORTED, ExitClass::kFailure, reasons::kTrainerFailed},
    {v1::EXIT_REASON_HUNG, ExitClass::kFailure, reasons::kTrainerHung},
};

}  // namespace

absl::Span<const StateRow> StateTable() {
  return kStates;
}

const StateRow& StateRowOf(v1::JobState state) {
  const StateRow* row = FindRow(kStates, &StateRow::state, state);
  HEARTH_CHECK(row != nullptr, "every job state has a row");
  return *row;
}

bool IsTerminal(v1::JobState state) {
  return StateRowOf(state).terminal;
}
bool HasGang(v1::JobState state) {
  return StateRowOf(state).has_gang;
}
std::string StateName(v1::JobState state) {
  return StateRowOf(state).name;
}

bool IsLegalTransition(v1::JobState from, v1::JobState to) {
  for (const Edge& edge : kTransitions) {
    if (edge.from == from && edge.to == to) {
      return true;
    }
  }
  return false;
}

absl::Span<const ExitRow> ExitTable() {
  return kExits;
}

const ExitRow& ExitRowOf(v1::ExitReason reason) {
  const ExitRow* row = FindRow(kExits, &ExitRow::reason, reason);
  return row != nullptr ? *row : kExits[0];
}

}  // namespace hearth::coordinator
