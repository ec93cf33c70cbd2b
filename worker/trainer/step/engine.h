// A model ready to run: the resolved spec turned into table, plan, arena, parameters, model and
// optimizer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/spec/job_plan.h"
#include "common/spec/recipe.h"
#include "hearth/v1/job.pb.h"
#include "kernels/core/exec.h"
#include "worker/trainer/model/arena.h"
#include "worker/trainer/model/model.h"
#include "worker/trainer/model/parameter_store.h"
#include "worker/trainer/optim/optimizer.h"
#include "worker/trainer/recipe/numerics.h"

namespace hearth::trainer {

struct EngineOptions {
  v1::JobSpec spec;         // resolved, vocabulary included
  int64_t micro_batch = 1;  // sequences; resolved
  int threads = 1;
  bool training = true;  // false: forward only, one buffer set for all layers
};

// Not movable: its parts point at one another. Used by one thread.
class Engine {
 public:
  // Weights are zero until Initialise() or a checkpoint fills them. kInvalidArgument /
  // kUnimplemented: a spec this engine cannot run; kResourceExhausted: memory.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(const EngineOptions& options);

  // Random weights from train.seed.
  absl::Status Initialise() { return parameters_->Initialise(exec_, seed_); }

  const EngineOptions& options() const { return options_; }
  const spec::ModelShape& shape() const { return job_plan_->options.shape; }
  const spec::Recipe& recipe() const { return *job_plan_->options.recipe; }
  const spec::MemoryPlan& plan() const { return arena_->plan(); }
  const std::vector<spec::Parameter>& table() const { return job_plan_->table; }
  const ParameterStore& parameters() const { return *parameters_; }
  const spec::OptimizerRow& optimizer_row() const { return *job_plan_->options.optimizer; }
  const Numerics& numerics() const { return numerics_; }
  const kernels::Exec& exec() const { return exec_; }
  Model& model() { return *model_; }
  Optimizer& optimizer() { return *optimizer_; }

 private:
  explicit Engine(const EngineOptions& options) : options_(options) {}
  absl::Status Prepare();
  // Binds everything to an arena; called once without memory, to size op.workspace, and once for
  // good.
  absl::Status Bind(std::unique_ptr<Arena> arena);
  size_t WorkspaceBytes() const;

  EngineOptions options_;
  uint64_t seed_ = 0;
  std::unique_ptr<spec::JobPlan> job_plan_;
  Numerics numerics_;
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<ParameterStore> parameters_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Optimizer> optimizer_;
  kernels::Exec exec_;
};

// Bytes a rank may plan with on the CPU: HEARTH_MEMORY_BYTES if set, else half of what the machine
// has available, shared among `ranks` that may all be on it.
int64_t CpuMemoryBytes(int ranks);

}  // namespace hearth::trainer
