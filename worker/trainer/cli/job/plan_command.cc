#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/facts/complete_spec.h"
#include "common/spec/feasibility/feasibility.h"
#include "common/spec/feasibility/speed/calibration.h"
#include "common/spec/gpus/gpus.h"
#include "common/spec/plan/plan_report.h"
#include "worker/trainer/cli/verbs.h"
#include "worker/trainer/device/rank_device.h"

namespace hearth::trainer {
namespace {

// What a rank of the job may take: of the memory given, else of this machine's GPU, whose name is
// put into `gpu_name`.
absl::StatusOr<std::optional<int64_t>> PlanBytes(const v1::JobSpec& spec,
                                                 const PlanOptions& options,
                                                 std::string& gpu_name) {
  const int ranks = std::max(1, spec.resources().workers());
  const bool automatic = spec.batch().micro_batch_size() == 0;
  if (options.memory_bytes > 0) {
    return spec::PlannableBytes(spec.resources().device(), options.memory_bytes, ranks);
  }
  if (spec.resources().device() != "cuda") {
    return automatic ? std::optional<int64_t>(CpuMemoryBytes(ranks)) : std::nullopt;
  }
  const absl::StatusOr<std::unique_ptr<kernels::CudaContext>> gpu = OpenGpu("cuda:0", false);
  if (gpu.ok()) {
    HEARTH_ASSIGN_OR_RETURN(const int64_t bytes, GpuMemoryBytes(**gpu, ranks));
    gpu_name = (*gpu)->gpu().name;
    return bytes;
  }
  if (!automatic) {
    return std::nullopt;
  }
  return absl::FailedPreconditionError(
      absl::StrCat("batch.micro_batch_size: auto needs the memory of the GPU: give "
                   "--memory-bytes, or run this where the GPU is (",
                   gpu.status().message(), ")"));
}

// Time and energy on this machine's GPU, a line, as `jobctl plan --gpu` has it.
absl::Status PrintFeasibility(const v1::JobSpec& spec, const std::string& gpu_name) {
  const spec::GpuRow* const row = spec::FindGpu(gpu_name);
  if (row == nullptr) {
    return absl::OkStatus();
  }
  HEARTH_ASSIGN_OR_RETURN(
      const spec::Feasibility f,
      spec::AssessFeasibility(spec, *row, spec::CalibrationFor(*row), spec::FeasibilityQuery()));
  std::printf("%s: %s\n", row->name.c_str(), spec::FeasibilityLine(f, "").c_str());
  return absl::OkStatus();
}

// Prints the plan. kResourceExhausted: it does not fit.
absl::Status Plan(const PlanOptions& options) {
  HEARTH_ASSIGN_OR_RETURN(v1::JobSpec spec, LoadJob(options.job));
  HEARTH_RETURN_IF_ERROR(facts::CompleteForPlan(spec, Env::Real()));
  spec::PlanQuery query;
  query.threads = std::max(1, options.threads);
  query.verbose = options.verbose;
  std::string gpu_name;
  HEARTH_ASSIGN_OR_RETURN(query.plan_bytes, PlanBytes(spec, options, gpu_name));
  HEARTH_ASSIGN_OR_RETURN(const spec::PlanReport report, spec::ReportPlan(spec, query));
  std::fputs(report.text.c_str(), stdout);
  HEARTH_RETURN_IF_ERROR(PrintFeasibility(spec, gpu_name));
  return report.fits;
}

}  // namespace

int PlanCommand(const PlanOptions& options) {
  return ExitCodeOf(Plan(options));
}

}  // namespace hearth::trainer
