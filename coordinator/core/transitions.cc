#include "coordinator/core/transitions.h"

#include "common/base/status_macros.h"
#include "common/base/table_rows.h"

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
    {v1::JOB_STATE_PAUSED, v1::JOB_STATE_CANCELLED},
};

constexpr ReasonRow kReasons[] = {
    {"submitted", "accepted, not yet looked at by the scheduler"},
    {"insufficient_workers", "fewer suitable workers exist than the job needs"},
    {"checkpoint_root", "too few workers see the root that holds the job's checkpoint"},
    {"no_shared_root", "too few workers share one checkpoint root"},
    {"span_hosts", "no single host has enough workers and the job may not span hosts"},
    {"batch", "more ranks are demanded than a global batch has micro-batches"},
    {"workers_busy", "suitable workers exist but are busy"},
    {"waits_for_stop", "other jobs are being stopped to make room"},
    {"reserved", "free workers are reserved for jobs ahead in the queue"},
    {"reattaching", "the coordinator has just started and waits for its workers"},
    {"checking_paths", "datasets and models are being checked on a worker"},
    {"scheduled", "a gang was placed"},
    {"first_step", "the first step of the epoch was reported"},
    {"finished", "all steps are done"},
    {"worker_lost", "a worker fell silent, restarted or left"},
    {"task_vanished", "a worker no longer knows the task it was given"},
    {"trainer_failed", "the trainer ended with an error"},
    {"trainer_stopped", "the trainer was asked to leave by somebody else (SIGTERM)"},
    {"peers_lost", "the trainers lost each other"},
    {"device_failed", "device failure or out of memory"},
    {"io_failed", "a checkpoint could not be written"},
    {"gang_not_formed", "the ranks did not load or find one another in time"},
    {"trainer_killed", "the trainer was killed by a signal"},
    {"trainer_hung", "a step made no progress, or the trainer was stopped or gave no sign of life"},
    {"bad_spec", "the job cannot run as written; not retried"},
    {"bad_data", "a dataset or checkpoint cannot be read; not retried"},
    {"numerical", "loss or gradients are not finite, or the loss spiked; not retried"},
    {"max_restarts", "more consecutive failures without a new checkpoint than max_restarts"},
    {"time_limit", "resources.time_limit is used up"},
    {"preempted", "makes room for a job of higher priority"},
    {"drained", "a worker of the gang is being drained"},
    {"resized", "the gang grows"},
    {"user_pause", "paused by the user"},
    {"user_cancel", "cancelled by the user"},
    {"user_resume", "resumed by the user"},
};

constexpr ExitRow kExits[] = {
    {v1::EXIT_REASON_UNSPECIFIED, ExitClass::kFailure, "trainer_failed"},
    {v1::EXIT_REASON_FINISHED, ExitClass::kFinished, "finished"},
    {v1::EXIT_REASON_STOPPED, ExitClass::kStopped, "trainer_stopped"},
    {v1::EXIT_REASON_PAUSED, ExitClass::kStopped, "trainer_stopped"},
    {v1::EXIT_REASON_BAD_SPEC, ExitClass::kFatal, "bad_spec"},
    {v1::EXIT_REASON_BAD_DATA, ExitClass::kFatal, "bad_data"},
    {v1::EXIT_REASON_NUMERICAL, ExitClass::kFatal, "numerical"},
    {v1::EXIT_REASON_COMM, ExitClass::kPeers, "peers_lost"},
    {v1::EXIT_REASON_DEVICE, ExitClass::kFailure, "device_failed"},
    {v1::EXIT_REASON_IO, ExitClass::kFailure, "io_failed"},
    {v1::EXIT_REASON_INTERNAL, ExitClass::kFailure, "trainer_failed"},
    {v1::EXIT_REASON_KILLED, ExitClass::kFailure, "trainer_killed"},
    {v1::EXIT_REASON_ABORTED, ExitClass::kFailure, "trainer_failed"},
    {v1::EXIT_REASON_HUNG, ExitClass::kFailure, "trainer_hung"},
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

absl::Span<const ReasonRow> ReasonTable() {
  return kReasons;
}

bool IsReasonCode(std::string_view code) {
  return FindRow(kReasons, &ReasonRow::code, code) != nullptr;
}

absl::Span<const ExitRow> ExitTable() {
  return kExits;
}

const ExitRow& ExitRowOf(v1::ExitReason reason) {
  const ExitRow* row = FindRow(kExits, &ExitRow::reason, reason);
  return row != nullptr ? *row : kExits[0];
}

}  // namespace hearth::coordinator
