#include "common/spec/feasibility/largest.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/spec/feasibility/memory/varied_plans.h"
#include "common/spec/fields/conditions.h"
#include "common/spec/gpus/gpus.h"
#include "common/spec/plan/parameter_table.h"
#include "common/spec/resolve/resolve.h"

namespace hearth::spec {
namespace {

constexpr int kMostGroups = 64;
constexpr double kDepths[] = {0.75, 1, 1.25};
constexpr int64_t kWidthUnit = 64;

int64_t RoundTo(double value, int64_t unit) {
  return std::max<int64_t>(unit, std::llround(value / static_cast<double>(unit)) * unit);
}

// The job's model with `groups` key-value heads and as many times as wide and deep.
v1::ModelSpec Scaled(const v1::ModelSpec& model, int groups, double depth) {
  v1::ModelSpec scaled = model;
  const double factor = static_cast<double>(groups) / model.kv_heads();
  scaled.clear_preset();
  scaled.clear_from();
  scaled.set_head_dim(model.head_dim() > 0 ? model.head_dim() : model.hidden() / model.heads());
  scaled.set_kv_heads(groups);
  scaled.set_heads(model.heads() / model.kv_heads() * groups);
  scaled.set_hidden(static_cast<int32_t>(RoundTo(model.hidden() * factor, kWidthUnit)));
  scaled.set_ffn_hidden(static_cast<int32_t>(RoundTo(model.ffn_hidden() * factor, kWidthUnit)));
  scaled.set_layers(
      std::max(1, static_cast<int32_t>(std::lround(model.layers() * factor * depth))));
  return scaled;
}

absl::StatusOr<FamilyModel> Measure(const v1::JobSpec& job_spec, int gpus) {
  VariedPlans plans(job_spec, gpus);
  Variation smallest = plans.AsIs();
  smallest.recompute = std::string(RecomputeNames().back());
  smallest.kept.gradients = SmallestGradients();
  smallest.micro_batch = plans.candidates().empty() ? 1 : plans.candidates().back();
  HEARTH_ASSIGN_OR_RETURN(smallest.shard, plans.SmallestLevel(smallest));
  HEARTH_ASSIGN_OR_RETURN(const VariedPlan* const plan, plans.Get(smallest));
  const ModelShape& shape = plan->job->options.shape;
  return FamilyModel{.layers = shape.layers,
                     .hidden = shape.hidden,
                     .heads = shape.heads,
                     .kv_heads = shape.kv_heads,
                     .head_dim = shape.head_dim,
                     .ffn_hidden = shape.ffn_hidden,
                     .parameters = CountParameters(shape),
                     .total_bytes = plan->plan.arena_bytes() + OverheadBytes(gpus)};
}

// The job as Measure takes it: what a tier sets depends on the micro-batches of a step.
v1::JobSpec Smallest(v1::JobSpec job, int gpus) {
  const std::vector<int64_t> sizes = VariedPlans(job, gpus).candidates();
  job.mutable_batch()->set_micro_batch_size(sizes.empty() ? 1 : static_cast<int32_t>(sizes.back()));
  job.mutable_resources()->set_workers(gpus);
  job.mutable_resources()->set_min_workers(gpus);
  return job;
}

// kInvalidArgument unless the rules allow the job, and nothing of it is idle.
absl::Status CheckTier(v1::JobSpec job) {
  if (Evaluate("narrow_weights", job) != Truth::kYes) {
    return absl::InvalidArgumentError(WhyNot("narrow_weights", job));
  }
  std::vector<FieldViolation> violations;
  Resolve(job, violations);
  return ViolationsToStatus(violations);
}

v1::JobSpec InTier(const v1::JobSpec& job_spec, int gpus, const MemoryTierRow& row) {
  return WithMemoryTier(Smallest(job_spec, gpus), row);
}

}  // namespace

absl::StatusOr<std::vector<FamilyModel>> FamilyOf(const v1::JobSpec& job_spec,
                                                  int gpus,
                                                  int64_t most_bytes) {
  std::vector<FamilyModel> family;
  bool more = true;
  for (int groups = 1; more && groups <= kMostGroups; ++groups) {
    more = false;
    for (const double depth : kDepths) {
      v1::JobSpec scaled = job_spec;
      *scaled.mutable_model() = Scaled(job_spec.model(), groups, depth);
      HEARTH_ASSIGN_OR_RETURN(const FamilyModel model, Measure(scaled, gpus));
      family.push_back(model);
      more = more || model.total_bytes <= most_bytes;
    }
  }
  std::sort(family.begin(), family.end(),
            [](const FamilyModel& a, const FamilyModel& b) { return a.parameters < b.parameters; });
  return family;
}

absl::StatusOr<std::vector<FormatFamily>> FamiliesOf(const v1::JobSpec& job_spec,
                                                     int gpus,
                                                     int64_t most_bytes) {
  std::vector<FormatFamily> families;
  for (const StateChoice& choice : AllowedChoices(job_spec, /*gradients=*/false)) {
    HEARTH_ASSIGN_OR_RETURN(std::vector<FamilyModel> models,
                            FamilyOf(WithChoice(job_spec, choice), gpus, most_bytes));
    families.push_back({choice, std::move(models)});
  }
  for (const MemoryTierRow& row : MemoryTierRows()) {
    const v1::JobSpec job = InTier(job_spec, gpus, row);
    if (!CheckTier(job).ok()) {
      continue;
    }
    HEARTH_ASSIGN_OR_RETURN(std::vector<FamilyModel> models, FamilyOf(job, gpus, most_bytes));
    families.push_back({ChoiceOf(job), std::move(models), absl::StrCat("memory_tier: ", row.tier)});
  }
  return families;
}

absl::StatusOr<FamilyModel> ModelInTier(const v1::JobSpec& job_spec,
                                        int gpus,
                                        const MemoryTierRow& row) {
  const v1::JobSpec job = InTier(job_spec, gpus, row);
  HEARTH_RETURN_IF_ERROR(CheckTier(job));
  return Measure(job, gpus);
}

const FamilyModel* LargestOf(const std::vector<FamilyModel>& family, int64_t bytes) {
  const FamilyModel* largest = nullptr;
  for (const FamilyModel& model : family) {
    if (model.total_bytes + kOverheadMarginBytes <= bytes) {
      largest = &model;
    }
  }
  return largest;
}

const FamilyModel* FirstTooLarge(const std::vector<FamilyModel>& family, int64_t bytes) {
  const FamilyModel* const largest = LargestOf(family, bytes);
  const size_t next = largest == nullptr ? 0 : static_cast<size_t>(largest - family.data()) + 1;
  return next < family.size() ? &family[next] : nullptr;
}

}  // namespace hearth::spec
