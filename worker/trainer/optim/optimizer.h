// What an optimizer of the engine is: a folder with the name of its row in
// common/spec/optimizer/optimizer_table.h, which defines Make<Type>() and nothing that others see.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/spec/optimizer/average_state.h"
#include "common/spec/optimizer/optimizer_table.h"
#include "hearth/v1/job.pb.h"
#include "kernels/core/exec.h"
#include "kernels/step_gate/step_gate.h"
#include "worker/trainer/model/parameter_store.h"
#include "worker/trainer/optim/streamed_pieces.h"
#include "worker/trainer/precision/numerics.h"
#include "worker/trainer/precision/quant_state.h"

namespace hearth::trainer {

// How ranks that divide masters and state hand each other whole gradients, for an optimizer that
// works on whole tensors: group by group (ParameterStore::WholeGroup), one between its two calls at
// a time. All ranks make the same calls in the same order.
class WholeGradients {
 public:
  virtual ~WholeGradients() = default;
  // Each rank's pieces of the group's gradients that Optimizer::NeedsWhole names go to all, into
  // ParameterStore::gradient. Done when the stream of `exec` gets there.
  virtual absl::Status Gather(const kernels::Exec& exec, int group) = 0;
  // Back: each rank's pieces become the sum over the ranks of what gradient() holds there. Other
  // gradients in the same buckets hold anything afterwards.
  virtual absl::Status SumPieces(const kernels::Exec& exec, int group) = 0;
};

// inputs, grad_scale and skip are in the memory of the tensors' device.
struct UpdateArgs {
  const kernels::StepInputs* inputs = nullptr;  // learning rate, step, and what Scalars() gave
  const float* grad_scale = nullptr;            // multiplies every gradient: the clip
  const int32_t* skip = nullptr;    // non-zero: nothing is written at all (the guard's verdict)
  WholeGradients* whole = nullptr;  // of a divided optimizer
};

// Bound to the parameters of one arena. Not thread-safe. Step allocates nothing.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // Updates masters and state from the gradients and refreshes the working weights, only for this
  // rank's pieces; records the largest magnitude of those that are quantised. Gradients hold
  // anything afterwards.
  virtual absl::Status Step(const kernels::Exec& exec, const UpdateArgs& args) = 0;
  virtual size_t WorkspaceBytes() const = 0;
  // Whether a step needs this parameter's gradient whole (UpdateArgs::whole).
  virtual bool NeedsWhole(const spec::Parameter& parameter) const {
    static_cast<void>(parameter);
    return false;
  }
  // Writes the numbers of its own that update `step` (1-based) needs into StepInputs::optimizer,
  // which is zeros before.
  virtual void Scalars(int64_t step, absl::Span<double> scalars) const {
    static_cast<void>(step);
    static_cast<void>(scalars);
  }
};

struct OptimizerContext {
  const v1::OptimizerSpec* spec = nullptr;     // resolved; read only during the call
  const ParameterStore* parameters = nullptr;  // outlives the optimizer
  const QuantState* quant = nullptr;           // likewise
  Numerics numerics;
  uint64_t seed = 0;  // of the run: in the key of stochastic rounding
  kernels::Device device = kernels::Device::kCpu;
  int rank = 0;                                            // of those that divide masters and state
  int shards = 1;                                          // how many do
  bool (*of)(const spec::Parameter& parameter) = nullptr;  // which parameters it updates; null: all
  // It updates those of this group alone (ParameterStore::WholeGroup); -1: of all.
  int group = -1;
  OffloadLanes* offload = nullptr;  // outlives the optimizer; null: nothing is in the host's memory

  // Whether it updates parameter i of the table.
  bool Updates(int i) const {
    return (of == nullptr || of(parameters->table()[static_cast<size_t>(i)])) &&
           (group < 0 || parameters->WholeGroup(i) == group);
  }
};

// How an optimizer's updates encode weights in blocks, and the same for one update.
BlockRounding RoundingOf(const OptimizerContext& context);
BlockRounding At(const UpdateArgs& update, BlockRounding rounding);

// Whether a state is the optimizer's own; StreamNeeds::state of most.
inline bool IsOwnState(const spec::ParameterState& state) {
  return !spec::IsAverageState(state);
}

#define HEARTH_DECLARE_OPTIMIZER(type, ...) \
  std::unique_ptr<Optimizer> Make##type(const OptimizerContext& context);
HEARTH_OPTIMIZERS(HEARTH_DECLARE_OPTIMIZER)
#undef HEARTH_DECLARE_OPTIMIZER

// The optimizer of a row of spec::Optimizers().
std::unique_ptr<Optimizer> MakeOptimizer(const spec::OptimizerRow& row,
                                         const OptimizerContext& context);

}  // namespace hearth::trainer
