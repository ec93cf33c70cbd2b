// An engine with its weights and a trainer on it, ready for the next step: the job's own, or that
// of a trial.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "common/io/env.h"
#include "hearth/v1/trainer.pb.h"
#include "worker/trainer/checkpoint/checkpoint.h"
#include "worker/trainer/link/link.h"
#include "worker/trainer/step/engine.h"
#include "worker/trainer/step/trainer.h"

namespace hearth::trainer {

struct SessionOptions {
  EngineOptions engine;
  Trainer::Parts trainer;  // all but the engine
  Env* env = nullptr;
  Link* link = nullptr;  // for warnings
  // The state to go on from, whose tensors are let go of; null: weights of the job's model.from or
  // its seed, and step 0.
  LoadedCheckpoint* resumed = nullptr;
};

// For an error of Engine::Create: the device, or `otherwise` where that is not to blame.
v1::ExitReason BlameForEngine(const absl::Status& status, v1::ExitReason otherwise);

// Fills `engine` and `trainer`, possibly only one of them when it fails: with GPUs of several ranks
// the caller knows when their memory may be freed. `blame`: who is to blame for an error; unchanged
// for a spec that the engine cannot run.
absl::Status OpenSession(const SessionOptions& options,
                         std::unique_ptr<Engine>& engine,
                         std::unique_ptr<Trainer>& trainer,
                         v1::ExitReason& blame);

}  // namespace hearth::trainer
