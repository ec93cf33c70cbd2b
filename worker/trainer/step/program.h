// The launches of one training step. On a GPU they are recorded as graphs once and replayed.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "kernels/cuda/device.h"
#include "worker/trainer/step/engine.h"

namespace hearth::trainer {

// Random tokens into staging slot 0, every one of them counted; for tuning and measuring.
void StageRandomBatch(const Engine& engine);

// What a micro-batch's launches depend on besides data and scalars.
struct MicroBatchKind {
  bool first = true;  // of the step: sums and gradients start anew
  bool quantised = false;
};

// Bound to one engine, which outlives it; destroy it before the engine's context.
class StepProgram {
 public:
  // `d_loss`: weight of every token's likelihood in the loss whose gradient is accumulated.
  StepProgram(Engine& engine, double d_loss) : engine_(engine), d_loss_(d_loss) {}

  // GPU: runs every kind of launch on random tokens, so that plans are chosen and code is loaded,
  // and records the graphs. Parameters and optimizer state are as before, StepState is zero;
  // activations, gradients and the scales of QuantState are not: reset or restore them afterwards.
  // CPU: nothing.
  absl::Status Prepare();

  // Forward and backward of the batch in place. `pass` gives seed, step and micro_batch, which on a
  // GPU are read from StepInputs.
  absl::Status MicroBatch(const MicroBatchKind& kind, const Pass& pass);
  // Judges the accumulated gradients and updates, or not; `quantise_weights`: the next step reads
  // quantised weights.
  absl::Status Update(bool quantise_weights);

  // Launches in the graphs of a plain step; 0 on the CPU.
  int64_t graph_nodes() const;

 private:
  absl::Status LaunchMicroBatch(const MicroBatchKind& kind, const Pass& pass);
  absl::Status LaunchUpdate(bool quantise_weights);
  absl::Status RunAllOnce(bool quantised);
  absl::Status RecordAll(bool quantised);
  absl::Status RecordMicroBatch(const MicroBatchKind& kind);
  absl::Status RecordUpdate(bool quantise_weights);

  Engine& engine_;
  const double d_loss_;
  std::unique_ptr<kernels::Graph> micro_batch_[2][2];  // [first][quantised]
  std::unique_ptr<kernels::Graph> update_[2];          // [quantise_weights]
};

}  // namespace hearth::trainer
