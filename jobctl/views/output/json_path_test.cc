#include "jobctl/views/output/json_path.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hearth/v1/job.pb.h"
#include "tests/support/common/valid_job.h"

namespace hearth::jobctl {
namespace {

using ::testing::HasSubstr;

v1::ListJobsResponse Jobs() {
  v1::ListJobsResponse all;
  v1::Job& first = *all.add_jobs();
  first = spec::JobIn(v1::JOB_STATE_RUNNING, "run-a");
  first.set_step(12);
  first.mutable_spec()->mutable_optimizer()->set_lr(0.25);
  (*first.mutable_spec()->mutable_labels())["team"] = "research";
  (*first.mutable_spec()->mutable_labels())["a.b"] = "c";
  first.add_workers("w0");
  first.add_workers("w1");
  first.mutable_create_time()->set_seconds(1'700'000'000);
  all.add_jobs()->set_job_id("run-b");
  return all;
}

// What the template prints, or the error.
std::string Printed(std::string_view text, const google::protobuf::Message& message = Jobs()) {
  const auto path = JsonPath::Parse(text);
  if (!path.ok()) {
    return std::string(path.status().message());
  }
  const auto out = path->Print(message);
  return out.ok() ? *out : std::string(out.status().message());
}

TEST(JsonPath, Paths_LeadToValues) {
  constexpr struct {
    const char* path;
    const char* printed;
  } kCases[] = {
      {"{.jobs[*].job_id}", "run-a run-b"},
      {"{.jobs[0].job_id}", "run-a"},
      {"{.jobs[-1].job_id}", "run-b"},
      {"{$.jobs[*].step}", "12 0"},
      {"{.jobs[0].state}", "JOB_STATE_RUNNING"},
      {"{.jobs[*].spec.optimizer.lr}", "0.25"},  // the second has no job file
      {"{.jobs[0].workers}", "[\"w0\",\"w1\"]"},
      {"{.jobs[0].workers[*]}", "w0 w1"},
      {"{.jobs[0].create_time}", "2023-11-14T22:13:20Z"},
      {"{.jobs[*].checkpoint.path}", ""},   // nothing is set
      {"{.jobs[*].jobId}", "run-a run-b"},  // the name in JSON
      {".jobs[*].job_id", "run-a run-b"},
      {"jobs[*].job_id", "run-a run-b"},
      {"{.jobs[0].spec.labels.team}", "research"},
      {"{.jobs[0].spec.labels['a.b']}", "c"},
      {"{.jobs[0].spec.labels.a\\.b}", "c"},
      {"{.jobs[0].spec.labels.none}", ""},
  };
  for (const auto& c : kCases) {
    EXPECT_EQ(Printed(c.path), c.printed) << c.path;
  }
  EXPECT_EQ(Printed("{.job_id}", Jobs().jobs(0)), "run-a");
  EXPECT_THAT(Printed("{.}"), HasSubstr("{\"jobs\":[{\"job_id\":\"run-a\""));
}

TEST(JsonPath, Text_StandsBetweenPaths) {
  EXPECT_EQ(Printed("{.jobs[0].job_id}: step {.jobs[0].step}{\"\\n\"}"), "run-a: step 12\n");
  EXPECT_EQ(Printed("{\"}\\t\\\"\"}"), "}\t\"");
}

TEST(JsonPath, UnknownFields_NameTheRightOne) {
  constexpr struct {
    const char* typed;
    const char* told;
  } kSlips[] = {
      {"{.items[*].id}", "-o jsonpath: .items[*].id: no field items; did you mean jobs?"},
      {"{.jobs[*].id}", "-o jsonpath: .jobs[*].id: no field id; did you mean job_id?"},
      {"{.jobs[*].stpe}", "-o jsonpath: .jobs[*].stpe: no field stpe; did you mean step?"},
      {"{.job_id}", "-o jsonpath: .job_id: no field job_id; did you mean jobs[*].job_id?"},
      {"{.jobs[0].optimizer.lr}",
       "-o jsonpath: .jobs[0].optimizer.lr: no field optimizer; did you mean spec.optimizer?"},
  };
  for (const auto& slip : kSlips) {
    EXPECT_EQ(Printed(slip.typed), slip.told);
    EXPECT_EQ(Printed(slip.typed, v1::ListJobsResponse()), slip.told) << "without any job too";
  }
  EXPECT_THAT(Printed("{.jobs[0].spec.zzzzzz}"), HasSubstr("no field zzzzzz; there are name, "));
}

TEST(JsonPath, StepsThatDoNotFit_SayWhy) {
  EXPECT_THAT(Printed("{.jobs.job_id}"), HasSubstr("jobs is a list; write jobs[*].job_id or"));
  EXPECT_THAT(Printed("{.jobs[0].step[0]}"), HasSubstr("step is no list"));
  EXPECT_THAT(Printed("{.jobs[0].step.x}"), HasSubstr("step has no fields"));
  EXPECT_THAT(Printed("{.jobs[0].create_time.seconds}"), HasSubstr("create_time has no fields"));
  EXPECT_THAT(Printed("{.jobs[2].job_id}"), HasSubstr("there is no element 2 of 2"));
}

TEST(JsonPath, WhatIsNotThere_IsRefusedWithWhatToUse) {
  EXPECT_THAT(Printed("{range .jobs[*]}{.job_id}{end}"), HasSubstr("use list --columns"));
  EXPECT_THAT(Printed("{.jobs[?(@.step>1)]}"), HasSubstr("-o json with jq"));
  EXPECT_THAT(Printed("{..job_id}"), HasSubstr("expected the name of a field"));
  EXPECT_THAT(Printed("{.jobs[0}"), HasSubstr("a [ has no ]"));
  EXPECT_THAT(Printed("{.jobs"), HasSubstr("a { has no }"));
  EXPECT_THAT(Printed(""), HasSubstr("e.g. -o jsonpath='{.jobs[*].job_id}'"));
}

}  // namespace
}  // namespace hearth::jobctl
