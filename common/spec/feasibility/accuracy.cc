#include "common/spec/feasibility/accuracy.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/spec/feasibility/remedies.h"
#include "common/spec/plan/job_plan.h"
#include "common/spec/plan/parameter_table.h"
#include "common/spec/resolve.h"

namespace hearth::spec {
namespace {

constexpr size_t kNearest = 3;

v1::JobSpec JobOf(const MeasuredRun& run) {
  v1::JobSpec job;
  job.set_name("measured");
  job.mutable_model()->set_preset(run.preset);
  job.mutable_data()->add_train()->set_path("/data");
  job.mutable_data()->set_sequence_length(static_cast<int32_t>(run.sequence_length));
  job.mutable_precision()->set_recipe(run.recipe);
  job.mutable_precision()->set_lm_head(run.lm_head);
  job.mutable_batch()->set_micro_batch_size(static_cast<int32_t>(run.micro_batch));
  job.mutable_batch()->set_global_batch_tokens(run.micro_batch * run.sequence_length *
                                               run.micro_batches);
  job.mutable_optimizer()->set_name("adamw");
  job.mutable_optimizer()->set_lr(1e-4);
  job.mutable_train()->set_steps(1000);
  job.mutable_resources()->set_device("cuda");
  job.mutable_resources()->set_workers(run.gpus);
  if (run.gpus > 1) {  // as tests/bench/gang.rows
    job.mutable_gradients()->set_dtype("bf16");
    job.mutable_gradients()->set_reduce_dtype("bf16");
  }
  std::vector<FieldViolation> ignored;  // of fields that mean nothing to time
  Resolve(job, ignored);
  return job;
}

// The plan's options without its memory.
std::unique_ptr<JobPlan> PlanOf(const v1::JobSpec& job, const MeasuredRun& run) {
  absl::StatusOr<std::unique_ptr<JobPlan>> plan =
      MakeJobPlan(job, run.micro_batch, 1, /*training=*/true, run.gpus, 1);
  return plan.ok() ? *std::move(plan) : nullptr;
}

AccuracyRow RowOf(const MeasuredRun& run, const GpuRow& gpu, const Calibration& calibration) {
  AccuracyRow row = {.run = run};
  VariedPlan plan;
  plan.spec = JobOf(run);
  plan.job = PlanOf(plan.spec, run);
  if (plan.job == nullptr) {
    return row;
  }
  const StepTime time = TimeOfPlan(plan, run.gpus, gpu, calibration);
  if (!time.known()) {
    return row;
  }
  row.tok_s =
      static_cast<double>(run.micro_batch * run.micro_batches * run.sequence_length) / time.seconds;
  row.tok_s_error = row.tok_s / run.tok_s - 1;
  if (run.watts > 0) {
    row.watts = time.watts;
    row.watts_error = row.watts / run.watts - 1;
  }
  return row;
}

// Small for runs like the job: by the logarithm of parameters and tokens of a micro-batch, another
// recipe and other numbers of GPUs counting as a factor of four each.
double DistanceOf(const MeasuredRun& run, const Feasibility& f) {
  const v1::JobSpec job = JobOf(run);
  const std::unique_ptr<JobPlan> plan = PlanOf(job, run);
  if (plan == nullptr) {
    return 1e9;
  }
  const double size = std::log2(static_cast<double>(CountParameters(plan->options.shape)) /
                                static_cast<double>(f.parameters));
  const double batch = std::log2(static_cast<double>(run.micro_batch * run.sequence_length) /
                                 static_cast<double>(f.micro_batch * f.sequence_length));
  return std::abs(size) + 0.5 * std::abs(batch) + (run.recipe != f.recipe ? 2 : 0) +
         (run.gpus != f.gpus ? 2 : 0);
}

}  // namespace

std::vector<AccuracyRow> Accuracy(const GpuRow& gpu, const Calibration& calibration) {
  std::vector<AccuracyRow> rows;
  for (const MeasuredRun& run : calibration.runs) {
    rows.push_back(RowOf(run, gpu, calibration));
  }
  return rows;
}

std::string ConfidenceText(const GpuRow& gpu,
                           const Calibration& calibration,
                           const Feasibility& f) {
  if (!calibration.measured) {
    return "nothing measured on this GPU: from the data sheet";
  }
  std::vector<std::pair<double, const MeasuredRun*>> nearest;
  for (const MeasuredRun& run : calibration.runs) {
    nearest.emplace_back(DistanceOf(run, f), &run);
  }
  std::sort(nearest.begin(), nearest.end());
  nearest.resize(std::min(nearest.size(), kNearest));
  double low = 0;
  double high = 0;
  std::string names;
  for (const auto& [distance, run] : nearest) {
    const AccuracyRow row = RowOf(*run, gpu, calibration);
    low = std::min(low, row.tok_s_error);
    high = std::max(high, row.tok_s_error);
    absl::StrAppend(&names, names.empty() ? "" : ", ", run->preset, " ", run->recipe);
  }
  if (names.empty()) {
    return "kernels measured on this GPU, no whole job";
  }
  return absl::StrFormat(
      "measured on this GPU: plans of the nearest runs (%s) were %+.1f to %+.1f %% off in tok/s",
      names, 100 * low, 100 * high);
}

}  // namespace hearth::spec
