
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/common/temp_dir.h"
#include "worker/trainer/link/link.h"

namespace hearth::trainer {
namespace {

using ::testing::HasSubstr;

class StandaloneLinkTest : public ::testing::Test {
 protected:
  std::unique_ptr<StandaloneLink> Open(int64_t resume_step) {
    v1::Task task;
    task.set_resume_step(resume_step);
    task.mutable_spec()->mutable_train()->set_steps(9);
    auto link = NewStandaloneLink(task, dir_, /*quiet=*/true);
    EXPECT_TRUE(link.ok()) << link.status();
    return *std::move(link);
  }

  static void Report(Link& link, int64_t step, double loss) {
    v1::StepReport report;
    report.set_step(step);
    report.set_loss(loss);
    link.SendStep(report);
  }

  std::vector<std::string> Lines() {
    const std::string text = *Env::Real().ReadFile(dir_ + "/metrics.jsonl");
    return absl::StrSplit(text, '\n', absl::SkipEmpty());
  }

  const TempDir temp_;
  const std::string dir_ = temp_.path();
};

TEST_F(StandaloneLinkTest, Resume_RewindsTheMetrics) {
  {
    const auto link = Open(0);
    for (int64_t step = 1; step <= 5; ++step) {
      Report(*link, step, 3.5);
    }
  }
  {
    const auto link = Open(3);
    Report(*link, 4, 2.5);
  }
  const auto lines = Lines();
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_THAT(lines[2], HasSubstr("\"step\":\"3\""));
  EXPECT_THAT(lines[3], HasSubstr("\"loss\":2.5"));
  Open(0);
  EXPECT_TRUE(Lines().empty());
}

TEST_F(StandaloneLinkTest, RequestControl_IsTakenOnce) {
  const auto link = Open(0);
  link->RequestControl(v1::CONTROL_BIT_STOP);
  EXPECT_EQ(link->TakeControl(), 1u << v1::CONTROL_BIT_STOP);
  EXPECT_EQ(link->TakeControl(), 0u);
}

TEST_F(StandaloneLinkTest, KeyValues_AreLocal) {
  const auto link = Open(0);
  ASSERT_TRUE(link->Put("k", "v").ok());
  EXPECT_EQ(*link->Wait("k", absl::ZeroDuration()), "v");
  v1::TrainerExit exit;
  link->SendExit(exit);
}

TEST_F(StandaloneLinkTest, RunInfoAndExit_AreFilesOfThisRunAlone) {
  {
    const auto link = Open(0);
    v1::RunInfo info;
    info.set_recipe_execution("emulated");
    link->SendRunInfo(info);
    v1::TrainerExit exit;
    exit.set_reason(v1::EXIT_REASON_NUMERICAL);
    exit.set_message("no good");
    link->SendExit(exit);
  }
  EXPECT_THAT(*Env::Real().ReadFile(dir_ + "/run.json"),
              HasSubstr("\"recipe_execution\":\"emulated\""));
  EXPECT_THAT(*Env::Real().ReadFile(dir_ + "/exit.json"),
              AllOf(HasSubstr("EXIT_REASON_NUMERICAL"), HasSubstr("no good")));
  v1::PrecisionTrial trial;
  trial.set_chosen("fp8");
  Open(0)->SendTrial(trial);
  Open(5);
  EXPECT_THAT(*Env::Real().ReadFile(dir_ + "/trial.json"), HasSubstr("\"chosen\":\"fp8\""))
      << "a resumed run holds no other";
  Open(0);
  EXPECT_FALSE(Env::Real().Exists(dir_ + "/trial.json"));
  EXPECT_FALSE(Env::Real().Exists(dir_ + "/run.json"));
  EXPECT_FALSE(Env::Real().Exists(dir_ + "/exit.json"));
}

TEST_F(StandaloneLinkTest, UnwritableFolder_IsAnError) {
  EXPECT_FALSE(NewStandaloneLink(v1::Task(), "/proc/none", true).ok());
}

}  // namespace
}  // namespace hearth::trainer
