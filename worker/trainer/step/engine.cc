#include "worker/trainer/step/engine.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/grad_norm/grad_norm.h"

namespace hearth::trainer {
using kernels::DType;

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(const EngineOptions& options) {
  std::unique_ptr<Engine> engine(new Engine(options));
  HEARTH_RETURN_IF_ERROR(engine->Prepare());
  return engine;
}

absl::Status Engine::Prepare() {
  seed_ = static_cast<uint64_t>(options_.spec.train().seed());
  HEARTH_ASSIGN_OR_RETURN(job_plan_, spec::MakeJobPlan(options_.spec, options_.micro_batch,
                                                       options_.threads, options_.training));
  HEARTH_ASSIGN_OR_RETURN(numerics_,
                          MakeNumerics(recipe(), job_plan_->formats.gradient, DType::kF32));
  HEARTH_ASSIGN_OR_RETURN(spec::MemoryPlan sizing, spec::PlanTraining(job_plan_->options));
  HEARTH_RETURN_IF_ERROR(Bind(Arena::WithoutMemory(std::move(sizing), DType::kF32)));
  job_plan_->options.op_workspace_bytes =
      static_cast<int64_t>(std::max<size_t>(WorkspaceBytes(), 64));
  HEARTH_ASSIGN_OR_RETURN(spec::MemoryPlan plan, spec::PlanTraining(job_plan_->options));
  HEARTH_ASSIGN_OR_RETURN(std::unique_ptr<Arena> arena,
                          Arena::Allocate(std::move(plan), DType::kF32));
  return Bind(std::move(arena));
}

absl::Status Engine::Bind(std::unique_ptr<Arena> arena) {
  model_.reset();
  optimizer_.reset();
  parameters_.reset();
  arena_ = std::move(arena);
  parameters_ = std::make_unique<ParameterStore>(
      table(), *arena_, numerics_, options_.training ? job_plan_->options.optimizer : nullptr);
  const spec::ObjectiveRow* row = spec::FindObjective(options_.spec.task());
  const ObjectiveDef* objective = row == nullptr ? nullptr : FindObjectiveDef(row->kind);
  if (objective == nullptr) {
    return absl::UnimplementedError(
        absl::StrCat("task: this engine has no objective \"", options_.spec.task(), "\""));
  }
  ModelContext context;
  context.plan = job_plan_->options;
  context.numerics = numerics_;
  context.arena = arena_.get();
  context.parameters = parameters_.get();
  model_ = std::make_unique<Model>(context, *objective);
  if (options_.training) {
    const OptimizerContext optimizer = {&options_.spec.optimizer(), parameters_.get(), numerics_};
    HEARTH_ASSIGN_OR_RETURN(optimizer_,
                            MakeOptimizer(job_plan_->options.optimizer->kind, optimizer));
  }
  const int64_t scratch = arena_->BytesOf("op.workspace");
  exec_.device = kernels::Device::kCpu;
  exec_.threads = options_.threads;
  exec_.workspace = {arena_->Bytes("op.workspace", scratch), static_cast<size_t>(scratch)};
  return absl::OkStatus();
}

size_t Engine::WorkspaceBytes() const {
  size_t bytes = model_->WorkspaceBytes(options_.threads);
  if (!options_.training) {
    return bytes;
  }
  const kernels::TensorView flat = parameters_->flat_gradients();
  kernels::SumSquaresArgs norm;
  norm.tensors = absl::MakeConstSpan(&flat, 1);
  return std::max({bytes, kernels::SumSquaresWorkspaceBytes(norm), optimizer_->WorkspaceBytes()});
}

int64_t CpuMemoryBytes(int ranks) {
  int64_t bytes = 0;
  if (const char* given = std::getenv("HEARTH_MEMORY_BYTES");
      given != nullptr && absl::SimpleAtoi(given, &bytes) && bytes > 0) {
    return bytes;
  }
  std::ifstream meminfo("/proc/meminfo");
  std::string key;
  int64_t kibibytes = 0;
  std::string unit;
  while (meminfo >> key >> kibibytes >> unit) {
    if (key == "MemAvailable:") {
      return kibibytes * 1024 / 2 / std::max(1, ranks);
    }
  }
  return int64_t{1} << 30;
}

}  // namespace hearth::trainer
