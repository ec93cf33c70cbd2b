#include "common/metrics/metrics.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hearth::metrics {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr MetricDef kSteps = {"hearth_job_steps_total", MetricType::kCounter, "Finished steps.",
                              "job_id", Stability::kAlpha};
constexpr MetricDef kWait = {"hearth_queue_wait_seconds", MetricType::kHistogram,
                             "From submit to start.", "", Stability::kAlpha};

TEST(Serialize, CounterAndHistogram_AreTextFormat) {
  prometheus::Registry registry;
  CounterFamily(registry, kSteps).Add({{"job_id", "a"}}).Increment(3);
  HistogramFamily(registry, kWait).Add({}, LatencyBuckets()).Observe(0.5);
  const std::string text = Serialize({&registry});
  EXPECT_THAT(text, HasSubstr("# HELP hearth_job_steps_total Finished steps.\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE hearth_job_steps_total counter\n"));
  EXPECT_THAT(text, HasSubstr("hearth_job_steps_total{job_id=\"a\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("hearth_queue_wait_seconds_bucket{le=\"+Inf\"} 1\n"));
}

TEST(CounterFamily, RegisteredTwice_IsTheSameFamily) {
  prometheus::Registry registry;
  EXPECT_EQ(&CounterFamily(registry, kSteps), &CounterFamily(registry, kSteps));
}

TEST(ProcessMetrics, Collect_OwnProcess_HasPlausibleValues) {
  const ProcessMetrics process("prog");
  const std::vector<prometheus::MetricFamily> families = process.Collect();
  ASSERT_EQ(families.size(), ProcessDefs().size());
  for (size_t i = 0; i < families.size(); ++i) {
    EXPECT_EQ(families[i].name, ProcessDefs()[i].name);
  }
  EXPECT_GT(families[2].metric[0].gauge.value, 1e6);            // resident bytes
  EXPECT_GE(families[3].metric[0].gauge.value, 3);              // stdin, stdout, stderr
  EXPECT_GT(families[4].metric[0].gauge.value, 1'600'000'000);  // started after 2020
  EXPECT_THAT(Serialize({&process}), HasSubstr("program=\"prog\""));
}

TEST(CheckDefs, OwnRows_AreClean) {
  EXPECT_THAT(CheckDefs(ProcessDefs()), IsEmpty());
}

TEST(CheckDefs, BadRows_AreAllReported) {
  const MetricDef bad[] = {
      {"job_steps_total", MetricType::kCounter, "x", "", Stability::kAlpha},
      {"hearth_steps", MetricType::kCounter, "x", "", Stability::kAlpha},
      {"hearth_steps_total", MetricType::kGauge, "x", "", Stability::kAlpha},
      {"hearth_workers_count", MetricType::kGauge, "x", "", Stability::kAlpha},
      {"hearth_step_ms", MetricType::kGauge, "x", "", Stability::kAlpha},
      {"hearth_a", MetricType::kGauge, "", "", Stability::kAlpha},
      {"hearth_b", MetricType::kGauge, "x", "job", Stability::kAlpha},
  };
  EXPECT_EQ(CheckDefs(bad).size(), std::size(bad));
  const MetricDef twice[] = {kSteps, kSteps};
  EXPECT_EQ(CheckDefs(twice).size(), 1u);
}

TEST(ToMarkdown, Row_BecomesATableLine) {
  EXPECT_THAT(
      ToMarkdown({kSteps}),
      HasSubstr("| `hearth_job_steps_total` | counter | job_id | alpha | Finished steps. |"));
}

}  // namespace
}  // namespace hearth::metrics
