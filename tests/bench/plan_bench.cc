// How long a plan takes: of each preset on one GPU, and of one job on all GPUs of the table. Exit
// code 1 when a target is missed.
// Usage: bench_plan [repetitions = 5]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/spec/feasibility/feasibility.h"
#include "common/spec/model/presets.h"
#include "common/spec/plan/gpus.h"
#include "common/spec/resolve.h"

namespace hearth::spec {
namespace {

constexpr double kOneGpuMs = 100;
constexpr double kAllGpusMs = 1000;

v1::JobSpec JobOf(const Preset& preset) {
  v1::JobSpec job;
  job.set_name(std::string(preset.name));
  job.mutable_model()->set_preset(std::string(preset.name));
  if (!preset.model.has_vocab()) {
    job.mutable_model()->set_vocab(4096);
  }
  job.mutable_data()->add_train()->set_path("/data");
  job.mutable_data()->set_sequence_length(1024);
  job.mutable_precision()->set_recipe("bf16");
  job.mutable_batch()->set_micro_batch_size(8);
  job.mutable_batch()->set_global_batch_tokens(131072);
  job.mutable_optimizer()->set_name("adamw");
  job.mutable_optimizer()->set_lr(1e-4);
  job.mutable_train()->set_steps(1000);
  job.mutable_resources()->set_device("cuda");
  std::vector<FieldViolation> ignored;
  Resolve(job, ignored);
  return job;
}

// Milliseconds of judging the job on the GPUs, the median of `repetitions`.
double MedianMs(const v1::JobSpec& job, const std::vector<const GpuRow*>& gpus, int repetitions) {
  std::vector<double> times;
  for (int i = 0; i < repetitions; ++i) {
    const absl::Time start = absl::Now();
    FeasibilityJudge judge(job, {});
    for (const GpuRow* gpu : gpus) {
      const auto f = judge.Judge(*gpu, CalibrationFor(*gpu));
      if (!f.ok()) {
        std::fprintf(stderr, "%s on %s: %s\n", job.name().c_str(), gpu->name.c_str(),
                     std::string(f.status().message()).c_str());
        std::exit(1);
      }
    }
    times.push_back(absl::ToDoubleMilliseconds(absl::Now() - start));
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

int Run(int repetitions) {
  std::vector<const GpuRow*> all;
  for (const GpuRow& gpu : Gpus()) {
    all.push_back(&gpu);
  }
  const GpuRow* const one = FindGpu("NVIDIA GeForce RTX 5090");
  bool met = true;
  std::printf("%-16s %12s %14s\n", "JOB", "1 GPU, MS", "ALL GPUS, MS");
  for (const Preset& preset : Presets()) {
    const v1::JobSpec job = JobOf(preset);
    const double alone = MedianMs(job, {one}, repetitions);
    const double together = MedianMs(job, all, repetitions);
    std::printf("%-16s %12.1f %14.1f\n", job.name().c_str(), alone, together);
    met = met && alone <= kOneGpuMs && together <= kAllGpusMs;
  }
  std::printf("targets: %.0f and %.0f ms: %s\n", kOneGpuMs, kAllGpusMs, met ? "met" : "MISSED");
  return met ? 0 : 1;
}

}  // namespace
}  // namespace hearth::spec

int main(int argc, char** argv) {
  return hearth::spec::Run(argc > 1 ? std::max(1, std::atoi(argv[1])) : 5);
}
