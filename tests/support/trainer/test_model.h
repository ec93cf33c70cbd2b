// Tiny models for tests of the engine.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/status_macros.h"
#include "common/spec/plan/parameter_table.h"
#include "common/spec/plan/training_plan.h"
#include "hearth/v1/job.pb.h"
#include "worker/trainer/model/model.h"

namespace hearth::trainer {

inline std::vector<std::string> Families() {
  return {"llama", "qwen2", "qwen3", "gpt2"};
}

// One of the families, at a size that finite differences can afford.
inline v1::ModelSpec TinyModel(std::string_view family) {
  v1::ModelSpec m;
  m.set_layers(2);
  m.set_hidden(16);
  m.set_heads(4);
  m.set_kv_heads(2);
  m.set_head_dim(4);
  m.set_ffn_hidden(24);
  m.set_vocab(37);
  m.set_norm("rmsnorm");
  m.set_norm_eps(1e-5);
  m.set_qk_norm(family == "qwen3");
  m.set_position("rope");
  m.set_rope_theta(10000);
  m.set_activation("swiglu");
  m.set_attention_bias(family == "qwen2" ? "qkv" : "none");
  m.set_mlp_bias(false);
  m.set_tied(family != "llama");
  m.set_dropout(0);
  m.set_init_std(0.2);
  if (family == "qwen3") {
    m.set_head_dim(6);
  }
  if (family == "gpt2") {
    m.set_kv_heads(4);
    m.set_norm("layernorm");
    m.set_position("learned");
    m.set_activation("gelu_tanh");
    m.set_attention_bias("all");
    m.set_mlp_bias(true);
  }
  return m;
}

// A model with its own arena.
struct TestModel {
  std::vector<spec::Parameter> table;
  std::unique_ptr<Arena> arena;
  std::unique_ptr<ParameterStore> parameters;
  std::unique_ptr<QuantState> quant;
  std::unique_ptr<Model> model;
  ModelContext context;  // what the model is bound to
  kernels::Exec exec;
};

struct TestModelOptions {
  v1::ModelSpec model;
  std::vector<spec::LayerRow> rows = {};  // of its layers; empty: the model's own
  std::string recipe = "fp32";
  const spec::Recipe* row = nullptr;  // stands for `recipe`; outlives the model
  const spec::OptimizerRow* optimizer = spec::FindOptimizer("adamw");
  // Changes the table before anything is made of it.
  std::function<void(std::vector<spec::Parameter>&)> change_table = nullptr;
  kernels::DType storage = kernels::DType::kF64;
  spec::Recompute recompute = spec::Recompute::kNone;
  int64_t micro_batch = 2;
  int64_t sequence_length = 7;
  bool documents = false;
};

inline absl::StatusOr<std::unique_ptr<TestModel>> MakeTestModel(const TestModelOptions& options) {
  auto out = std::make_unique<TestModel>();
  const spec::Recipe* recipe =
      options.row != nullptr ? options.row : spec::FindRecipe(options.recipe);
  ModelContext& context = out->context;
  HEARTH_ASSIGN_OR_RETURN(context.plan.shape,
                          spec::ResolveModelShape(options.model, options.sequence_length));
  if (!options.rows.empty()) {
    context.plan.shape.rows = options.rows;
  }
  out->table = spec::BuildParameterTable(context.plan.shape, recipe->parameters, options.optimizer);
  if (options.change_table) {
    options.change_table(out->table);
  }
  context.plan.table = &out->table;
  context.plan.recipe = recipe;
  context.plan.precision =
      spec::ResolvePrecision(v1::JobSpec(), *recipe, static_cast<int>(context.plan.shape.layers));
  context.plan.recompute = options.recompute;
  context.plan.micro_batch = options.micro_batch;
  context.plan.sequence_length = options.sequence_length;
  context.plan.wide_bytes = options.storage == kernels::DType::kF64 ? 8 : 4;
  context.plan.op_workspace_bytes = 1 << 24;
  HEARTH_ASSIGN_OR_RETURN(
      context.numerics, MakeNumerics(*recipe, spec::GradientFormats(out->table), options.storage));
  HEARTH_ASSIGN_OR_RETURN(spec::TrainingPlan plan, spec::PlanTraining(context.plan));
  HEARTH_ASSIGN_OR_RETURN(out->arena, Arena::Allocate(std::move(plan), options.storage));
  out->parameters = std::make_unique<ParameterStore>(out->table, *out->arena, context.numerics,
                                                     context.plan.training);
  context.arena = out->arena.get();
  context.parameters = out->parameters.get();
  out->quant = std::make_unique<QuantState>(context.plan.precision, *out->parameters, *out->arena);
  context.quant = out->quant.get();
  context.documents = options.documents;
  out->exec.workspace = {out->arena->Bytes(out->arena->ids().workspace), 1 << 24};
  HEARTH_RETURN_IF_ERROR(out->parameters->Initialise(out->exec, 5));
  out->model = std::make_unique<Model>(context, *FindObjectiveDef(spec::ObjectiveKind::kPretrain));
  if (out->model->WorkspaceBytes(out->exec) > (1 << 24)) {
    return absl::InternalError("the test workspace is too small");
  }
  return out;
}

// Pseudo-random tokens; every fifth target has no weight and one has a fractional one.
inline void FillTestBatch(Model& model, int64_t sequence_length, int32_t vocab, uint32_t seed) {
  const BatchBuffers batch = model.batch();
  uint32_t state = seed * 2654435761U + 12345U;
  for (int64_t i = 0; i < model.rows(); ++i) {
    state = state * 1664525U + 1013904223U;
    batch.tokens[i] = static_cast<int32_t>((state >> 8) % static_cast<uint32_t>(vocab));
    state = state * 1664525U + 1013904223U;
    batch.targets[i] = static_cast<int32_t>((state >> 8) % static_cast<uint32_t>(vocab));
    batch.loss_weight[i] = i % 5 == 4 ? 0.0F : (i == 1 ? 0.5F : 1.0F);
    batch.position[i] = static_cast<int32_t>(i % sequence_length);
    batch.start[i] = 0;
  }
}

}  // namespace hearth::trainer
