// Several ranks that run a job's step for its speed: a thread and a device each, in one process.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "hearth/v1/job.pb.h"
#include "worker/trainer/comm/collective.h"
#include "worker/trainer/step/exchange.h"

namespace hearth::trainer {

// What the ranks of a measurement run; a measurement beside another one copies it.
struct BenchSetup {
  v1::JobSpec spec;
  std::vector<std::string> devices;  // of the ranks
  int64_t micro_batch = 0;
  int threads = 1;
  int steps = 0;  // BenchLength::steps
  spec::ShardLevel shard = spec::ShardLevel::kOff;
  std::string plans;  // GEMM choices; empty: every rank makes its own
  // Rank 0 keeps its choices for later runs. Not where several worlds run at once: their rank 0s
  // would write the same file.
  bool save_plans = false;
  Exchanged exchanged = Exchanged::kGradients;

  int size() const { return static_cast<int>(devices.size()); }
};

// What all ranks of one measurement share, and where they meet.
struct BenchWorld : BenchSetup {
  BenchWorld() = default;
  explicit BenchWorld(const BenchSetup& setup) : BenchSetup(setup) {}

  LocalKeyValueStore store;
  std::vector<std::unique_ptr<Collective>> cpu_ranks;
};

// What one rank measured; milliseconds are medians over the steps.
struct BenchRankResult {
  double step_ms = 0;
  std::vector<double> steps_ms;
  int warm_up_steps = 0;  // before those
  double exposed_ms = 0;  // after the last gradient, until the ranks' sums are there
  std::vector<double> exposed_steps_ms;
  int64_t comm_bytes = 0;
  double loss = 0;
  int64_t predicted_bytes = 0;  // of GPU memory; only rank 0's, 0 on the CPU
  int64_t measured_bytes = 0;
  std::string device_name;
  std::string plans;
};

bool OnGpu(const BenchWorld& world);

// Runs a warm-up and `world.steps` steps on all of its ranks, as many on each (BenchTurns). After a
// rank's error the others wait for it in a collective that nothing can wake: the error is printed
// and the process ends.
std::vector<BenchRankResult> RunWorld(BenchWorld& world);

// The sorted value at `share`, 0 to 1; 0 if there are no values.
double Quantile(std::vector<double> values, double share);
double Median(const std::vector<double>& values);

}  // namespace hearth::trainer
