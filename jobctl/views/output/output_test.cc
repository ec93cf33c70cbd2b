#include "jobctl/views/output/output.h"

#include <cmath>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "hearth/v1/job.pb.h"

namespace hearth::jobctl {
namespace {

TEST(StateName, Job_DropsThePrefix) {
  EXPECT_EQ(StateName(v1::JOB_STATE_RUNNING), "RUNNING");
  EXPECT_EQ(StateName(v1::WORKER_STATE_IDLE), "IDLE");
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

TEST(ToYaml, KeyThatYaml11TakesForTrue_IsQuoted) {
  v1::Job job;
  job.mutable_spec()->add_notify()->add_on("failed");
  const auto yaml = ToYaml(job);
  ASSERT_TRUE(yaml.ok());
  EXPECT_NE(yaml->find("\"on\":"), std::string::npos) << *yaml;
}

TEST(ParseOutputFormat, Unknown_NamesTheChoices) {
  EXPECT_TRUE(ParseOutputFormat("wide").ok());
  EXPECT_TRUE(*ParseOutputFormat("jsonpath={.job_id}") == OutputFormat::kJsonPath);
  constexpr struct {
    const char* typed;
    const char* told;
  } kSlips[] = {
      {"csv", "\"csv\" is not a format (one of table, wide, json, yaml, name, jsonpath)"},
      {"jsn", "\"jsn\" is not a format; did you mean json?"},
      {"wide=1", "\"wide=1\" is not a format; did you mean wide?"},
      {"custom-columns=A:.a", "did you mean --columns job_id,state of list and get?"},
      {"jsonpath", "give a path, e.g. -o jsonpath='{.jobs[*].job_id}'"},
      {"jsonpath={range .jobs[*]}", "there are no loops"},
  };
  for (const auto& slip : kSlips) {
    const std::string text(ParseOutputFormat(slip.typed).status().message());
    EXPECT_NE(text.find(slip.told), std::string::npos) << text;
  }
}

TEST(OutputFormat, ATemplate_IsData) {
  const OutputFormat format = *ParseOutputFormat("jsonpath={.job_id}");
  EXPECT_TRUE(format.data());
  EXPECT_EQ(*format.path().Print(v1::Job()), "");
}

TEST(FormatNames, LeaveTheTableOut) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(FormatNames(kPrintsText), Names());
  EXPECT_EQ(FormatNames(kPrintsData | kPrintsWide), Names({"wide", "json", "yaml"}));
  EXPECT_EQ(FormatNames(kPrintsRows), Names({"wide", "json", "yaml", "name", "jsonpath"}));
}

TEST(JsonAs, Yaml_IsTheSameValue) {
  const std::string json = "{\"a\": [1, null], \"b\": \"x\"}\n";
  EXPECT_EQ(JsonAs(OutputFormat::kJson, json), json);
  EXPECT_EQ(JsonAs(OutputFormat::kYaml, json), "a:\n  - 1\n  - ~\nb: \"x\"\n");
}

}  // namespace
}  // namespace hearth::jobctl
