#include "worker/daemon/worker_metrics.h"

#include <algorithm>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hearth::worker {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::string Scrape(const WorkerMetricValues& values) {
  const WorkerMetrics collector([&values] { return values; });
  const prometheus::Collectable* const all[] = {&collector};
  return metrics::Serialize(all);
}

TEST(WorkerMetricsTest, Defs_Rules_AreKept) {
  EXPECT_THAT(metrics::CheckDefs(WorkerMetricDefs()), IsEmpty());
}

TEST(WorkerMetricsTest, Collect_Idle_HasNoJobSeriesAndAllReasonsAtZero) {
  WorkerMetricValues values;
  const std::string text = Scrape(values);
  EXPECT_THAT(text, HasSubstr("hearth_worker_task_running 0"));
  EXPECT_THAT(text, HasSubstr("hearth_worker_healthy 1"));
  EXPECT_THAT(text, HasSubstr("hearth_worker_task_exits_total{reason=\"bad_spec\"} 0"));
  EXPECT_THAT(text, Not(HasSubstr("job_id")));
}

TEST(WorkerMetricsTest, Collect_RunningJob_HasItsSeries) {
  WorkerMetricValues values;
  values.agent.connected = true;
  values.tasks.running = true;
  values.tasks.job_id = "job-1";
  values.tasks.step = 12;
  values.tasks.last_step.emplace();
  values.tasks.last_step->set_loss(2.5);
  values.tasks.last_step->set_tokens_per_second(1000);
  values.tasks.exits[v1::EXIT_REASON_KILLED] = 2;
  values.tasks.unhealthy_reason = "stuck";
  const std::string text = Scrape(values);
  EXPECT_THAT(text, HasSubstr("hearth_worker_connected 1"));
  EXPECT_THAT(text, HasSubstr("hearth_worker_job_step{job_id=\"job-1\"} 12"));
  EXPECT_THAT(text, HasSubstr("hearth_worker_job_loss{job_id=\"job-1\"} 2.5"));
  EXPECT_THAT(text, HasSubstr("hearth_worker_job_tokens_per_second{job_id=\"job-1\"} 1000"));
  EXPECT_THAT(text, HasSubstr("hearth_worker_task_exits_total{reason=\"killed\"} 2"));
  EXPECT_THAT(text, HasSubstr("hearth_worker_healthy 0"));
}

TEST(WorkerMetricsTest, Collect_Gpu_HasItsSeriesAndNoneForWhatIsNotTold) {
  WorkerMetricValues values;
  GpuReading& gpu = values.gpu.emplace();
  gpu.info.index = 3;
  gpu.info.uuid = "GPU-x";
  gpu.info.name = "NVIDIA H200";
  gpu.sample.power_watts = 650.5;
  gpu.sample.energy_joules = 1234.0;
  gpu.sample.throttle_reasons = 0x4;
  gpu.sample.remapped_rows = {2, 1, false, true};
  gpu.sample.pcie_sent_bytes = 4096;
  gpu.info.pcie_width_max = 16;
  gpu.xid_errors = 2;
  gpu.last_xid = 63;
  const std::string text = Scrape(values);
  EXPECT_THAT(text, HasSubstr("hearth_gpu_power_watts{gpu=\"3\",uuid=\"GPU-x\"} 650.5"));
  EXPECT_THAT(text, HasSubstr("hearth_gpu_energy_joules_total{gpu=\"3\",uuid=\"GPU-x\"} 1234"));
  EXPECT_THAT(text, HasSubstr("model=\"NVIDIA H200\""));
  EXPECT_THAT(text, HasSubstr("reason=\"sw_power_cap\"} 1"));
  EXPECT_THAT(text, HasSubstr("reason=\"hw_slowdown\"} 0"));
  EXPECT_THAT(text, HasSubstr("hearth_gpu_allocated{gpu=\"3\",uuid=\"GPU-x\"} 0"));
  EXPECT_THAT(text, HasSubstr("kind=\"correctable\"} 2"));
  EXPECT_THAT(text, HasSubstr("kind=\"uncorrectable\"} 1"));
  EXPECT_THAT(text, HasSubstr("hearth_gpu_row_remap_pending{gpu=\"3\",uuid=\"GPU-x\"} 0"));
  EXPECT_THAT(text, HasSubstr("hearth_gpu_row_remap_failed{gpu=\"3\",uuid=\"GPU-x\"} 1"));
  EXPECT_THAT(text, HasSubstr("hearth_gpu_pcie_sent_bytes_total{gpu=\"3\",uuid=\"GPU-x\"} 4096"));
  EXPECT_THAT(text, HasSubstr("hearth_gpu_pcie_lanes_max{gpu=\"3\",uuid=\"GPU-x\"} 16"));
  EXPECT_THAT(text, HasSubstr("hearth_gpu_last_xid{gpu=\"3\",uuid=\"GPU-x\"} 63"));
  EXPECT_THAT(text, Not(HasSubstr("hearth_gpu_temperature_celsius")));
  EXPECT_THAT(text, Not(HasSubstr("hearth_gpu_pcie_replays")));
}

TEST(WorkerMetricsTest, Collect_AllThatAGpuCanTell_StaysWithinTheDocumentedBound) {
  WorkerMetricValues values;
  values.tasks.running = true;
  values.tasks.job_id = "job-1";
  values.tasks.last_step.emplace();
  values.tasks.compute_seconds = 1.0;
  GpuReading& gpu = values.gpu.emplace();
  gpu.info.power_limit_default_watts = gpu.info.sm_clock_max_hertz = 1.0;
  gpu.info.memory_clock_max_hertz = 1.0;
  gpu.info.pcie_generation_max = gpu.info.pcie_width_max = 1;
  nvml::GpuSample& sample = gpu.sample;
  sample.memory_total_bytes = sample.memory_used_bytes = sample.memory_reserved_bytes = 1;
  sample.power_watts = sample.power_limit_watts = sample.energy_joules = 1.0;
  sample.utilization_ratio = sample.memory_utilization_ratio = 1.0;
  sample.temperature_celsius = sample.memory_temperature_celsius = 1.0;
  sample.sm_clock_hertz = sample.memory_clock_hertz = 1.0;
  sample.throttle_reasons = 0;
  sample.ecc_errors = sample.ecc_corrected_errors = sample.pcie_replays = 1;
  sample.pcie_sent_bytes = sample.pcie_received_bytes = 1;
  sample.pcie_generation = sample.pcie_width = 1;
  sample.remapped_rows.emplace();
  sample.processes.emplace();
  const std::string text = Scrape(values);
  for (const metrics::MetricDef& def : WorkerMetricDefs()) {
    EXPECT_THAT(text, HasSubstr("# TYPE " + std::string(def.name) + " ")) << "in no scrape";
  }
  const auto lines = std::count(text.begin(), text.end(), '\n');
  const auto comments = 2 * static_cast<std::ptrdiff_t>(WorkerMetricDefs().size());
  EXPECT_LE(lines - comments, 150) << "docs/metrics.md promises no more";
}

TEST(WorkerMetricsTest, Collect_QuantisedRun_CountsWeightQuantisations) {
  WorkerMetricValues values;
  values.gpu.emplace();
  values.tasks.running = true;
  values.tasks.job_id = "job-1";
  values.tasks.energy_joules = 55.0;
  values.tasks.last_step.emplace();
  values.tasks.last_step->set_weight_quantizations(84);
  const std::string text = Scrape(values);
  EXPECT_THAT(text, HasSubstr("hearth_weight_quantizations_total{job_id=\"job-1\"} 84"));
  EXPECT_THAT(text, HasSubstr("hearth_worker_job_energy_joules_total{job_id=\"job-1\"} 55"));
}

TEST(WorkerMetricsTest, Collect_RankWithoutStepReports_HasStepAlone) {
  WorkerMetricValues values;
  values.tasks.running = true;
  values.tasks.job_id = "job-1";
  const std::string text = Scrape(values);
  EXPECT_THAT(text, HasSubstr("hearth_worker_job_step{job_id=\"job-1\"} 0"));
  EXPECT_THAT(text, Not(HasSubstr("hearth_worker_job_loss")));
}

}  // namespace
}  // namespace hearth::worker
