// A decoder-only transformer: embedding, the blocks of the layers, head. Forward and backward are
// explicit.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "kernels/core/exec.h"
#include "kernels/dropout/dropout.h"
#include "kernels/embedding/embedding.h"
#include "kernels/linear_cross_entropy/linear_cross_entropy.h"
#include "kernels/round/round.h"
#include "worker/trainer/data/loader.h"
#include "worker/trainer/model/norm_layer.h"
#include "worker/trainer/model/sub_block.h"
#include "worker/trainer/model/weight_walk.h"
#include "worker/trainer/objective/objective.h"

namespace hearth::trainer {

// Sums over tokens, in double.
struct LossSums {
  double loss = 0;    // sum of w * nll
  double weight = 0;  // sum of w
};

// Bound to one arena; one micro-batch at a time. Not thread-safe. No call but the constructor
// allocates.
class Model {
 public:
  // `context`'s arena, parameters, lane and plan.table outlive the model.
  Model(const ModelContext& context, const ObjectiveDef& objective);

  // Scratch of the largest op; what op.workspace must hold.
  size_t WorkspaceBytes(const kernels::Exec& exec) const;
  // The same for passes without a loss: ForwardHidden and Logits.
  size_t HiddenWorkspaceBytes(const kernels::Exec& exec) const;

  // SubBlock::CheckAttention of the first layer that has attention: all have one shape.
  absl::StatusOr<kernels::AttentionEngines> CheckAttention(const kernels::Exec& exec,
                                                           int64_t documents,
                                                           double tolerance) const;
  // SubBlock::DocumentBounds of that layer.
  std::vector<int64_t> DocumentBounds(const kernels::Exec& exec) const;

  // Where the ops read the micro-batch: [B, T] each, on the tensors' device.
  BatchBuffers batch() const { return batch_; }
  int64_t rows() const { return context_.rows(); }

  // Adds the gradients of d_loss * (sum of w * nll) of the micro-batch in batch(), and its sums to
  // *loss and *weight, which lie on the tensors' device.
  absl::Status ForwardBackward(
      const kernels::Exec& exec, const Pass& pass, double d_loss, double* loss, double* weight);
  // Only forward, without dropout. A plan that keeps scores gets those of the batch.
  absl::Status ForwardLoss(const kernels::Exec& exec,
                           const Pass& pass,
                           double* loss,
                           double* weight);
  // The same two on the CPU, with the sums in one struct.
  absl::Status ForwardBackward(const kernels::Exec& exec,
                               const Pass& pass,
                               double d_loss,
                               LossSums& sums) {
    return ForwardBackward(exec, pass, d_loss, &sums.loss, &sums.weight);
  }
  absl::Status ForwardLoss(const kernels::Exec& exec, LossSums& sums) {
    return ForwardLoss(exec, Pass{}, &sums.loss, &sums.weight);
  }
  // Stands in for a pass on a rank that has no micro-batch: calls the hook and the source of
  // weights as that pass does, and computes nothing.
  absl::Status IdleForwardBackward(const kernels::Exec& exec, const Pass& idle);
  absl::Status IdleForward(const kernels::Exec& exec, const Pass& idle);
  // Only forward, without dropout, up to and including the final norm, whose output hidden() is:
  // [N, C] of the storage type. What `pass` quantises has scales already.
  absl::Status ForwardHidden(const kernels::Exec& exec, const Pass& pass = Pass());
  const kernels::TensorView& hidden() const { return head_.hidden; }
  // Logits [n, vocab] of rows of the final norm's output, [n, C].
  absl::Status Logits(const kernels::Exec& exec,
                      const kernels::TensorView& hidden,
                      const kernels::TensorView& logits) const;
  // Only forward; then the logits of row `row` of the batch, [1, vocab] of the storage type.
  absl::Status ForwardLogits(const kernels::Exec& exec,
                             int64_t row,
                             const kernels::TensorView& logits);

 private:
  struct Layer {
    kernels::TensorView input;  // the residual stream as the layer before leaves it
    int first = 0;              // number of its first block (StepTimeline)
    std::vector<std::unique_ptr<SubBlock>> blocks;

    int number(size_t b) const { return first + static_cast<int>(b); }
  };

  // What is done to gradients at one moment of backward.
  struct MomentGradients {
    std::vector<kernels::TensorView> zeroed;    // before; the others are overwritten
    std::vector<kernels::RoundToArgs> rounded;  // after: ops have accumulated them in wide storage
  };

  // A pass of the layers begins, forward and, with `backward`, back.
  absl::Status Begin(const kernels::Exec& exec, const Pass& pass, bool backward);
  // Before the launches of a block in forward.
  absl::Status Before(const kernels::Exec& exec, const Pass& pass, int block);
  // The launches that follow read the weights of the block's unit.
  absl::Status Enter(const kernels::Exec& exec, const Pass& pass, int block, bool forward);
  absl::Status IdleBlocks(const kernels::Exec& exec, const Pass& pass);
  absl::Status BeforeBackward(const kernels::Exec& exec, const Pass& pass, int32_t moment) const;
  absl::Status AfterBackward(const kernels::Exec& exec, const Pass& pass, int32_t moment) const;
  void BindGradients();
  void BindEmbedding();
  void BindLayers();
  void BindHead();
  absl::Status ForwardLayer(const kernels::Exec& exec,
                            const Pass& pass,
                            size_t number,
                            Stream& stream);
  // Up to and including the final norm.
  absl::Status Forward(const kernels::Exec& exec, const Pass& pass);
  absl::Status Backward(const kernels::Exec& exec, const Pass& pass);
  absl::Status BackwardLayer(const kernels::Exec& exec, const Pass& pass, size_t number);
  kernels::LinearCrossEntropyArgs HeadArgs(const Pass& pass, double* loss, double* weight) const;
  absl::Status BackwardEmbedding(const kernels::Exec& exec, const Pass& pass);

  ModelContext context_;
  const spec::StepTimeline time_;
  WeightWalk walk_;
  const ObjectiveDef& objective_;
  BatchBuffers batch_;
  kernels::EmbeddingForwardArgs embedding_forward_;
  kernels::EmbeddingBackwardArgs embedding_backward_;
  kernels::DropoutArgs embedding_dropout_;
  std::vector<Layer> layers_;
  std::vector<MomentGradients> gradients_;  // by moment; none without training
  std::unique_ptr<NormLayer> final_norm_;
  Operand head_x_;
  kernels::LinearCrossEntropyArgs head_;
  kernels::LinearCrossEntropyQuant head_quant_;  // of quantised passes
  kernels::TensorView nll_;                      // of a plan that keeps scores, else empty
  kernels::TensorView top_;
  kernels::TensorView d_stream_;
  kernels::TensorView d_normed_;
};

}  // namespace hearth::trainer
