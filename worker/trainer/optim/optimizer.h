// Optimizers of the engine, keyed by the rows of common/spec/optimizer_state.h.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/spec/optimizer_state.h"
#include "hearth/v1/job.pb.h"
#include "kernels/core/exec.h"
#include "kernels/step_gate/step_gate.h"
#include "worker/trainer/model/parameter_store.h"
#include "worker/trainer/model/quant_state.h"
#include "worker/trainer/recipe/numerics.h"

namespace hearth::trainer {

// All beside the tensors.
struct UpdateArgs {
  const kernels::StepInputs* inputs = nullptr;  // learning rate, bias corrections, step
  const float* grad_scale = nullptr;            // multiplies every gradient: the clip
  const int32_t* skip = nullptr;  // non-zero: nothing is written at all (the guard's verdict)
};

// Bound to the parameters of one arena. Not thread-safe. Step allocates nothing.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // Updates masters and state from the gradients and refreshes the working weights, all of this
  // rank's pieces alone; records the largest magnitude of those that are quantised.
  virtual absl::Status Step(const kernels::Exec& exec, const UpdateArgs& args) = 0;
  virtual size_t WorkspaceBytes() const = 0;
};

struct OptimizerContext {
  const v1::OptimizerSpec* spec = nullptr;     // resolved; read during the call alone
  const ParameterStore* parameters = nullptr;  // outlives the optimizer
  const QuantState* quant = nullptr;           // likewise
  Numerics numerics;
};

struct OptimizerDef {
  spec::OptimizerKind kind;
  std::unique_ptr<Optimizer> (*make)(const OptimizerContext& context);
};

// kUnimplemented: a row of the spec without an implementation on this device.
absl::StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(spec::OptimizerKind kind,
                                                         const OptimizerContext& context);

}  // namespace hearth::trainer
