// A job's step, ready to run on random tokens: without data, peers or checkpoints.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "hearth/v1/job.pb.h"
#include "worker/trainer/cli/machine/measured_gpu.h"
#include "worker/trainer/cli/verbs.h"
#include "worker/trainer/device/tuned_plan_paths.h"
#include "worker/trainer/step/engine.h"
#include "worker/trainer/step/program.h"

namespace hearth::trainer {

struct PrepareOptions {
  JobOptions job;
  std::string device;                   // cpu | cuda:N; empty = the job's
  int threads = 0;                      // 0 = all cores
  int64_t micro_batch = 0;              // 0 = the job's
  std::optional<TunedPlanPaths> plans;  // none: FindTunedPlanPaths()
};

// The members' order is that of what must outlive what.
struct PreparedJob {
  v1::JobSpec spec;
  std::unique_ptr<kernels::CudaContext> cuda;  // null on the CPU
  MeasuredGpu measured_gpu;
  int64_t free_before = 0;  // bytes of the GPU, before the engine was made
  spec::BatchPlan batch;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<StepProgram> program;
};

// Every kind of the job's launches has run once: its matrix products are tuned, and kept. Like a
// job it goes on without block-scaled units, and with our own attention, where the library's are
// wrong; stderr says so.
absl::Status PrepareJob(const PrepareOptions& options, PreparedJob& job);

}  // namespace hearth::trainer
