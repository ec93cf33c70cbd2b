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
#include "worker/trainer/model/parameter_store.h"
#include "worker/trainer/recipe/numerics.h"

namespace hearth::trainer {

struct UpdateArgs {
  int64_t step = 1;  // 1-based
  double learning_rate = 0;
  const float* grad_scale = nullptr;  // multiplies every gradient: the clip
  const int32_t* skip = nullptr;      // non-zero: nothing is written at all (the guard's verdict)
};

// Bound to the parameters of one arena. Not thread-safe. Step allocates nothing.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // Updates masters and state from the gradients and refreshes the working weights.
  virtual absl::Status Step(const kernels::Exec& exec, const UpdateArgs& args) = 0;
  virtual size_t WorkspaceBytes() const = 0;
};

struct OptimizerContext {
  const v1::OptimizerSpec* spec = nullptr;     // resolved; read during the call alone
  const ParameterStore* parameters = nullptr;  // outlives the optimizer
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
