// How long a plan takes: of each preset on one GPU, and of one job on all GPUs of the table; the
// same with a GPU so small that nothing fits and every change is tried. Exit code 1 when a median
// misses its target.
// Usage: bench_plan [repetitions = 11]
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/spec/feasibility/feasibility.h"
#include "common/spec/gpus/gpus.h"
#include "common/spec/model/presets.h"
#include "common/spec/resolve/resolve.h"

namespace hearth::spec {
namespace {

constexpr double kOneGpuMs = 100;
constexpr double kAllGpusMs = 1000;
constexpr int64_t kSmallBytes = 1'000'000'000;

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

struct Times {
  double median = 0;
  double least = 0;
  double most = 0;
};

// Milliseconds of judging the job on the GPUs. `memory_bytes` 0: each has its own.
Times Measure(const v1::JobSpec& job,
              const std::vector<const GpuRow*>& gpus,
              int64_t memory_bytes,
              int repetitions) {
  std::vector<double> times;
  FeasibilityQuery query;
  query.memory_bytes = memory_bytes;
  for (int i = 0; i < repetitions; ++i) {
    const absl::Time start = absl::Now();
    FeasibilityJudge judge(job, query);
    for (const GpuRow* gpu : gpus) {
      const auto f = judge.Judge(*gpu, CalibrationFor(*gpu));
      if (!f.ok()) {
        std::fprintf(stderr, "%s on %s: %s\n", job.name().c_str(), gpu->name.c_str(),
                     std::string(f.status().message()).c_str());
        std::quick_exit(1);
      }
    }
    times.push_back(absl::ToDoubleMilliseconds(absl::Now() - start));
  }
  std::sort(times.begin(), times.end());
  return {times[times.size() / 2], times.front(), times.back()};
}

void Print(const Times& times) {
  std::printf(" %10.1f (%5.1f..%6.1f)", times.median, times.least, times.most);
}

int Run(int repetitions) {
  std::vector<const GpuRow*> all;
  for (const GpuRow& gpu : Gpus()) {
    all.push_back(&gpu);
  }
  const GpuRow* const one = FindGpu("NVIDIA GeForce RTX 5090");
  bool met = true;
  std::printf("%-16s %26s %26s %26s\n", "MEDIAN MS", "1 GPU", "1 GPU OF 1 GB", "ALL GPUS");
  for (const Preset& preset : Presets()) {
    const v1::JobSpec job = JobOf(preset);
    const Times alone = Measure(job, {one}, 0, repetitions);
    const Times small = Measure(job, {one}, kSmallBytes, repetitions);
    const Times together = Measure(job, all, 0, repetitions);
    std::printf("%-16s", job.name().c_str());
    Print(alone);
    Print(small);
    Print(together);
    std::printf("\n");
    met = met && std::max(alone.median, small.median) <= kOneGpuMs && together.median <= kAllGpusMs;
  }
  std::printf("targets: %.0f and %.0f ms: %s\n", kOneGpuMs, kAllGpusMs, met ? "met" : "MISSED");
  return met ? 0 : 1;
}

}  // namespace
}  // namespace hearth::spec

int main(int argc, char** argv) {
  return hearth::spec::Run(argc > 1 ? std::max(1, std::atoi(argv[1])) : 11);
}
