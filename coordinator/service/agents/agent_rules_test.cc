#include "coordinator/service/agents/agent_rules.h"

#include <cmath>
#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hearth::coordinator {
namespace {

using testing::HasSubstr;

std::string Problem(const v1::AgentMessage& message, std::string_view root = "/ck") {
  return std::string(CheckAgentMessage(message, root).message());
}

v1::AgentMessage Announcement(const std::string& path) {
  v1::AgentMessage message;
  message.mutable_report()->set_job_id("job");
  message.mutable_report()->set_epoch(2);
  message.mutable_report()->set_seq(1);
  message.mutable_report()->mutable_checkpoint()->set_step(7);
  message.mutable_report()->mutable_checkpoint()->set_path(path);
  return message;
}

TEST(AgentRulesTest, CheckpointPath_LiesInTheEpochsFolder) {
  EXPECT_EQ(Problem(Announcement("/ck/job/e2/step-00000007")), "");
  EXPECT_EQ(Problem(Announcement("/job/e2/step-00000007"), "/"), "");
  for (const char* path :
       {"", "/etc/../etc", "/ck/job/e2/../../../etc", "/ck/job/e2/", "/ck/job/e2",
        "/ck/job/e3/step-7", "/ck/other/e2/step-7", "/ck/job/e2//step-7", "/ck/job/e2/./step-7",
        "ck/job/e2/step-7", "/ckjob/e2/step-7"}) {
    EXPECT_THAT(Problem(Announcement(path)), HasSubstr("report.checkpoint.path")) << path;
  }
}

TEST(AgentRulesTest, Samples_HaveAnyCharacterAndBoundedSizes) {
  v1::AgentMessage message = Announcement("");
  v1::StepReport& step = *message.mutable_report()->mutable_step();
  step.set_step(7);
  for (int i = 0; i < 16; ++i) {
    v1::SampleText& sample = *step.add_samples();
    sample.set_prompt(std::string(4096, '\n'));
    sample.set_text(std::string(8192, '\x01'));
  }
  EXPECT_EQ(Problem(message), "");
  step.mutable_samples(3)->mutable_text()->push_back('x');
  EXPECT_THAT(Problem(message), HasSubstr("report.step.samples[3].text"));
  step.mutable_samples(3)->clear_text();
  step.add_samples();
  EXPECT_THAT(Problem(message), HasSubstr("report.step.samples"));
}

TEST(AgentRulesTest, Hello_RootAndTasks) {
  v1::AgentMessage message;
  v1::Hello& hello = *message.mutable_hello();
  hello.set_checkpoint_root("/ck/../etc");
  EXPECT_THAT(Problem(message), HasSubstr("hello.checkpoint_root"));
  hello.set_checkpoint_root("/ck");
  hello.add_tasks()->set_last_seq(5);
  hello.mutable_tasks(0)->set_first_unacked_seq(6);
  EXPECT_THAT(Problem(message), HasSubstr("hello.tasks[0].first_unacked_seq"));
  hello.mutable_tasks(0)->set_first_unacked_seq(5);
  EXPECT_EQ(Problem(message), "");
  hello.mutable_tasks(0)->set_last_seq(int64_t{1} << 62);
  EXPECT_THAT(Problem(message), HasSubstr("hello.tasks[0].last_seq"));
}

TEST(AgentRulesTest, WhatHealthyWorkersSay_Passes) {
  v1::AgentMessage message;
  message.mutable_report()->set_seq(1);
  v1::LogBatch& logs = *message.mutable_report()->mutable_logs();
  for (int i = 0; i < 3000; ++i) {
    logs.add_lines()->set_text("\x1b[32mprogress\r");
  }
  logs.add_lines()->set_text(std::string(16 << 10, 'x'));
  EXPECT_EQ(Problem(message), "");
  v1::StepReport& step = *message.mutable_report()->mutable_step();
  step.set_step(1);
  step.set_loss(std::nan(""));
  step.add_decisions()->set_loss(std::numeric_limits<double>::infinity());
  step.add_worst_tensors()->set_layer(-1);
  EXPECT_EQ(Problem(message), "");
  v1::TaskExit& exit = *message.mutable_report()->mutable_exit();
  exit.set_wait_status(-9);
  exit.mutable_exit()->set_message("line\nline");
  EXPECT_EQ(Problem(message), "");
  v1::AgentMessage answer;
  v1::PathInfo& info = *answer.mutable_inspect_result()->add_paths();
  info.set_path(std::string(4096, 'p'));
  info.set_error(std::string(5000, 'e'));
  EXPECT_EQ(Problem(answer), "");
}

TEST(AgentRulesTest, CheckpointFolders_AreNamesBelowTheRoot) {
  v1::AgentMessage message;
  v1::CheckpointFolder& folder = *message.mutable_checkpoint_folders()->add_folders();
  folder.set_job_id("job-1");
  folder.set_name("step-00000002");
  EXPECT_EQ(Problem(message), "");
  for (const char* name : {"..", ".", "../other", "a/b"}) {
    folder.set_name(name);
    EXPECT_NE(Problem(message), "") << name;
  }
  folder.set_name("");
  for (const char* job : {"..", "", "a/b"}) {
    folder.set_job_id(job);
    EXPECT_NE(Problem(message), "") << job;
  }
}

TEST(AgentRulesTest, CleanPaths) {
  EXPECT_TRUE(IsCleanPath("/"));
  EXPECT_TRUE(IsCleanPath("/a/b.c/..d"));
  for (const char* path : {"", "a", "//a", "/a/", "/a/../b", "/..", "/a/./b", "/."}) {
    EXPECT_FALSE(IsCleanPath(path)) << path;
  }
}

}  // namespace
}  // namespace hearth::coordinator
