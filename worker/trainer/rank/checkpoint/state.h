// Saves a run's state into a checkpoint and restores it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "worker/trainer/checkpoint/checkpoint.h"
#include "worker/trainer/step/engine.h"
#include "worker/trainer/step/trainer.h"

namespace hearth::trainer {

// Identity of the run that writes the checkpoint; the trainer itself does not know it.
struct RunIdentity {
  std::string job_id;
  int64_t epoch = 0;
  double validation_loss = 0;  // newest, 0 = none
  std::string tokenizer_from;  // dataset folder, empty = none
  // JSON of the PrecisionTrial that chose the recipe, empty = none.
  std::string trial = {};
};

// Tensors of the state, by name: "master.<parameter>" and "<optimizer state>.<parameter>", without
// vocabulary padding. With a sharded optimizer every rank makes one of its own pieces, on rank 0
// with the weights, which must be gathered by then; the caller sets sharded.store, and the reader
// of a GPU. Everything points into `engine` and `trainer`, which must not change until the content
// has been copied or written.
CheckpointContent MakeCheckpointContent(const Engine& engine,
                                        Trainer& trainer,
                                        const spec::BatchPlan& batch,
                                        int world_size,
                                        const RunIdentity& identity);

// The masters and optimizer state of it: this rank's, each in the format that it is held in.
void AddTrainingState(const ParameterStore& parameters, CheckpointContent& content);

// Fills this rank's masters and optimizer state, and the working weights, from a checkpoint of any
// number of shards and state of any format. kDataLoss: a tensor or part of one is missing, or
// cannot be read; other errors are the device's.
absl::Status RestoreTensors(const kernels::Exec& exec,
                            const ParameterStore& parameters,
                            const LoadedCheckpoint& checkpoint);
// Fills the scales of a quantised recipe. False: the checkpoint has none that fit (another recipe,
// other layers quantised); they must be measured again.
absl::StatusOr<bool> RestorePrecision(Engine& engine, const LoadedCheckpoint& checkpoint);
// Fills what the trainer keeps beside tensors (the guard's window and ladder). kDataLoss:
// unreadable.
absl::Status RestoreTrainer(Trainer& trainer, const CheckpointMeta& meta);
// Why a run resumed from a checkpoint with this state/plans.json cannot repeat the bits of the run
// before: device, library versions, threads, a job that does not ask for it. Empty: it can.
std::vector<std::string> PlanDifferences(const std::string& plans_json,
                                         const Engine& engine,
                                         int world_size = 1);

}  // namespace hearth::trainer
