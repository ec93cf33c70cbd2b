// The worker's metrics: a table of rows and a collector over what the parts say of themselves at
// scrape time.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/metrics/metrics.h"
#include "prometheus/collectable.h"
#include "worker/daemon/agent/agent.h"
#include "worker/daemon/device/gpu_monitor.h"
#include "worker/daemon/device/inventory.h"
#include "worker/daemon/supervise/task_runner.h"

namespace hearth::worker {

// Rows of hearth_worker_*, hearth_gpu_* and hearth_weight_quantizations_total; see docs/metrics.md.
// At most one job has series (the running one), gone with its task. GPU series carry the number and
// the UUID as DCGM's do, so that the two join.
std::vector<metrics::MetricDef> WorkerMetricDefs();

struct WorkerMetricValues {
  TaskSnapshot tasks;
  Agent::Counters agent;
  int64_t device_memory_bytes = 0;
  std::optional<GpuReading> gpu;  // absent on a CPU worker
  UsageSampler::Usage trainer;
};

class WorkerMetrics : public prometheus::Collectable {
 public:
  // `read` is called at each scrape; it must be thread-safe and not wait for anything slow.
  explicit WorkerMetrics(std::function<WorkerMetricValues()> read) : read_(std::move(read)) {}

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const std::function<WorkerMetricValues()> read_;
};

}  // namespace hearth::worker
