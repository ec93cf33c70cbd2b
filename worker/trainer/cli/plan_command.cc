#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/trainer/cli/commands.h"
#include "worker/trainer/step/engine.h"
#include "worker/trainer/step/job_facts.h"

namespace hearth::trainer {
namespace {

absl::StatusOr<std::string> Plan(const PlanOptions& options) {
  EngineOptions engine;
  HEARTH_ASSIGN_OR_RETURN(engine.spec, LoadJob(options.job));
  engine.spec.mutable_resources()->set_device("cpu");
  if (!engine.spec.model().has_vocab() || engine.spec.model().has_from()) {
    HEARTH_RETURN_IF_ERROR(CompleteSpec(engine.spec, Env::Real()));
  }
  engine.threads = std::max(1, options.threads);
  const int ranks = std::max(1, engine.spec.resources().workers());
  HEARTH_ASSIGN_OR_RETURN(
      engine.micro_batch,
      spec::ResolveMicroBatch(engine.spec, ranks, engine.threads, CpuMemoryBytes(ranks)));
  HEARTH_ASSIGN_OR_RETURN(const spec::BatchPlan batch,
                          spec::ResolveBatchPlan(engine.spec, engine.micro_batch, ranks));
  HEARTH_ASSIGN_OR_RETURN(
      const std::unique_ptr<spec::JobPlan> job_plan,
      spec::MakeJobPlan(engine.spec, engine.micro_batch, engine.threads, /*training=*/true));
  HEARTH_ASSIGN_OR_RETURN(const spec::MemoryPlan plan, spec::PlanTraining(job_plan->options));
  return absl::StrCat("micro_batch_size ", engine.micro_batch, ", ", batch.micro_batches,
                      " micro-batches a step on ", ranks, " ranks, recipe ",
                      engine.spec.precision().recipe(), ", recompute ", engine.spec.recompute(),
                      "\n", plan.ToTable(options.verbose));
}

}  // namespace

int PlanCommand(const PlanOptions& options) {
  const absl::StatusOr<std::string> text = Plan(options);
  if (!text.ok()) {
    return Fail(text.status());
  }
  std::fputs(text->c_str(), stdout);
  return 0;
}

}  // namespace hearth::trainer
