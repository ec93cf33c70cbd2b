// What a trainer says to, and hears from, whoever started it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/io/env.h"
#include "common/time/clock.h"
#include "hearth/v1/job.pb.h"
#include "hearth/v1/trainer.pb.h"
#include "worker/trainer/comm/rendezvous/key_value_store.h"

namespace hearth::trainer {

// Thread-safe. Send* return at once unless the queue (1024 messages) is full, then they block:
// reports are never dropped. A send after the other side has gone is dropped silently; on_gone has
// been called.
class Link : public KeyValueStore {
 public:
  // This rank's part of the job.
  virtual const v1::Task& task() const = 0;

  // Bits asked for so far and not yet taken: bit v1::ControlBit b is 1 << b. Taking clears them.
  virtual uint64_t TakeControl() = 0;

  virtual void SendRunInfo(const v1::RunInfo& info) = 0;
  virtual void SendTrial(const v1::PrecisionTrial& trial) = 0;
  virtual void SendStep(const v1::StepReport& report) = 0;
  virtual void SendCheckpoint(const v1::CheckpointAnnouncement& checkpoint) = 0;
  // `compute_seconds`: Progress.compute_seconds.
  virtual void SendProgress(int64_t step, double compute_seconds) = 0;
  virtual void SendPhase(
      std::string_view phase) = 0;  // loading | rendezvous | trial | training | evaluating | saving
  // `level`: debug | info | warning | error.
  virtual void SendLog(std::string_view level, std::string_view text) = 0;
  // The last message; returns when all that was sent is with the other side.
  virtual void SendExit(const v1::TrainerExit& exit) = 0;
};

struct AgentLinkOptions {
  int fd = -1;  // the inherited socket (HEARTH_TRAINER_FD); owned by the link from now on
  // Called once, on the reader thread, when the agent is gone or its stream is damaged. The default
  // leaves the process at once.
  std::function<void()> on_gone;
  // Called once, on the reader thread, for Abort. The default leaves the process at once.
  std::function<void(std::string_view reason)> on_abort;
  absl::Duration task_timeout = absl::Minutes(1);
};

// While the link lives, a thread of its own sends Alive each second.
//
// Waits for the Task. kDeadlineExceeded: none came; kDataLoss: not our protocol; kUnavailable: the
// pipe closed.
absl::StatusOr<std::unique_ptr<Link>> NewAgentLink(AgentLinkOptions options,
                                                   Clock& clock = Clock::Real());

// HEARTH_TRAINER_FD as a number, and removes the variable; -1 when unset (the trainer runs alone).
// kInvalidArgument: not a descriptor.
absl::StatusOr<int> InheritedFd();

// SIGKILL to this process when the thread that started it ends; leaves at once if it has ended
// already (the parent is no longer `expected_parent`, when that is > 0).
absl::Status DieWithParent(int64_t expected_parent);

// Link of a trainer that runs alone: a line for people on stdout and a line of protobuf JSON in
// <out_dir>/metrics.jsonl for each step; RunInfo, PrecisionTrial and TrainerExit, likewise, in
// run.json, trial.json and exit.json there once they are sent. Control bits come from
// RequestControl, which may be called from a signal handler.
class StandaloneLink : public Link {
 public:
  virtual void RequestControl(v1::ControlBit bit) = 0;  // async-signal-safe
};

// With task.resume_step > 0 metrics.jsonl is kept up to that step and appended to; else it is begun
// again. `quiet`: nothing on stdout.
absl::StatusOr<std::unique_ptr<StandaloneLink>> NewStandaloneLink(v1::Task task,
                                                                  const std::string& out_dir,
                                                                  bool quiet,
                                                                  Env& env = Env::Real(),
                                                                  Clock& clock = Clock::Real());

}  // namespace hearth::trainer
