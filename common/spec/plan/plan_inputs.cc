#include "common/spec/plan/plan_inputs.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/table_rows.h"
#include "common/base/units.h"
#include "common/spec/data/sample_tables.h"
#include "common/spec/model/dtype_alias.h"
#include "common/spec/model/model_shape.h"
#include "common/spec/optimizer/average_state.h"
#include "common/spec/optimizer/optimizer_table.h"
#include "common/spec/plan/batch.h"
#include "common/spec/plan/offload.h"
#include "common/spec/plan/parameter_table.h"
#include "common/spec/recipe/recipe.h"
#include "common/spec/weights/weight_store.h"

namespace hearth::spec {

namespace {

absl::string_view Str(std::string_view text) {
  return {text.data(), text.size()};
}

absl::Status CheckQuantisedSizes(const ModelShape& shape, const Recipe& recipe, int64_t tokens) {
  const int64_t unit = recipe.extent_unit();
  const std::pair<const char*, int64_t> sizes[] = {
      {"model.hidden", shape.hidden},
      {"model.heads * head_dim", shape.q_width()},
      {"(model.heads + 2 kv_heads) * head_dim", shape.qkv_width()},
      {"model.ffn_hidden", shape.ffn_hidden},
      {"micro_batch_size * sequence_length", tokens},
  };
  for (const auto& [name, size] : sizes) {
    if (size % unit != 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "precision.recipe: ", absl::string_view(recipe.name.data(), recipe.name.size()),
          " needs ", name, " to be a multiple of ", unit, ", not ", size));
    }
  }
  return absl::OkStatus();
}

// What the job keeps of a parameter apart from the formats of recipe and optimizer.
void FinishTable(const v1::JobSpec& job_spec, bool training, std::vector<Parameter>& table) {
  if (job_spec.train().ema() > 0) {
    AddAverageState(table);
  }
  // What only reads weights has them as checkpoints do, in the recipe's format.
  if (training) {
    SetWeightStore(WeightStoreOf(job_spec), table);
  }
}

// Whether the plan with this many shards fits; with `micro_batch` 0, whether any batch does.
absl::StatusOr<bool> Fits(const v1::JobSpec& job_spec,
                          int world_size,
                          int threads,
                          int64_t memory_bytes,
                          int64_t micro_batch,
                          ShardLevel shard) {
  // Only lack of memory means "does not fit"; any other error is the job's and must be shown.
  if (micro_batch <= 0) {
    const absl::StatusOr<int64_t> chosen =
        ResolveMicroBatch(job_spec, world_size, threads, memory_bytes, shard);
    if (absl::IsResourceExhausted(chosen.status())) {
      return false;
    }
    HEARTH_RETURN_IF_ERROR(chosen.status());
    micro_batch = *chosen;
  }
  HEARTH_ASSIGN_OR_RETURN(
      const std::unique_ptr<PlanInputs> inputs,
      MakePlanInputs(job_spec, micro_batch, threads, /*training=*/true, world_size, shard));
  HEARTH_ASSIGN_OR_RETURN(const MemoryPlan plan, PlanTraining(inputs->options));
  return plan.arena_bytes() <= memory_bytes;
}

// How gradients wait for the update. Reads options.training, which must be set already.
void SetUpdates(const v1::JobSpec& job_spec, TrainingPlanOptions& options) {
  options.fused = options.training && job_spec.optimizer().fused();
  options.coded = options.training && CodesGradients(job_spec);
}

}  // namespace

absl::StatusOr<std::unique_ptr<PlanInputs>> MakePlanInputs(const v1::JobSpec& job_spec,
                                                           int64_t micro_batch,
                                                           int threads,
                                                           bool training,
                                                           int world_size,
                                                           ShardLevel shard) {
  auto inputs = std::make_unique<PlanInputs>();
  TrainingPlanOptions& options = inputs->options;
  options.recipe = RecipeFor(job_spec.precision());
  inputs->optimizer = FindOptimizer(job_spec.optimizer().name());
  if (options.recipe == nullptr || inputs->optimizer == nullptr) {
    return absl::InvalidArgumentError("precision.recipe or optimizer.name is not in its table");
  }
  const std::string refusal =
      RecipeRefusal(*options.recipe, job_spec.resources().device(), job_spec.precision().emulate());
  if (!refusal.empty()) {
    return absl::UnimplementedError(absl::StrCat("precision.recipe: ", refusal));
  }
  if (!ParseRecompute(job_spec.recompute(), options.recompute)) {
    return absl::InvalidArgumentError(
        absl::StrCat("recompute: no level named \"", job_spec.recompute(), "\""));
  }
  options.sequence_length = job_spec.data().sequence_length();
  options.documents = SeesOwnDocument(job_spec.data());
  HEARTH_ASSIGN_OR_RETURN(options.shape,
                          ResolveModelShape(job_spec.model(), options.sequence_length));
  HEARTH_ASSIGN_OR_RETURN(const ParameterFormats formats,
                          ResolveFormats(*options.recipe, job_spec));
  const StateFormatRow* const state_format = FindStateFormat(
      job_spec.optimizer().has_state() ? job_spec.optimizer().state() : StateFormatRows()[0].name);
  if (state_format == nullptr) {
    return absl::InvalidArgumentError("optimizer.state is not in its table");
  }
  inputs->table = BuildParameterTable(options.shape, formats, inputs->optimizer, state_format);
  FinishTable(job_spec, training, inputs->table);
  options.table = &inputs->table;
  // Inference reads plain weights, so block sizes bind training only.
  if (training) {
    HEARTH_RETURN_IF_ERROR(
        CheckQuantisedSizes(options.shape, *options.recipe, micro_batch * options.sequence_length));
    options.precision =
        ResolvePrecision(job_spec, *options.recipe, static_cast<int>(options.shape.layers));
  }
  // On CPUs narrow formats are stored widened to fp32; a GPU stores each in its own size.
  if (job_spec.resources().device() == "cuda") {
    options.wide_bytes = 0;
  }
  options.micro_batch = micro_batch;
  options.threads = threads;
  options.training = training;
  options.scores = job_spec.train().evaluations_size() > 0;
  options.sources = ReportedSources(job_spec.data());
  options.world_size = world_size;
  options.shards = ShardsOf(shard, world_size);
  options.divide_gradients = RowOf(shard).gradients && options.shards > 1;
  SetUpdates(job_spec, options);
  options.divide_weights = RowOf(shard).weights && training && options.shards > 1;
  options.bucket_bytes = int64_t{job_spec.parallel().bucket_mib()} << 20;
  options.offload = HostClassesOf(job_spec.offload());
  // Gradients travel in the format they are kept in unless the job says otherwise.
  options.reduce = FindRow(formats::kReduceFormats, &formats::ReduceFormatRow::name,
                           job_spec.gradients().has_reduce_dtype()
                               ? std::string_view(job_spec.gradients().reduce_dtype())
                               : DTypeName(formats.gradient));
  if (options.reduce == nullptr) {
    return absl::InvalidArgumentError("gradients.reduce_dtype is not in its table");
  }
  return inputs;
}

absl::StatusOr<int64_t> ResolveMicroBatch(const v1::JobSpec& job_spec,
                                          int world_size,
                                          int threads,
                                          int64_t memory_bytes,
                                          ShardLevel shard) {
  if (job_spec.batch().micro_batch_size() > 0) {
    return job_spec.batch().micro_batch_size();
  }
  const int64_t sequence_length = job_spec.data().sequence_length();
  const int64_t limit = std::max<int64_t>(1, kAutoMaxMicroBatchTokens / sequence_length);
  const int64_t tokens = job_spec.batch().global_batch_tokens();
  std::vector<int64_t> candidates =
      !job_spec.batch().has_global_batch_tokens() ? PowerOfTwoCandidates(sequence_length)
      : NeedsOneMicroBatch(job_spec)
          ? OneMicroBatchEach(tokens, sequence_length, world_size)
          : MicroBatchCandidates(tokens, sequence_length, world_size, limit);
  // The recipe's products may need several sequences where they are short.
  const Recipe* const recipe = RecipeFor(job_spec.precision());
  const int64_t unit = recipe != nullptr ? recipe->extent_unit() : 1;
  std::erase_if(candidates, [&](int64_t size) { return size * sequence_length % unit != 0; });
  // The plan of the smallest batch is the base; ChooseMicroBatch tries the candidates on it, the
  // largest first.
  HEARTH_ASSIGN_OR_RETURN(
      const std::unique_ptr<PlanInputs> inputs,
      MakePlanInputs(job_spec, candidates.empty() ? 1 : candidates.back(), threads,
                     /*training=*/true, world_size, shard));
  return ChooseMicroBatch(inputs->options, memory_bytes, candidates);
}

absl::StatusOr<ShardLevel> ResolveShardLevel(const v1::JobSpec& job_spec,
                                             int world_size,
                                             int threads,
                                             int64_t memory_bytes,
                                             int64_t micro_batch) {
  const std::vector<ShardLevel> allowed = AllowedShardLevels(job_spec, world_size);
  if (allowed.size() == 1) {
    return allowed.front();
  }
  // Divides only where it must: what is whole needs no exchange.
  for (const ShardLevel shard : allowed) {
    HEARTH_ASSIGN_OR_RETURN(const bool fits,
                            Fits(job_spec, world_size, threads, memory_bytes, micro_batch, shard));
    if (fits) {
      return shard;
    }
  }
  // The error then speaks of the plainest plan.
  return allowed.front();
}

absl::StatusOr<std::string> DescribeSharding(const v1::JobSpec& job_spec,
                                             int world_size,
                                             int threads,
                                             int64_t micro_batch,
                                             ShardLevel shard) {
  if (world_size <= 1) {
    return std::string();
  }
  std::string own;
  std::string others;
  for (const ShardRow& row : ShardRows()) {
    HEARTH_ASSIGN_OR_RETURN(
        const std::unique_ptr<PlanInputs> inputs,
        MakePlanInputs(job_spec, micro_batch, threads, /*training=*/true, world_size, row.level));
    HEARTH_ASSIGN_OR_RETURN(const MemoryPlan plan, PlanTraining(inputs->options));
    const std::string bytes = FormatBytes(plan.arena_bytes());
    if (row.level == shard) {
      own = bytes;
    } else {
      absl::StrAppend(&others, others.empty() ? "" : ", ", Str(row.name), " ", bytes);
    }
  }
  const ShardRow& row = RowOf(shard);
  return absl::StrCat("parallel.shard: ", Str(row.name), " (", Str(row.divides), "): ", own,
                      " on each of ", world_size, " ranks", others.empty() ? "" : "; ", others,
                      "\n");
}

absl::StatusOr<BatchPlan> ResolveBatchPlan(const v1::JobSpec& job_spec,
                                           int64_t micro_batch,
                                           int world_size) {
  const int64_t sequence_length = job_spec.data().sequence_length();
  const int64_t tokens =
      job_spec.batch().has_global_batch_tokens()
          ? job_spec.batch().global_batch_tokens()
          : micro_batch * sequence_length * std::max(1, job_spec.resources().workers());
  return MakeBatchPlan(tokens, micro_batch, sequence_length, world_size);
}

}  // namespace hearth::spec
