// The launches of one training step. On a GPU they are recorded as graphs once and replayed.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "kernels/attention/attention_check.h"
#include "kernels/cuda/device.h"
#include "kernels/gemm/product_check.h"
#include "worker/trainer/comm/collective.h"
#include "worker/trainer/model/stored_weights.h"
#include "worker/trainer/step/coded_gradients.h"
#include "worker/trainer/step/divided_weights.h"
#include "worker/trainer/step/engine.h"
#include "worker/trainer/step/exchange.h"
#include "worker/trainer/step/fused_update.h"

namespace hearth::trainer {

// Random tokens into staging slot 0, every one of them counted; for tuning and measuring. Its
// documents see about as much as those of the data, or are `documents` at most.
void StageRandomBatch(const Engine& engine, int64_t documents = 0);

// What a micro-batch's launches depend on, apart from data and scalars.
struct MicroBatchKind {
  bool operator==(const MicroBatchKind&) const = default;

  bool first = true;  // of this rank's turns in the step: sums and gradients start again
  bool last = true;   // of this rank's turns in the step: ranks sum gradients and losses
  bool idle = false;  // no micro-batch: others have one, and exchange its gradients
  spec::StepFormat format = {};
};

// What is done only to one micro-batch, and keeps its launches from being replayed.
struct MicroBatchExtra {
  bool spoil_gradient = false;  // injection.h
  bool count = false;           // Pass::count
  bool any() const { return spoil_gradient || count; }
};

// Bound to one engine and one collective, which outlive it; destroy it before the engine's context.
class StepProgram {
 public:
  // `d_loss`: weight of every token's likelihood in the loss whose gradient is accumulated.
  // `comm`: null or a world of one: nothing is exchanged. `micro_batches`: of this rank in a step,
  // >= 1; it says which kinds there are. `sits_out`: others have one more, in round 0.
  StepProgram(Engine& engine,
              Collective* comm,
              double d_loss,
              int64_t micro_batches,
              Exchanged exchanged = Exchanged::kGradients,
              bool sits_out = false);

  // GPU: runs every kind of launch on random tokens, so that plans are chosen and code is loaded,
  // and records the graphs. Parameters and optimizer state are as before, StepState is zero;
  // activations, gradients and the scales of QuantState are not: reset or restore them afterwards.
  // CPU: nothing. All ranks call it together. kInvalidArgument: updates by bucket, and several
  // micro-batches in a step. kernels::IsNativeGemmError: a product of these shapes fails on
  // block-scaled units, or differs there from its emulation; an engine with no_native_blocks does
  // without.
  absl::Status Prepare();

  // Calls of MicroBatch in a step: this rank's micro-batches, and where gradients are divided, so
  // that all ranks take part in each round's exchange, an idle turn for a round that it sits out.
  int64_t turns() const { return micro_batches_ + (idle_first_ ? 1 : 0); }
  // Kind of turn `index` (0-based) of a step.
  MicroBatchKind Kind(int64_t index, const spec::StepFormat& format) const {
    return {index == 0, index + 1 == turns(), idle_first_ && index == 0, format};
  }
  // Pass::documents of the micro-batch in a staging slot: the launches of such micro-batches may be
  // faster than those of any. The host counts, as a recorded graph cannot choose.
  int64_t DocumentBound(int slot) const;
  // Forward and backward of the batch in place, or an idle turn. `pass` gives documents, and seed,
  // step and micro_batch, which on a GPU are read from StepInputs.
  absl::Status MicroBatch(const MicroBatchKind& kind,
                          const Pass& pass,
                          const MicroBatchExtra& extra = {});
  // Judges the accumulated gradients, and updates if they are good. With fused updates backward has
  // updated already, and this only ends the step. `quantise_weights`: the next step reads quantised
  // weights.
  absl::Status Update(bool quantise_weights);
  // After an update with a sharded optimizer only this rank's parts of the weights are new, until
  // the next step's first micro-batch or this call. Passes may then run.
  absl::Status CompleteWeights();
  // The same for what reads whole weights between steps (Engine::whole_weight).
  absl::Status TakeWholeWeights();
  // The weights measured, scaled and quantised as they are (QuantState). All ranks call it
  // together.
  absl::Status StartWeights();
  // What passes read weights from (Pass::weights); null: they are in place.
  WeightSource* weights() const {
    return stored_weights_ != nullptr ? static_cast<WeightSource*>(stored_weights_.get())
                                      : divided_weights_.get();
  }

  // Launches in the graphs of a plain step; 0 on the CPU.
  int64_t graph_nodes() const;
  // Products on block-scaled units that Prepare has compared with their emulation; null where none
  // ran there.
  const kernels::ProductCheck* products() const {
    return products_ != nullptr && products_->met() > 0 ? products_.get() : nullptr;
  }
  // What attention runs on, after Prepare on a GPU.
  const kernels::AttentionEngines& attention() const { return attention_; }
  // Bytes this rank sends in a step; 0 in a world of one.
  int64_t comm_bytes() const;
  bool sharded() const { return exchange_ != nullptr && exchange_->sharded(); }
  // Whether TakeWholeWeights launches anything.
  bool weights_are_taken() const { return sharded() || stored_weights_ != nullptr; }

 private:
  // Every kind that a step of this rank has.
  std::vector<MicroBatchKind> Kinds(const spec::StepFormat& format) const;
  // What a step needs in addition to the engine: the exchange, and what takes buckets.
  absl::Status OpenParts();
  absl::Status LaunchMicroBatch(const MicroBatchKind& kind,
                                const Pass& pass,
                                const MicroBatchExtra& extra = {});
  // The largest magnitude of each quantised weight, as it is.
  absl::Status MeasureWeights();
  absl::Status LaunchUpdate(bool quantise_weights);
  absl::Status SumSquares();
  // Judges the step, and if it is good updates, unless backward has (fused_).
  absl::Status JudgeAndUpdate(const UpdateArgs& update);
  absl::Status RunAllOnce(const spec::StepFormat& format);
  absl::Status RecordAll(const spec::StepFormat& format);
  absl::Status CountOnce();
  // Runs everything once. Meanwhile products on block-scaled units are compared with their
  // emulation.
  absl::Status RunAndCompare(const std::vector<spec::StepFormat>& formats);
  absl::Status RecordMicroBatch(const MicroBatchKind& kind, int64_t documents);
  // A random batch in place (StageRandomBatch).
  absl::Status PlaceRandomBatch(int64_t documents);
  // Compares attention's kernels, and finds out what it runs on with how many documents.
  absl::Status CheckAttention();
  absl::Status RecordUpdate(bool quantise_weights);

  Engine& engine_;
  Collective* const comm_;
  const double d_loss_;
  const int64_t micro_batches_;
  const Exchanged exchanged_;
  const bool idle_first_;  // the step's first turn is idle
  kernels::AttentionEngines attention_;
  std::vector<int64_t> bounds_ = {0};  // values of Pass::documents with launches of their own
  std::unique_ptr<kernels::ProductCheck> products_;
  std::unique_ptr<GradientExchange> exchange_;           // null in a world of one
  std::unique_ptr<DividedWeights> divided_weights_;      // null where weights are whole
  const std::unique_ptr<StoredWeights> stored_weights_;  // null where none are in blocks
  std::unique_ptr<FusedUpdate> fused_;                   // null: all is updated after backward
  std::unique_ptr<CodedGradients> coded_;                // null: gradients wait as they are
  BucketPass* bucket_pass_ = nullptr;                    // the one of the two that is there
  struct Recorded {
    MicroBatchKind kind;
    int64_t documents = 0;  // Pass::documents
    std::unique_ptr<kernels::Graph> graph;
  };
  // Null: not recorded.
  kernels::Graph* FindGraph(const MicroBatchKind& kind, int64_t documents) const;

  std::vector<Recorded> micro_batch_;
  std::unique_ptr<kernels::Graph> update_[2];  // [quantise_weights]
  bool weights_partial_ = false;
};

}  // namespace hearth::trainer
