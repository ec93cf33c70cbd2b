#include "common/spec/plan/plan_report.h"

#include <algorithm>
#include <limits>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/units.h"
#include "common/spec/gpus/gpus.h"
#include "common/spec/plan/plan_inputs.h"

namespace hearth::spec {
namespace {

// What a GPU's process will take in all.
std::string Predicted(const v1::JobSpec& job_spec, const MemoryPlan& plan, int ranks) {
  if (job_spec.resources().device() != "cuda") {
    return "";
  }
  const std::string nccl =
      ranks > 1 ? absl::StrCat(" + ", FormatBytes(kNcclOverheadBytes), " of NCCL") : "";
  return absl::StrCat("\npredicted on the GPU: arena ", FormatBytes(plan.arena_bytes()), " + ",
                      FormatBytes(kProcessOverheadBytes), " of CUDA, cuBLASLt, cuDNN and graphs",
                      nccl, " = ", FormatBytes(plan.arena_bytes() + OverheadBytes(ranks)), "\n");
}

// OK, or kResourceExhausted with the micro-batch that would fit.
absl::Status CheckFits(const v1::JobSpec& job_spec,
                       const MemoryPlan& plan,
                       const PlanQuery& query,
                       int ranks,
                       ShardLevel shard) {
  if (!query.plan_bytes.has_value() || plan.arena_bytes() <= *query.plan_bytes) {
    return absl::OkStatus();
  }
  v1::JobSpec automatic = job_spec;
  automatic.mutable_batch()->set_micro_batch_size(0);
  const absl::StatusOr<int64_t> fits =
      ResolveMicroBatch(automatic, ranks, query.threads, *query.plan_bytes, shard);
  return absl::ResourceExhaustedError(
      absl::StrCat("does not fit: the plan takes ", FormatBytes(plan.arena_bytes()), " of ",
                   FormatBytes(*query.plan_bytes), "; ",
                   fits.ok() ? absl::StrCat("batch.micro_batch_size: ", *fits, " would fit")
                             : std::string(fits.status().message())));
}

}  // namespace

std::string LessMemoryAdvice(const TrainingPlanOptions& options) {
  return !options.training || options.recompute == Recompute::kBlock
             ? "a smaller model or a shorter sequence would need less"
             : "a smaller model, a shorter sequence or recompute: block would need less";
}

absl::StatusOr<PlanReport> ReportPlan(const v1::JobSpec& job_spec, const PlanQuery& query) {
  const int ranks = std::max(1, job_spec.resources().workers());
  const int64_t given = job_spec.batch().micro_batch_size();
  if (given == 0 && !query.plan_bytes.has_value()) {
    return absl::InvalidArgumentError(
        "batch.micro_batch_size: auto needs to know the memory of a worker");
  }
  const int64_t bytes = query.plan_bytes.value_or(std::numeric_limits<int64_t>::max());
  HEARTH_ASSIGN_OR_RETURN(const ShardLevel shard,
                          ResolveShardLevel(job_spec, ranks, query.threads, bytes, given));
  HEARTH_ASSIGN_OR_RETURN(const int64_t micro_batch,
                          ResolveMicroBatch(job_spec, ranks, query.threads, bytes, shard));
  HEARTH_ASSIGN_OR_RETURN(const BatchPlan batch, ResolveBatchPlan(job_spec, micro_batch, ranks));
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<PlanInputs> inputs,
                          MakePlanInputs(job_spec, micro_batch, query.threads,
                                         /*training=*/true, ranks, shard));
  HEARTH_ASSIGN_OR_RETURN(const MemoryPlan plan, PlanTraining(inputs->options));
  HEARTH_ASSIGN_OR_RETURN(const std::string sharding,
                          DescribeSharding(job_spec, ranks, query.threads, micro_batch, shard));
  PlanReport report;
  report.text = absl::StrCat(
      "micro_batch_size ", micro_batch, ", ", batch.micro_batches, " micro-batches a step on ",
      ranks, " ranks, recipe ", job_spec.precision().recipe(), ", recompute ", job_spec.recompute(),
      "\n", plan.ToTable(query.verbose), sharding, Predicted(job_spec, plan, ranks));
  report.fits = CheckFits(job_spec, plan, query, ranks, shard);
  return report;
}

}  // namespace hearth::spec
