#include "common/metrics/step_metrics.h"

#include <map>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hearth::metrics {
namespace {

using testing::IsEmpty;

using Numbers = std::map<std::string, double>;

Numbers NumbersOf(const StepMetric& row, const v1::StepReport& report) {
  Numbers numbers;
  row.ForEach(report,
              [&numbers](const std::string& label, double value) { numbers[label] = value; });
  return numbers;
}

const StepMetric& Row(const std::string& family, const std::string& field) {
  for (const StepMetric& row : StepMetrics()) {
    if (row.family() == family && row.field() == field) {
      return row;
    }
  }
  ADD_FAILURE() << "no row " << family << ", " << field;
  return StepMetrics().front();
}

TEST(StepMetrics, Rows_AreSound) {
  EXPECT_THAT(CheckStepMetrics(), IsEmpty());
}

TEST(StepMetrics, Names_HaveUnitAndKindAtTheirEnd) {
  EXPECT_EQ(StepMetricOf("data_wait_seconds").family(), "hearth_job_data_wait_seconds_total");
  EXPECT_EQ(StepMetricOf("mfu").family(), "hearth_job_mfu_ratio");
  EXPECT_EQ(StepMetricOf("tokens").family(), "hearth_job_tokens_total");
  EXPECT_EQ(StepMetricOf("power_watts").family(), "");
}

TEST(Value, AbsentAndNotMeasured_IsNothing) {
  v1::StepReport report;
  EXPECT_FALSE(StepMetricOf("validation_loss").Value(report).has_value());
  EXPECT_FALSE(StepMetricOf("mfu").Value(report).has_value());
  EXPECT_EQ(StepMetricOf("loss").Value(report), 0.0);
  report.set_validation_loss(0);
  report.set_mfu(0.5);
  report.mutable_time()->set_seconds(10);
  report.mutable_time()->set_nanos(500000000);
  EXPECT_EQ(StepMetricOf("validation_loss").Value(report), 0.0);
  EXPECT_EQ(StepMetricOf("mfu").Value(report), 0.5);
  EXPECT_EQ(StepMetricOf("time").Value(report), 10.5);
}

TEST(ForEach, LabelOfTheRow_AndLargestOfEachRole) {
  v1::StepReport report;
  report.mutable_guard()->set_spike(2);
  EXPECT_EQ(NumbersOf(Row("hearth_job_skipped_steps_total", "spike"), report),
            (Numbers{{"spike", 2}}));
  for (const double amax : {1.0, 3.0, 2.0}) {
    v1::TensorStats& row = *report.add_worst_tensors();
    row.set_role(amax == 2.0 ? "w" : "dy");
    row.set_amax(amax);
  }
  const StepMetric& amax = Row("hearth_job_tensor_amax", "amax");
  EXPECT_EQ(amax.labels(), "job_id,role");
  EXPECT_EQ(NumbersOf(amax, report), (Numbers{{"dy", 3}, {"w", 2}}));
}

TEST(Labels, OfEntries_WithAndWithoutTheNumber) {
  v1::StepReport report;
  report.add_sources()->set_source("/web");
  report.add_sources()->set_source("/code");
  EXPECT_THAT(Row("hearth_job_source_loss", "loss").Labels(report),
              testing::ElementsAre("/code", "/web"));
  EXPECT_THAT(StepMetricOf("loss").Labels(report), IsEmpty());
}

TEST(ForEach, EntriesOfSources_EachUnderItsLabel) {
  v1::StepReport report;
  report.set_loss(3);
  v1::SourceReport& web = *report.add_sources();
  web.set_source("/web");
  web.set_loss(3.5);
  web.set_passes(0.25);
  v1::SourceReport& code = *report.add_sources();
  code.set_source("/code");
  code.set_passes(2);
  const StepMetric& loss = Row("hearth_job_source_loss", "loss");
  EXPECT_EQ(loss.path(), "sources.loss");
  EXPECT_EQ(loss.labels(), "job_id,source");
  EXPECT_EQ(NumbersOf(loss, report), (Numbers{{"/web", 3.5}})) << "the step drew none of /code";
  EXPECT_EQ(NumbersOf(Row("hearth_job_source_passes", "passes"), report),
            (Numbers{{"/web", 0.25}, {"/code", 2}}));
  EXPECT_EQ(StepMetricOf("loss").Value(report), 3.0) << "not a field of the entries";
}

TEST(Text, EachType_IsExact) {
  v1::StepReport report;
  report.set_step(int64_t{1} << 60);
  report.set_loss(1.0 / 3);
  report.set_recipe("fp8");
  report.mutable_time()->set_seconds(0);
  EXPECT_EQ(StepMetricOf("step").Text(report), "1152921504606846976");
  EXPECT_EQ(StepMetricOf("loss").Text(report), "0.333333333");
  EXPECT_EQ(StepMetricOf("recipe").Text(report), "fp8");
  EXPECT_EQ(StepMetricOf("validation_loss").Text(report), "");
  EXPECT_EQ(StepMetricOf("mfu").Text(report), "0");
  EXPECT_EQ(StepMetricOf("redone_steps").Text(report), "0");
  EXPECT_EQ(StepMetricOf("time").Text(report), "1970-01-01T00:00:00+00:00");
}

}  // namespace
}  // namespace hearth::metrics
