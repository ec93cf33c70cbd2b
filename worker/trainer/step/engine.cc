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
namespace {

using kernels::DType;

absl::Status Fill(const EngineOptions& options, std::vector<spec::Parameter>& table,
                  spec::TrainingPlanOptions& plan, Numerics& numerics) {
  const v1::JobSpec& spec = options.spec;
  plan.recipe = spec::FindRecipe(spec.precision().recipe());
  plan.optimizer = spec::FindOptimizer(spec.optimizer().name());
  if (plan.recipe == nullptr || plan.optimizer == nullptr) {
    return absl::InvalidArgumentError("precision.recipe or optimizer.name is not in its table");
  }
  const std::string refusal =
      spec::RecipeRefusal(*plan.recipe, spec.resources().device(), spec.precision().emulate());
  if (!refusal.empty()) {
    return absl::UnimplementedError(absl::StrCat("precision.recipe: ", refusal));
  }
  if (!spec::ParseRecompute(spec.recompute(), plan.recompute)) {
    return absl::InvalidArgumentError(
        absl::StrCat("recompute: no level named \"", spec.recompute(), "\""));
  }
  plan.sequence_length = spec.data().sequence_length();
  HEARTH_ASSIGN_OR_RETURN(plan.shape, spec::ResolveModelShape(spec.model(), plan.sequence_length));
  spec::ParameterFormats formats = plan.recipe->parameters;
  if (spec.gradients().has_dtype() &&
      !spec::ParseDType(spec.gradients().dtype(), formats.gradient)) {
    return absl::InvalidArgumentError("gradients.dtype is not a number format");
  }
  table = spec::BuildParameterTable(plan.shape, formats);
  plan.table = &table;
  plan.micro_batch = options.micro_batch;
  plan.threads = options.threads;
  plan.training = options.training;
  HEARTH_ASSIGN_OR_RETURN(numerics, MakeNumerics(*plan.recipe, formats.gradient, DType::kF32));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(const EngineOptions& options) {
  std::unique_ptr<Engine> engine(new Engine(options));
  HEARTH_RETURN_IF_ERROR(engine->Prepare());
  return engine;
}

absl::Status Engine::Prepare() {
  seed_ = static_cast<uint64_t>(options_.spec.train().seed());
  HEARTH_RETURN_IF_ERROR(Fill(options_, table_, plan_options_, numerics_));
  HEARTH_ASSIGN_OR_RETURN(spec::MemoryPlan sizing, spec::PlanTraining(plan_options_));
  HEARTH_RETURN_IF_ERROR(Bind(Arena::WithoutMemory(std::move(sizing), DType::kF32)));
  plan_options_.op_workspace_bytes = static_cast<int64_t>(std::max<size_t>(WorkspaceBytes(), 64));
  HEARTH_ASSIGN_OR_RETURN(spec::MemoryPlan plan, spec::PlanTraining(plan_options_));
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
      table_, *arena_, numerics_, options_.training ? plan_options_.optimizer : nullptr);
  const spec::ObjectiveRow* row = spec::FindObjective(options_.spec.task());
  const ObjectiveDef* objective = row == nullptr ? nullptr : FindObjectiveDef(row->kind);
  if (objective == nullptr) {
    return absl::UnimplementedError(
        absl::StrCat("task: this engine has no objective \"", options_.spec.task(), "\""));
  }
  ModelContext context;
  context.plan = plan_options_;
  context.numerics = numerics_;
  context.arena = arena_.get();
  context.parameters = parameters_.get();
  model_ = std::make_unique<Model>(context, *objective);
  if (options_.training) {
    const OptimizerContext optimizer = {&options_.spec.optimizer(), parameters_.get(), numerics_};
    HEARTH_ASSIGN_OR_RETURN(optimizer_, MakeOptimizer(plan_options_.optimizer->kind, optimizer));
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

absl::StatusOr<spec::MemoryPlan> PlanForSpec(const EngineOptions& options) {
  std::vector<spec::Parameter> table;
  spec::TrainingPlanOptions plan;
  Numerics numerics;
  HEARTH_RETURN_IF_ERROR(Fill(options, table, plan, numerics));
  return spec::PlanTraining(plan);
}

absl::StatusOr<int64_t> ResolveMicroBatch(const v1::JobSpec& spec, int world_size, int threads,
                                          int64_t memory_bytes) {
  if (spec.batch().micro_batch_size() > 0) {
    return spec.batch().micro_batch_size();
  }
  const int64_t sequence_length = spec.data().sequence_length();
  const int64_t limit = std::max<int64_t>(1, spec::kAutoMaxMicroBatchTokens / sequence_length);
  const std::vector<int64_t> candidates =
      spec.batch().has_global_batch_tokens()
          ? spec::MicroBatchCandidates(spec.batch().global_batch_tokens(), sequence_length,
                                       world_size, limit)
          : spec::PowerOfTwoCandidates(sequence_length);
  EngineOptions options;
  options.spec = spec;
  options.threads = threads;
  std::vector<spec::Parameter> table;
  spec::TrainingPlanOptions plan;
  Numerics numerics;
  HEARTH_RETURN_IF_ERROR(Fill(options, table, plan, numerics));
  return spec::ChooseMicroBatch(plan, memory_bytes, candidates);
}

absl::StatusOr<spec::BatchPlan> ResolveBatchPlan(const v1::JobSpec& spec, int64_t micro_batch,
                                                 int world_size) {
  const int64_t sequence_length = spec.data().sequence_length();
  const int64_t tokens =
      spec.batch().has_global_batch_tokens()
          ? spec.batch().global_batch_tokens()
          : micro_batch * sequence_length * std::max(1, spec.resources().workers());
  return spec::MakeBatchPlan(tokens, micro_batch, sequence_length, world_size);
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
