#include "jobctl/output.h"

#include <cmath>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "hearth/v1/job.pb.h"

namespace hearth::jobctl {
namespace {

TEST(Table, Render_AlignsColumnsWithoutTrailingBlanks) {
  Table table({"NAME", "STATE", "AGE"});
  table.Add({"a-long-name", "RUNNING", "5s"});
  table.Add({"b", "PAUSED", ""});
  EXPECT_EQ(table.Render(),
            "NAME         STATE    AGE\n"
            "a-long-name  RUNNING  5s\n"
            "b            PAUSED\n");
}

TEST(StateName, Job_DropsThePrefix) {
  EXPECT_EQ(StateName(v1::JOB_STATE_RUNNING), "RUNNING");
  EXPECT_EQ(StateName(v1::WORKER_STATE_IDLE), "IDLE");
}

TEST(Sparkline, FallingValues_FallsFromFullToLow) {
  EXPECT_EQ(Sparkline({8, 7, 6, 5, 4, 3, 2, 1}, 8), "█▇▆▅▄▃▂▁");
}

TEST(Sparkline, MorePointsThanWidth_AveragesStretches) {
  EXPECT_EQ(Sparkline({1, 1, 9, 9}, 2), "▁█");
  EXPECT_EQ(Sparkline({}, 8), "");
}

TEST(ToJson, Job_ShowsZeroesAndProtobufNames) {
  v1::Job job;
  job.set_job_id("j");
  const auto json = ToJson(job);
  ASSERT_TRUE(json.ok());
  EXPECT_NE(json->find("\"jobId\": \"j\""), std::string::npos);
  EXPECT_NE(json->find("\"step\": \"0\""), std::string::npos);  // int64 is a string in the mapping
}

TEST(ToYaml, Job_IsYamlOfTheJson) {
  v1::Job job;
  job.set_job_id("yes");
  const auto yaml = ToYaml(job);
  ASSERT_TRUE(yaml.ok());
  EXPECT_NE(yaml->find("jobId: \"yes\""), std::string::npos);
}

TEST(Number, NotFinite_IsADash) {
  EXPECT_EQ(Number(std::nan(""), 3), "-");
  EXPECT_EQ(Number(1.23456, 3), "1.235");
}

TEST(ParseOutputFormat, Unknown_NamesTheChoices) {
  EXPECT_FALSE(ParseOutputFormat("csv").ok());
  EXPECT_TRUE(ParseOutputFormat("wide").ok());
}

}  // namespace
}  // namespace hearth::jobctl
