// A rank's life, by the task of the job.
//
//   trains:  loading -> rendezvous -> loading -> training <-> evaluating, saving -> exit
//   eval:    loading -> evaluating -> exit
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "common/io/env.h"
#include "common/spec/objective/objective_table.h"
#include "common/time/clock.h"
#include "hearth/v1/trainer.pb.h"
#include "worker/trainer/link/link.h"
#include "worker/trainer/pulse/pulse.h"

namespace hearth::trainer {

struct RankOptions {
  Link* link = nullptr;
  Env* env = &Env::Real();
  Clock* clock = &Clock::Real();
  // Bits 1 << v1::ControlBit set by signal handlers; null = none.
  std::atomic<uint64_t>* signals = nullptr;
  // Remove checkpoints beyond checkpoint.keep_last. Not under a coordinator: it prunes what it has
  // recorded, and a folder that goes before its successor is recorded would leave nothing to resume
  // from.
  bool prune_checkpoints = true;
  Pulse* pulse = nullptr;       // what this rank is doing; null = nobody watches
  std::string dump_gradients;   // Trainer::Parts
  std::string verified_folder;  // of FileVerifier, for data.verify
};

// Runs link->task() to its end and says why it ended. The result has been sent over the link as the
// last message.
v1::TrainerExit RunRank(const RankOptions& options);

// Whether this trainer knows what to do for a row of the table of tasks.
bool RunsTask(spec::ObjectiveKind kind);

}  // namespace hearth::trainer
