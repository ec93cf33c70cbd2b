#include "common/spec/feasibility/measured_plan.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/spec/feasibility/memory/varied_plans.h"
#include "common/spec/feasibility/plan_messages.h"
#include "common/spec/feasibility/savings.h"
#include "common/spec/feasibility/speed/calibration.h"
#include "common/spec/gpus/gpus.h"
#include "common/spec/plan/parameter_table.h"
#include "google/protobuf/util/message_differencer.h"

namespace hearth::spec {
namespace {

constexpr int64_t kWarmUpSteps = 10;
constexpr int32_t kMostMicroBatch = 1 << 20;  // what a worker says is not believed beyond

// The one kind of GPU that all ranks run on. kNotFound: why they have none that a plan knows.
absl::StatusOr<const GpuRow*> GpuOf(const v1::JobDevices& devices) {
  for (const v1::DeviceGroup& group : devices.groups()) {
    if (group.host() != devices.groups(0).host()) {
      return absl::NotFoundError("its GPUs are in several hosts");
    }
    if (group.model() != devices.groups(0).model()) {
      return absl::NotFoundError("its GPUs are of several kinds");
    }
  }
  const std::string& model = devices.groups(0).model();
  const GpuRow* const row = FindGpu(model);
  if (row == nullptr) {
    return absl::NotFoundError(absl::StrCat(model, " is not in configs/gpus.yaml"));
  }
  return row;
}

absl::Status Fill(const v1::JobSpec& job_spec,
                  const v1::RunInfo& run,
                  const v1::JobDevices& devices,
                  v1::JobPlan& out) {
  HEARTH_ASSIGN_OR_RETURN(const GpuRow* const gpu, GpuOf(devices));
  out.set_gpu(gpu->name);
  const Calibration& calibration = CalibrationFor(*gpu);
  out.set_calibrated(calibration.measured);
  const VariedPlans plans(job_spec, out.gpus());
  VariedPlan plan;
  plan.spec = plans.spec();
  plan.spec.mutable_batch()->set_micro_batch_size(run.micro_batch_size());
  plan.spec.mutable_batch()->set_global_batch_tokens(run.global_batch_tokens());
  HEARTH_ASSIGN_OR_RETURN(plan.job,
                          MakePlanInputs(plan.spec, run.micro_batch_size(), /*threads=*/1,
                                         /*training=*/true, out.gpus(), plans.AsIs().shard));
  out.set_parameters(CountParameters(plan.job->options.shape));
  const StepTime time = TimeOfPlan(plan, out.gpus(), *gpu, calibration);
  *out.mutable_step() = StepPlanOf(time);
  if (!time.known()) {
    return absl::NotFoundError(time.unknown);
  }
  out.set_tokens_per_second(static_cast<double>(run.global_batch_tokens()) / time.seconds);
  out.set_watts(time.watts);
  return absl::OkStatus();
}

}  // namespace

std::optional<v1::JobPlan> PlanStarted(const v1::JobSpec& job_spec,
                                       const v1::RunInfo& run,
                                       const v1::JobDevices& devices) {
  if (job_spec.resources().device() != "cuda" || devices.groups().empty() ||
      run.micro_batch_size() < 1 || run.micro_batch_size() > kMostMicroBatch ||
      run.global_batch_tokens() < 1) {
    return std::nullopt;
  }
  v1::JobPlan out;
  int gpus = 0;
  for (const v1::DeviceGroup& group : devices.groups()) {
    gpus += group.worker_ids_size();
  }
  out.set_gpus(std::max(1, gpus));
  out.set_preset(job_spec.model().preset());
  out.set_recipe(job_spec.precision().recipe());
  out.set_lm_head(job_spec.precision().lm_head());
  out.set_recompute(job_spec.recompute());
  out.set_micro_batch(run.micro_batch_size());
  out.set_sequence_length(job_spec.data().sequence_length());
  const int64_t tokens = out.micro_batch() * std::max<int64_t>(1, out.sequence_length());
  out.set_micro_batches(run.global_batch_tokens() / tokens);
  if (run.planned_bytes() > 0) {
    out.set_memory_bytes(run.planned_bytes() + OverheadBytes(out.gpus()));
  }
  if (const absl::Status filled = Fill(job_spec, run, devices, out); !filled.ok()) {
    out.set_unknown(std::string(filled.message()));
  }
  return out;
}

void AddMeasured(const v1::StepReport& step, int64_t number, v1::JobPlan& plan) {
  // A report's joules include what was done between its step and the one before.
  const bool other_work =
      step.has_validation_loss() || step.checkpoint_seconds() > 0 || !step.evaluations().empty();
  if (number <= kWarmUpSteps || other_work || !(step.step_seconds() > 0)) {
    return;
  }
  v1::PlanMeasurement& sums = *plan.mutable_measured();
  sums.set_steps(sums.steps() + 1);
  sums.set_tokens(sums.tokens() + step.tokens_per_second() * step.step_seconds());
  sums.set_seconds(sums.seconds() + step.step_seconds());
  sums.set_joules(sums.joules() + step.energy_joules());
  sums.set_memory_bytes(std::max(sums.memory_bytes(), step.memory_bytes()));
}

double MeasuredTokS(const v1::JobPlan& plan) {
  const v1::PlanMeasurement& sums = plan.measured();
  return sums.seconds() > 0 ? sums.tokens() / sums.seconds() : 0;
}

double MeasuredWatts(const v1::JobPlan& plan) {
  const v1::PlanMeasurement& sums = plan.measured();
  return sums.seconds() > 0 ? sums.joules() / sums.seconds() / std::max(1, plan.gpus()) : 0;
}

bool IsComparable(const v1::JobPlan& plan) {
  return plan.tokens_per_second() > 0 && MeasuredTokS(plan) > 0;
}

bool PlannedAlike(const v1::JobPlan& a, const v1::JobPlan& b) {
  google::protobuf::util::MessageDifferencer differencer;
  for (const char* name : {"epoch", "measured"}) {
    differencer.IgnoreField(v1::JobPlan::descriptor()->FindFieldByName(name));
  }
  return differencer.Compare(a, b);
}

}  // namespace hearth::spec
