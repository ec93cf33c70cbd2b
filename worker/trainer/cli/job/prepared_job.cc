#include "worker/trainer/cli/job/prepared_job.h"

#include <algorithm>
#include <cstdio>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/facts/complete_spec.h"
#include "common/spec/fields/choices.h"
#include "kernels/cuda/device.h"
#include "kernels/gemm/native_error.h"
#include "worker/trainer/device/rank_device.h"

namespace hearth::trainer {
namespace {

absl::Status Build(const EngineOptions& options, PreparedJob& job) {
  HEARTH_ASSIGN_OR_RETURN(job.engine, Engine::Create(options));
  HEARTH_RETURN_IF_ERROR(job.engine->Initialise());
  job.program = std::make_unique<StepProgram>(*job.engine, nullptr,
                                              1.0 / static_cast<double>(job.batch.global_tokens()),
                                              job.batch.CountForRank(0));
  return job.program->Prepare();
}

}  // namespace

absl::Status PrepareJob(const PrepareOptions& options, PreparedJob& job) {
  HEARTH_ASSIGN_OR_RETURN(job.spec, LoadJob(options.job));
  const std::string device =
      options.device.empty() ? job.spec.resources().device() : options.device;
  const bool on_gpu = absl::StartsWith(device, "cuda");
  job.spec.mutable_resources()->set_device(on_gpu ? "cuda" : "cpu");
  if (!job.spec.model().has_vocab()) {
    HEARTH_RETURN_IF_ERROR(facts::CompleteSpec(job.spec, Env::Real()));
  }
  if (options.micro_batch > 0) {
    job.spec.mutable_batch()->set_micro_batch_size(static_cast<int32_t>(options.micro_batch));
  }
  EngineOptions engine;
  engine.threads = ThreadsOrAll(options.threads);
  int64_t bytes = CpuMemoryBytes(1);
  if (on_gpu) {
    HEARTH_ASSIGN_OR_RETURN(
        job.cuda, OpenGpu(device, spec::WantsDeterministic(job.spec.train()), options.plans));
    HEARTH_ASSIGN_OR_RETURN(bytes, GpuMemoryBytes(*job.cuda, 1));
    int64_t total = 0;
    HEARTH_RETURN_IF_ERROR(kernels::DeviceMemory(*job.cuda, job.free_before, total));
    job.measured_gpu = MeasuredGpu::Open(*job.cuda);
  }
  const int ranks = std::max(1, job.spec.resources().workers());
  HEARTH_ASSIGN_OR_RETURN(engine.micro_batch,
                          spec::ResolveMicroBatch(job.spec, ranks, engine.threads, bytes));
  HEARTH_ASSIGN_OR_RETURN(job.batch, spec::ResolveBatchPlan(job.spec, engine.micro_batch, ranks));
  engine.spec = job.spec;
  engine.cuda = job.cuda.get();
  absl::Status built = Build(engine, job);
  if (kernels::IsNativeGemmError(built)) {
    absl::FPrintF(stderr, "%s: without block-scaled matrix units: %s\n", job.spec.name(),
                  built.message());
    job.program.reset();
    job.engine.reset();
    engine.no_native_blocks = std::string(built.message());
    built = Build(engine, job);
  }
  HEARTH_RETURN_IF_ERROR(built);
  if (job.cuda == nullptr) {
    return absl::OkStatus();
  }
  if (const std::string& refused = job.program->attention().refused; !refused.empty()) {
    absl::FPrintF(stderr, "%s: attention runs our own kernels: %s\n", job.spec.name(), refused);
  }
  return job.cuda->SavePlans();
}

}  // namespace hearth::trainer
