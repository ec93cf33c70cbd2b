#include "common/spec/feasibility/accuracy.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/spec/feasibility/measured_plan.h"
#include "common/spec/feasibility/savings.h"
#include "common/spec/plan/parameter_table.h"
#include "common/spec/plan/plan_inputs.h"
#include "common/spec/resolve/resolve.h"

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
std::unique_ptr<PlanInputs> PlanOf(const v1::JobSpec& job, const MeasuredRun& run) {
  absl::StatusOr<std::unique_ptr<PlanInputs>> plan =
      MakePlanInputs(job, run.micro_batch, 1, /*training=*/true, run.gpus);
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

// A run that says how good plans are.
struct Neighbour {
  double distance = 0;
  std::string name;
  double error = 0;  // in tok/s: planned over measured - 1
};

// Small for runs like the job: by the logarithm of parameters and tokens of a micro-batch, another
// recipe and other numbers of GPUs counting as a factor of four each.
double DistanceTo(
    const Feasibility& f, int64_t parameters, int64_t tokens, const std::string& recipe, int gpus) {
  const double size =
      std::log2(static_cast<double>(parameters) / static_cast<double>(f.parameters));
  const double batch = std::log2(static_cast<double>(tokens) /
                                 static_cast<double>(f.micro_batch * f.sequence_length));
  return std::abs(size) + 0.5 * std::abs(batch) + (recipe != f.recipe ? 2 : 0) +
         (gpus != f.gpus ? 2 : 0);
}

std::vector<Neighbour> NeighboursOf(const GpuRow& gpu,
                                    const Calibration& calibration,
                                    absl::Span<const v1::JobPlan> ended,
                                    const Feasibility& f) {
  std::vector<Neighbour> found;
  for (const MeasuredRun& run : calibration.runs) {
    const std::unique_ptr<PlanInputs> plan = PlanOf(JobOf(run), run);
    if (plan == nullptr) {
      continue;
    }
    found.push_back({DistanceTo(f, CountParameters(plan->options.shape),
                                run.micro_batch * run.sequence_length, run.recipe, run.gpus),
                     absl::StrCat(run.preset, " ", run.recipe,
                                  run.gpus > 1 ? absl::StrCat(" on ", run.gpus, " GPUs") : ""),
                     RowOf(run, gpu, calibration).tok_s_error});
  }
  for (const v1::JobPlan& job : ended) {
    if (job.gpu() == gpu.name && IsComparable(job) && job.parameters() > 0) {
      found.push_back({DistanceTo(f, job.parameters(), job.micro_batch() * job.sequence_length(),
                                  job.recipe(), job.gpus()),
                       absl::StrCat("job ", job.job_id()),
                       job.tokens_per_second() / MeasuredTokS(job) - 1});
    }
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Neighbour& a, const Neighbour& b) { return a.distance < b.distance; });
  found.resize(std::min(found.size(), kNearest));
  return found;
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
                           absl::Span<const v1::JobPlan> ended,
                           const Feasibility& f) {
  if (!f.time.known()) {
    return "memory alone: the time is not known";
  }
  const std::vector<Neighbour> nearest = NeighboursOf(gpu, calibration, ended, f);
  if (nearest.empty()) {
    return calibration.measured ? "kernels measured on this GPU, no whole job"
                                : "nothing measured on this GPU: from the data sheet";
  }
  double low = nearest.front().error;
  double high = low;
  std::string names;
  for (const Neighbour& run : nearest) {
    low = std::min(low, run.error);
    high = std::max(high, run.error);
    absl::StrAppend(&names, names.empty() ? "" : ", ", run.name);
  }
  return absl::StrFormat(
      "%s: plans of the nearest runs (%s) were %+.1f to %+.1f %% off in tok/s",
      calibration.measured ? "measured on this GPU" : "from the data sheet, and jobs of this GPU",
      names, 100 * low, 100 * high);
}

}  // namespace hearth::spec
