#include "common/spec/job_plan.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/spec/dtype.h"
#include "common/spec/model.h"
#include "common/spec/optimizer_state.h"
#include "common/spec/recipe.h"

namespace hearth::spec {

namespace {

// FP8 operands are transposed in tiles and multiplied by units that read 16 values at a time.
absl::Status CheckQuantisedSizes(const ModelShape& shape, const Recipe& recipe, int64_t tokens) {
  if (!recipe.quantised()) {
    return absl::OkStatus();
  }
  const std::pair<const char*, int64_t> sizes[] = {
      {"model.hidden", shape.hidden},
      {"model.heads * head_dim", shape.q_width()},
      {"(model.heads + 2 kv_heads) * head_dim", shape.qkv_width()},
      {"model.ffn_hidden", shape.ffn_hidden},
      {"micro_batch_size * sequence_length", tokens},
  };
  for (const auto& [name, size] : sizes) {
    if (size % 16 != 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "precision.recipe: ", absl::string_view(recipe.name.data(), recipe.name.size()),
          " needs ", name, " to be a multiple of 16, not ", size));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<JobPlan>> MakeJobPlan(const v1::JobSpec& job_spec,
                                                     int64_t micro_batch,
                                                     int threads,
                                                     bool training) {
  auto job_plan = std::make_unique<JobPlan>();
  TrainingPlanOptions& options = job_plan->options;
  options.recipe = FindRecipe(job_spec.precision().recipe());
  options.optimizer = FindOptimizer(job_spec.optimizer().name());
  if (options.recipe == nullptr || options.optimizer == nullptr) {
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
  HEARTH_ASSIGN_OR_RETURN(options.shape,
                          ResolveModelShape(job_spec.model(), options.sequence_length));
  job_plan->formats = options.recipe->parameters;
  if (job_spec.gradients().has_dtype() &&
      !ParseDType(job_spec.gradients().dtype(), job_plan->formats.gradient)) {
    return absl::InvalidArgumentError("gradients.dtype: not a number format");
  }
  job_plan->table = BuildParameterTable(options.shape, job_plan->formats);
  options.table = &job_plan->table;
  if (training) {
    HEARTH_RETURN_IF_ERROR(
        CheckQuantisedSizes(options.shape, *options.recipe, micro_batch * options.sequence_length));
    options.precision =
        ResolvePrecision(job_spec, *options.recipe, static_cast<int>(options.shape.layers));
  }
  if (job_spec.resources().device() == "cuda") {
    options.wide_bytes = 0;
  }
  options.micro_batch = micro_batch;
  options.threads = threads;
  options.training = training;
  return job_plan;
}

absl::StatusOr<int64_t> ResolveMicroBatch(const v1::JobSpec& job_spec,
                                          int world_size,
                                          int threads,
                                          int64_t memory_bytes) {
  if (job_spec.batch().micro_batch_size() > 0) {
    return job_spec.batch().micro_batch_size();
  }
  const int64_t sequence_length = job_spec.data().sequence_length();
  const int64_t limit = std::max<int64_t>(1, kAutoMaxMicroBatchTokens / sequence_length);
  const std::vector<int64_t> candidates =
      job_spec.batch().has_global_batch_tokens()
          ? MicroBatchCandidates(job_spec.batch().global_batch_tokens(), sequence_length,
                                 world_size, limit)
          : PowerOfTwoCandidates(sequence_length);
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<JobPlan> job_plan,
                          MakeJobPlan(job_spec, 1, threads, /*training=*/true));
  return ChooseMicroBatch(job_plan->options, memory_bytes, candidates);
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
