#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/base/units.h"
#include "common/spec/gpus.h"
#include "worker/trainer/cli/commands.h"
#include "worker/trainer/step/engine.h"
#include "worker/trainer/step/job_facts.h"

namespace hearth::trainer {
namespace {

// What a GPU's process will take in all.
std::string Predicted(const v1::JobSpec& spec, const spec::MemoryPlan& plan, int ranks) {
  if (spec.resources().device() != "cuda") {
    return "";
  }
  return absl::StrFormat(
      "\npredicted on the GPU: arena %s + %s of CUDA, cuBLASLt, cuDNN and graphs%s = %s\n",
      FormatBytes(plan.arena_bytes()), FormatBytes(spec::kProcessOverheadBytes),
      ranks > 1 ? absl::StrCat(" + ", FormatBytes(spec::kNcclOverheadBytes), " of NCCL") : "",
      FormatBytes(plan.arena_bytes() + spec::OverheadBytes(ranks)));
}

// What the job may take on the device it asks for.
absl::StatusOr<int64_t> MemoryBytes(const v1::JobSpec& spec,
                                    const PlanOptions& options,
                                    int ranks) {
  if (spec.resources().device() != "cuda") {
    return CpuMemoryBytes(ranks);
  }
  if (options.memory_bytes > 0) {
    return options.memory_bytes - spec::OverheadBytes(ranks);
  }
  const absl::StatusOr<std::unique_ptr<kernels::CudaContext>> gpu = OpenGpu("cuda:0", false);
  if (gpu.ok()) {
    return GpuMemoryBytes(**gpu, ranks);
  }
  if (spec.batch().micro_batch_size() > 0) {
    return 0;  // not asked for
  }
  return absl::FailedPreconditionError(
      absl::StrCat("batch.micro_batch_size: auto needs the memory of the GPU: give "
                   "--memory-bytes, or run this where the GPU is (",
                   gpu.status().message(), ")"));
}

// OK, or kResourceExhausted with the micro-batch that would fit into `bytes` (0: not known).
absl::Status CheckFits(const EngineOptions& engine,
                       const spec::MemoryPlan& plan,
                       int64_t bytes,
                       int ranks,
                       int shards) {
  if (engine.spec.resources().device() != "cuda" || bytes == 0 || plan.arena_bytes() <= bytes) {
    return absl::OkStatus();
  }
  v1::JobSpec automatic = engine.spec;
  automatic.mutable_batch()->set_micro_batch_size(0);
  const absl::StatusOr<int64_t> fits =
      spec::ResolveMicroBatch(automatic, ranks, engine.threads, bytes, shards);
  return absl::ResourceExhaustedError(
      absl::StrCat("does not fit: the plan takes ", FormatBytes(plan.arena_bytes()), " of ",
                   FormatBytes(bytes), "; ",
                   fits.ok() ? absl::StrCat("batch.micro_batch_size: ", *fits, " would fit")
                             : std::string(fits.status().message())));
}

// Prints the plan. kResourceExhausted: it does not fit.
absl::Status Plan(const PlanOptions& options) {
  EngineOptions engine;
  HEARTH_ASSIGN_OR_RETURN(engine.spec, LoadJob(options.job));
  if (!engine.spec.model().has_vocab() || engine.spec.model().has_from()) {
    HEARTH_RETURN_IF_ERROR(CompleteSpec(engine.spec, Env::Real()));
  }
  engine.threads = std::max(1, options.threads);
  const int ranks = std::max(1, engine.spec.resources().workers());
  HEARTH_ASSIGN_OR_RETURN(const int64_t bytes, MemoryBytes(engine.spec, options, ranks));
  HEARTH_ASSIGN_OR_RETURN(const int shards,
                          spec::ResolveShards(engine.spec, ranks, engine.threads, bytes,
                                              engine.spec.batch().micro_batch_size()));
  HEARTH_ASSIGN_OR_RETURN(
      engine.micro_batch,
      spec::ResolveMicroBatch(engine.spec, ranks, engine.threads, bytes, shards));
  HEARTH_ASSIGN_OR_RETURN(const spec::BatchPlan batch,
                          spec::ResolveBatchPlan(engine.spec, engine.micro_batch, ranks));
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<spec::JobPlan> job_plan,
                          spec::MakeJobPlan(engine.spec, engine.micro_batch, engine.threads,
                                            /*training=*/true, ranks, shards));
  HEARTH_ASSIGN_OR_RETURN(const spec::MemoryPlan plan, spec::PlanTraining(job_plan->options));
  HEARTH_ASSIGN_OR_RETURN(
      const std::string sharding,
      spec::DescribeSharding(engine.spec, ranks, engine.threads, engine.micro_batch, shards));
  const std::string text =
      absl::StrCat("micro_batch_size ", engine.micro_batch, ", ", batch.micro_batches,
                   " micro-batches a step on ", ranks, " ranks, recipe ",
                   engine.spec.precision().recipe(), ", recompute ", engine.spec.recompute(), "\n",
                   plan.ToTable(options.verbose), sharding, Predicted(engine.spec, plan, ranks));
  std::fputs(text.c_str(), stdout);
  return CheckFits(engine, plan, bytes, ranks, shards);
}

}  // namespace

int PlanCommand(const PlanOptions& options) {
  const absl::Status planned = Plan(options);
  return planned.ok() ? 0 : Fail(planned);
}

}  // namespace hearth::trainer
