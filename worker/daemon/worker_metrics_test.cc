#include "worker/daemon/worker_metrics.h"

#include <cstdlib>
#include <fstream>
#include <iterator>
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

TEST(WorkerMetricsTest, Defs_Documentation_HasTheirRows) {
  const char* root = std::getenv("HEARTH_SOURCE_DIR");
  if (root == nullptr) {
    GTEST_SKIP() << "HEARTH_SOURCE_DIR is not set";
  }
  std::ifstream file(std::string(root) + "/docs/metrics.md");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  EXPECT_THAT(text, HasSubstr(metrics::ToMarkdown(WorkerMetricDefs())))
      << "put the table of this message into docs/metrics.md";
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
  values.connected = true;
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
  const std::string text = Scrape(values);
  EXPECT_THAT(text, HasSubstr("hearth_gpu_power_watts{gpu=\"3\",uuid=\"GPU-x\"} 650.5"));
  EXPECT_THAT(text, HasSubstr("hearth_gpu_energy_joules_total{gpu=\"3\",uuid=\"GPU-x\"} 1234"));
  EXPECT_THAT(text, HasSubstr("model=\"NVIDIA H200\""));
  EXPECT_THAT(text, HasSubstr("reason=\"sw_power_cap\"} 1"));
  EXPECT_THAT(text, HasSubstr("reason=\"hw_slowdown\"} 0"));
  EXPECT_THAT(text, HasSubstr("hearth_gpu_allocated{gpu=\"3\",uuid=\"GPU-x\"} 0"));
  EXPECT_THAT(text, Not(HasSubstr("hearth_gpu_temperature_celsius")));
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
