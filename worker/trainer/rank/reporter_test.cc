#include "worker/trainer/rank/reporter.h"

#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/trainer/one_rank.h"
#include "tests/support/trainer/test_run.h"

namespace hearth::trainer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<Decision> OneDecision(int64_t step) {
  Decision decision;
  decision.step = step;
  decision.cause = Verdict::kSpike;
  decision.action = Action::kRedo;
  decision.from = "fp8";
  decision.to = "bf16";
  return {decision};
}

class ReporterTest : public testing::Test {
 protected:
  void Open(int rank_number) {
    one_.emplace(SmallJob(data_.path()), Env::Real(), rank_number);
    reporter_.emplace(one_->rank, one_->meeting, one_->data, one_->session);
  }
  void ReportStep(std::optional<double> loss = std::nullopt, int64_t skipped = 0) {
    reporter_->Report(one_->Step(), loss, skipped);
  }

  TempDir data_;
  std::optional<OpenRank> one_;
  std::optional<Reporter> reporter_;
};

TEST_F(ReporterTest, Report_OfRank0_HasWhatTheRankKnowsOfTheStep) {
  Open(0);
  reporter_->Announce();
  ReportStep(2.5, 3);
  ASSERT_EQ(one_->link.steps.size(), 1U);
  const v1::StepReport& report = one_->link.steps[0];
  EXPECT_EQ(report.step(), 1);
  EXPECT_EQ(report.epoch(), 1);
  EXPECT_EQ(report.recipe(), "fp32");
  EXPECT_EQ(report.validation_loss(), 2.5);
  EXPECT_EQ(report.skipped_checkpoints(), 3);
  EXPECT_EQ(report.time().seconds(), absl::ToUnixSeconds(one_->clock.Now()));
  EXPECT_GT(report.memory_bytes(), 0);
  EXPECT_EQ(one_->link.run_info.start_step(), 0);
  EXPECT_EQ(one_->link.run_info.global_batch_tokens(), 128);
  EXPECT_TRUE(one_->link.run_info.deterministic()) << "the CPU always is";
}

// The other ranks say how fast they are, and nothing that rank 0 says for all.
TEST_F(ReporterTest, Report_OfAnotherRank_IsItsProgressAlone) {
  Open(1);
  std::vector<Decision> decisions = OneDecision(1);
  reporter_->NoteDecisions(decisions);
  reporter_->NoteStep(1, true);
  ReportStep(2.5);
  EXPECT_THAT(one_->link.progress, ElementsAre(1));
  EXPECT_THAT(one_->link.steps, IsEmpty());
  EXPECT_THAT(one_->link.logs, IsEmpty());
  v1::TrainerExit exit;
  reporter_->AddDecisions(exit);
  EXPECT_EQ(exit.decisions_size(), 0);
}

TEST_F(ReporterTest, Progress_IsSentOnceASecond) {
  Open(0);
  ReportStep();
  one_->clock.Advance(absl::Milliseconds(999));
  ReportStep();
  one_->clock.Advance(absl::Milliseconds(1));
  ReportStep();
  EXPECT_THAT(one_->link.progress, ElementsAre(1, 3));
  EXPECT_EQ(one_->link.steps.size(), 3U) << "each step is reported all the same";
}

// Each decision is told once: in the next report, or with the exit if no report follows.
TEST_F(ReporterTest, Decisions_AreToldOnce) {
  Open(0);
  std::vector<Decision> decisions = OneDecision(1);
  reporter_->NoteDecisions(decisions);
  EXPECT_THAT(one_->link.logs, ElementsAre(testing::StartsWith("warning: ")));
  ReportStep();
  ReportStep();
  ASSERT_EQ(one_->link.steps.size(), 2U);
  ASSERT_EQ(one_->link.steps[0].decisions_size(), 1);
  EXPECT_EQ(one_->link.steps[0].decisions(0).to(), "bf16");
  EXPECT_EQ(one_->link.steps[1].decisions_size(), 0);
  decisions = OneDecision(3);
  reporter_->NoteDecisions(decisions);
  v1::TrainerExit exit;
  reporter_->AddDecisions(exit);
  ASSERT_EQ(exit.decisions_size(), 1);
  EXPECT_EQ(exit.decisions(0).step(), 3);
}

TEST_F(ReporterTest, NoteStep_TimesTheFirstStepOfAResumedRun) {
  Open(0);
  one_->clock.Advance(absl::Seconds(4));
  reporter_->NoteStep(8, true);
  one_->clock.Advance(absl::Seconds(4));
  reporter_->NoteStep(9, true);
  EXPECT_THAT(one_->link.logs, ElementsAre(HasSubstr("resumed: step 8 is done 4.00 s")));
  ReportStep();
  EXPECT_EQ(one_->link.steps.back().resume_seconds(), 4);
}

TEST_F(ReporterTest, NoteStep_OfAFreshRun_SaysNothing) {
  Open(0);
  one_->clock.Advance(absl::Seconds(4));
  reporter_->NoteStep(1, false);
  reporter_->NoteStep(2, true);
  EXPECT_THAT(one_->link.logs, IsEmpty());
}

TEST_F(ReporterTest, WarnIfNotExact_NamesWhatDiffers) {
  Open(0);
  CheckpointMeta meta;
  meta.world_size = 1;
  meta.micro_batch_size = 4;
  meta.global_batch_tokens = 128;
  reporter_->WarnIfNotExact(meta);
  ASSERT_FALSE(one_->link.logs.empty());
  EXPECT_EQ(one_->link.logs[0],
            "warning: resume is not bit-exact: the micro-batch size was 4, is 2");
}

}  // namespace
}  // namespace hearth::trainer
