// A layer is made of sub-blocks on the residual stream, such as attention and feed-forward, behind
// one interface. common/spec/model/layer_blocks.h is their table.
//
//   The stream's value is sum + delta.
//   Forward:  input = sum + delta;  delta' = f(norm(input));  stream' = (input, delta')
//
// The addition is fused with the norm that follows it, so the stream travels as the pair; or, in
// passes whose products apply norms, with the product before it, and delta' is empty. Buffers
// are planned in common/spec/plan/blocks and bound by their handles in the constructors; no call
// allocates.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/spec/plan/training_plan.h"
#include "kernels/attention/attention_check.h"
#include "kernels/core/exec.h"
#include "kernels/core/tensor.h"
#include "worker/trainer/model/activation_lane.h"
#include "worker/trainer/model/arena.h"
#include "worker/trainer/model/key_value_cache.h"
#include "worker/trainer/model/parameter_store.h"
#include "worker/trainer/model/pass.h"
#include "worker/trainer/precision/numerics.h"
#include "worker/trainer/precision/operand.h"
#include "worker/trainer/precision/quant_state.h"

namespace hearth::trainer {

// Everything a part of the model needs to bind itself. N = micro_batch * sequence_length rows.
struct ModelContext {
  spec::TrainingPlanOptions plan;
  Numerics numerics;
  const Arena* arena = nullptr;
  const ParameterStore* parameters = nullptr;
  const QuantState* quant = nullptr;  // never null; empty where nothing is quantised
  bool documents = false;             // samples hold documents that must not see one another
  // Set in passes that generate; null: tokens attend to one another. Not with training.
  KeyValueCache* cache = nullptr;
  // Null: what layers keep for backward stays where they compute.
  ActivationLane* lane = nullptr;

  int64_t rows() const { return plan.micro_batch * plan.sequence_length; }
  const spec::ModelShape& shape() const { return plan.shape; }
  // Adds the places of the slot's weight and bias, of those that exist, in the parameter table.
  void AppendParams(spec::Slot slot, int layer, std::vector<int>& params) const;
  // Input x, or gradient dy, of the linear layer (slot, layer); quantised where the plan says so.
  // `columns`: where the transposed copy is that wgrad reads. Rows are used up at once and shared.
  Operand XOperand(spec::Slot slot,
                   int layer,
                   const kernels::TensorView& plain,
                   void* columns) const;
  Operand DyOperand(spec::Slot slot, int layer, const kernels::TensorView& plain) const;
  // Its weight.
  Operand WOperand(spec::Slot slot, int layer) const;
  // Bytes of QuantBuffers::forms from an offset of its layout on.
  uint8_t* Forms(int64_t offset) const;
  // Handles of a layer's buffers, and buffers by their handles.
  const spec::LayerBuffers& Ids(int layer) const {
    return arena->ids().layers[static_cast<size_t>(layer)];
  }
  const spec::StepBuffers& ids() const { return arena->ids(); }
  const spec::SiteBuffers& Site(spec::Slot slot, int layer) const {
    return ids().Site(slot, layer);
  }
  kernels::TensorView Floats(spec::BufferId id) const { return arena->Floats(id); }

 private:
  Operand Bind(Role role, spec::Slot slot, int layer, OperandBuffers buffers) const;
};

// The recomputation levels of a sub-block. `x`: the operand of its first linear layer.
class RecomputeLevels {
 public:
  explicit RecomputeLevels(const spec::TrainingPlanOptions& plan)
      : quantised_(spec::QuantisedRecompute(plan)), plain_(spec::PlainRecompute(plan)) {}

  spec::Recompute Of(const Operand& x, const Pass& pass) const {
    return x.Quantised(pass) ? quantised_ : plain_;
  }
  // What forward makes of the norm's output: backward makes the rest, if the level says so.
  Forms NormForms(const Operand& x, const Pass& pass) const {
    return Of(x, pass) >= spec::Recompute::kNormAct ? Forms::kRows : Forms::kBoth;
  }

 private:
  spec::Recompute quantised_;
  spec::Recompute plain_;
};

// Rows of the residual stream, [N, C] each. `delta` is empty before the first sub-block, and behind
// one whose last product has added it.
struct Stream {
  kernels::TensorView sum;
  kernels::TensorView delta;
};

class SubBlock {
 public:
  virtual ~SubBlock() = default;

  // Indices into the parameter table.
  virtual const std::vector<int>& Params() const = 0;
  // Scratch of the largest op this sub-block calls.
  virtual size_t WorkspaceBytes(const kernels::Exec& exec) const = 0;

  // kernels::CheckAttention of its attention with AttentionArgs::documents; empty names where it
  // has none. Overwrites activations.
  virtual absl::StatusOr<kernels::AttentionEngines> CheckAttention(const kernels::Exec& /*exec*/,
                                                                   int64_t /*documents*/,
                                                                   double /*tolerance*/) const {
    return kernels::AttentionEngines();
  }
  // kernels::AttentionDocumentBounds of its attention in training.
  virtual std::vector<int64_t> DocumentBounds(const kernels::Exec& /*exec*/) const { return {}; }

  virtual absl::Status Forward(const kernels::Exec& exec, const Pass& pass, Stream& stream) = 0;
  // Computes again what the recomputation level did not keep. `stream` as before Forward, where the
  // level recomputes whole blocks; else only what this sub-block kept is read. Same bits as
  // Forward.
  virtual absl::Status Restore(const kernels::Exec& exec, const Pass& pass, Stream& stream) = 0;
  // The gradient dy of this sub-block's last linear layer: with it Backward begins. Its plain form
  // is the stream's gradient; whoever writes that writes the quantised forms too, in the same pass
  // where it can, and settles it.
  // Null: dropout stands between, this sub-block makes them itself.
  virtual const Operand* OutputGradient() const = 0;
  // d_stream [N, C]: the gradient of the stream behind this sub-block in (OutputGradient()
  // settled), before it out, together with `next`: the OutputGradient() of the sub-block before.
  // Adds to parameter gradients.
  virtual absl::Status Backward(const kernels::Exec& exec,
                                const Pass& pass,
                                const kernels::TensorView& d_stream,
                                const Operand* next) = 0;
};

}  // namespace hearth::trainer
