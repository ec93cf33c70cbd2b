// A layer is two sub-blocks on the residual stream, mixer and ffn, behind one interface.
//
//   stream value = sum + delta;   Forward:  input = sum + delta;  delta' = f(norm(input));  stream'
//   = (input, delta')
//
// The addition is fused with the norm that follows it, so the stream travels as the pair. Buffers
// are planned in common/spec/training_plan.cc and bound by name in the constructors; no call
// allocates.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "common/spec/training_plan.h"
#include "kernels/core/exec.h"
#include "kernels/core/tensor.h"
#include "worker/trainer/model/arena.h"
#include "worker/trainer/model/parameter_store.h"
#include "worker/trainer/recipe/numerics.h"

namespace hearth::trainer {

// Everything a part of the model needs to bind itself. N = micro_batch * sequence_length rows.
struct ModelContext {
  spec::TrainingPlanOptions plan;
  Numerics numerics;
  const Arena* arena = nullptr;
  const ParameterStore* parameters = nullptr;
  bool segments = false;  // samples hold several segments that must not see one another

  int64_t rows() const { return plan.micro_batch * plan.sequence_length; }
  const spec::ModelShape& shape() const { return plan.shape; }
  // A tensor of LayerActivations, wherever the recomputation level puts it; empty when the model
  // does not have it.
  kernels::TensorView Activation(int layer,
                                 std::string_view name,
                                 std::initializer_list<int64_t> shape) const;
};

// Which micro-batch is on its way; keys dropout.
struct Pass {
  uint64_t seed = 0;
  uint32_t step = 0;
  uint32_t micro_batch = 0;  // global index within the step
  bool dropout = false;      // training only
};

// Rows of the residual stream, [N, C] each. `delta` is empty before the first sub-block.
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
  virtual size_t WorkspaceBytes(int threads) const = 0;

  virtual absl::Status Forward(const kernels::Exec& exec, const Pass& pass, Stream& stream) = 0;
  // Computes again what the recomputation level did not keep. `stream` as before Forward, where the
  // level recomputes whole blocks; else only what this sub-block kept is read. Same bits as
  // Forward.
  virtual absl::Status Restore(const kernels::Exec& exec, const Pass& pass, Stream& stream) = 0;
  // d_stream [N, C]: the gradient of the stream behind this sub-block in, before it out. Adds to
  // parameter gradients.
  virtual absl::Status Backward(const kernels::Exec& exec,
                                const Pass& pass,
                                const kernels::TensorView& d_stream) = 0;
};

}  // namespace hearth::trainer
