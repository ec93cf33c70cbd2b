#include "common/metrics/metrics.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hearth::metrics {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr MetricDef kSteps = {"hearth_job_steps_total", MetricType::kCounter, "Finished steps.",
                              "job_id", Stability::kAlpha};

struct Own {
  MetricTable table;
  Counter steps{table, "hearth_job_steps_total", "Finished steps.", "job_id"};
  Histogram wait{table, "hearth_queue_wait_seconds", "From submit to start."};
};

TEST(Serialize, CounterAndHistogram_AreTextFormat) {
  Own own;
  own.steps.With({{"job_id", "a"}}).Increment(1);
  own.steps.With({{"job_id", "a"}}).Increment(2);
  own.wait->Observe(0.5);
  const std::string text = Serialize({&own.table.registry()});
  EXPECT_THAT(text, HasSubstr("# HELP hearth_job_steps_total Finished steps.\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE hearth_job_steps_total counter\n"));
  EXPECT_THAT(text, HasSubstr("hearth_job_steps_total{job_id=\"a\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("hearth_queue_wait_seconds_bucket{le=\"+Inf\"} 1\n"));
}

TEST(MetricTable, Rows_AreListedInOrder) {
  const Own own;
  ASSERT_EQ(own.table.defs().size(), 2u);
  EXPECT_EQ(own.table.defs()[0].labels, "job_id");
  EXPECT_EQ(own.table.defs()[1].type, MetricType::kHistogram);
  EXPECT_THAT(CheckDefs(own.table.defs()), IsEmpty());
}

TEST(Series, Labels_ComeInTheOrderOfTheRow) {
  Series series({"hearth_b", MetricType::kGauge, "x", "gpu,uuid", Stability::kBeta});
  EXPECT_TRUE(series.empty());
  series.Add(2.5, {"0", "GPU-x"});
  const prometheus::MetricFamily family = series.Take();
  ASSERT_EQ(family.metric.size(), 1u);
  EXPECT_EQ(family.metric[0].label[1].name, "uuid");
  EXPECT_EQ(family.metric[0].label[1].value, "GPU-x");
  EXPECT_EQ(family.metric[0].gauge.value, 2.5);
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
