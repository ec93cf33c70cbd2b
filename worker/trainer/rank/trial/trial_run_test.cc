// Jobs with precision.trial: what is chosen, and that the choice is made once, alike on all ranks,
// and leaves no trace in the bits of the job that follows.
#include "worker/trainer/rank/trial/trial_run.h"

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/fault/fault.h"
#include "common/io/sha256.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/trainer/test_link.h"
#include "tests/support/trainer/test_run.h"
#include "worker/trainer/rank/rank.h"

namespace hearth::trainer {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr int kSteps = 16;
constexpr int kTrialSteps = 10;

// "recipe" of each run, then ">" and what was chosen.
std::vector<std::string> Course(const v1::PrecisionTrial& trial) {
  std::vector<std::string> out;
  for (const v1::PrecisionTrialRun& run : trial.runs()) {
    out.push_back(run.recipe());
  }
  out.push_back(">" + trial.chosen());
  return out;
}

std::string Digest(const FakeLink& link) {
  const std::string& path = link.checkpoints.back().path();
  return *Sha256HexOfFile(Env::Real(), path + "/model.safetensors") +
         *Sha256HexOfFile(Env::Real(), path + "/state/tensors.safetensors");
}

void ExpectSameRun(const FakeLink& one, const FakeLink& other) {
  ASSERT_EQ(one.steps.size(), other.steps.size());
  for (size_t i = 0; i < one.steps.size(); ++i) {
    EXPECT_EQ(one.steps[i].loss(), other.steps[i].loss()) << i + 1;
    EXPECT_EQ(one.steps[i].recipe(), other.steps[i].recipe()) << i + 1;
  }
  EXPECT_EQ(Digest(one), Digest(other));
}

class TrialRunTest : public testing::Test {
 protected:
  ~TrialRunTest() override { EXPECT_TRUE(fault::Configure("").ok()); }

  // A job without a trial.
  v1::JobSpec Job(const std::string& recipe) {
    v1::JobSpec spec = SmallJob(dir_.path(), "qwen3");
    spec.mutable_model()->set_head_dim(8);
    spec.mutable_model()->set_ffn_hidden(32);
    spec.mutable_model()->set_dropout(0.1);
    spec.mutable_precision()->set_recipe(recipe);
    if (recipe != "bf16") {
      spec.mutable_precision()->add_fallback("bf16");
    }
    spec.mutable_precision()->set_fallback_after(2);
    spec.mutable_train()->set_steps(kSteps);
    return spec;
  }

  v1::JobSpec WithTrial(double max_gap, const std::string& recipe = "fp8") {
    v1::JobSpec spec = Job(recipe);
    spec.mutable_precision()->mutable_trial()->set_steps(kTrialSteps);
    spec.mutable_precision()->mutable_trial()->set_max_gap(max_gap);
    return spec;
  }

  v1::Task Task(const v1::JobSpec& spec) {
    return MakeTask(spec, dir_.path() + "/run" + std::to_string(runs_++));
  }

  std::unique_ptr<FakeLink> Run(const v1::Task& task) {
    auto link = std::make_unique<FakeLink>(task, store_);
    RunTo(*link);
    return link;
  }
  std::unique_ptr<FakeLink> Run(const v1::JobSpec& spec) { return Run(Task(spec)); }

  // `faults`, as in HEARTH_FAULTS, from the end of BF16's run until one is chosen.
  std::unique_ptr<FakeLink> RunSpoiled(const v1::JobSpec& spec, const std::string& faults) {
    auto link = std::make_unique<FakeLink>(Task(spec), store_);
    link->on_trial = [faults](const v1::PrecisionTrial& trial) {
      const bool on = trial.runs_size() == 1;
      EXPECT_TRUE(fault::Configure(on ? faults : "").ok());
    };
    RunTo(*link);
    return link;
  }

  std::pair<std::unique_ptr<FakeLink>, std::unique_ptr<FakeLink>> RunTwo(v1::Task task) {
    LocalKeyValueStore store;
    task.set_world_size(2);
    auto leader = std::make_unique<FakeLink>(task, store);
    task.set_rank(1);
    auto follower = std::make_unique<FakeLink>(task, store);
    std::thread other([&] { RunTo(*follower); });
    RunTo(*leader);
    other.join();
    return {std::move(leader), std::move(follower)};
  }

  TempDir dir_;
  LocalKeyValueStore store_;
  int runs_ = 0;
};

TEST_F(TrialRunTest, CloseEnough_TrainsInItsOwnRecipeAsWithoutATrial) {
  const auto link = Run(WithTrial(1));
  ASSERT_EQ(link->exits[0].reason(), v1::EXIT_REASON_FINISHED) << link->exits[0].message();
  ASSERT_EQ(link->trials.size(), 3U);
  EXPECT_THAT(Course(link->trials[0]), ElementsAre(">"));
  EXPECT_THAT(Course(link->trials[1]), ElementsAre("bf16", ">"));
  EXPECT_THAT(Course(link->trials[2]), ElementsAre("bf16", "fp8", ">fp8"));
  EXPECT_THAT(link->trials[2].text(), HasSubstr("the job trains in fp8"));
  EXPECT_EQ(link->run_info.recipe(), "fp8");
  EXPECT_EQ(link->run_info.start_step(), 0);
  ExpectSameRun(*link, *Run(Job("fp8")));
}

// What a run of the trial says is what the job's own first steps would.
TEST_F(TrialRunTest, Losses_AreThoseOfTheJobsFirstSteps) {
  v1::JobSpec spec = WithTrial(1);
  spec.mutable_train()->set_eval_every(kTrialSteps);
  const auto link = Run(spec);
  for (const v1::PrecisionTrialRun& run : link->trials.back().runs()) {
    v1::JobSpec alone = Job(run.recipe());
    alone.mutable_train()->set_eval_every(kTrialSteps);
    const auto plain = Run(alone);
    EXPECT_EQ(run.training_loss(), plain->steps[kTrialSteps - 1].loss()) << run.recipe();
    EXPECT_EQ(run.held_out_loss(), plain->steps[kTrialSteps - 1].validation_loss()) << run.recipe();
  }
  const auto& runs = link->trials.back().runs();
  EXPECT_DOUBLE_EQ(runs[1].gap(), runs[1].held_out_loss() / runs[0].held_out_loss() - 1);
}

TEST_F(TrialRunTest, Limit_DecidesByTheMeasuredGap) {
  double gap = 0;
  v1::JobSpec spec;
  for (int64_t seed = 1; seed <= 20 && gap <= 0; ++seed) {
    spec = WithTrial(1, "fp8_current");
    spec.mutable_train()->set_seed(seed);
    gap = Run(spec)->trials.back().runs(1).gap();
  }
  ASSERT_GT(gap, 0) << "of 20 seeds";
  spec.mutable_precision()->mutable_trial()->set_max_gap(gap);
  EXPECT_EQ(Run(spec)->trials.back().chosen(), "fp8_current");
  spec.mutable_precision()->mutable_trial()->set_max_gap(gap / 2);
  const auto tight = Run(spec);
  EXPECT_EQ(tight->trials.back().chosen(), "bf16");
  EXPECT_EQ(tight->run_info.recipe(), "bf16");
  v1::JobSpec plain = Job("bf16");
  plain.mutable_train()->set_seed(spec.train().seed());
  ExpectSameRun(*tight, *Run(plain));
}

TEST_F(TrialRunTest, RecipeThatTheGuardStops_IsNotChosen) {
  const auto link = RunSpoiled(WithTrial(1), "trainer.nan_gradient=error@5x9");
  ASSERT_EQ(link->exits[0].reason(), v1::EXIT_REASON_FINISHED) << link->exits[0].message();
  const v1::PrecisionTrial& trial = link->trials.back();
  EXPECT_THAT(Course(trial), ElementsAre("bf16", "fp8", ">bf16"));
  EXPECT_THAT(trial.runs(1).problem(), AllOf(HasSubstr("step 5"), HasSubstr("not finite")));
  EXPECT_FALSE(trial.runs(1).has_gap());
  EXPECT_FALSE(trial.runs(1).has_training_loss());
  EXPECT_EQ(trial.runs(1).skipped_steps(), 2);
  ExpectSameRun(*link, *Run(Job("bf16")));
  EXPECT_EQ(link->steps.back().skipped_steps(), 0) << "the trial's are its own";
}

TEST_F(TrialRunTest, OneRedoneStep_DoesNotDecide_AMoveToAFallbackDoes) {
  const auto once = RunSpoiled(WithTrial(1), "trainer.nan_gradient=error@5");
  EXPECT_EQ(once->trials.back().chosen(), "fp8");
  EXPECT_EQ(once->trials.back().runs(1).redone_steps(), 1);
  const auto twice = RunSpoiled(WithTrial(1), "trainer.nan_gradient=error@5-6");
  EXPECT_EQ(twice->trials.back().chosen(), "bf16");
  EXPECT_THAT(twice->trials.back().runs(1).problem(), HasSubstr("repeated trouble"));
}

TEST_F(TrialRunTest, WithoutAReference_TheJobStops) {
  ASSERT_TRUE(fault::Configure("trainer.nan_gradient=error@5x9").ok());
  const auto link = Run(WithTrial(1));
  EXPECT_EQ(link->exits[0].reason(), v1::EXIT_REASON_NUMERICAL);
  EXPECT_EQ(link->exits[0].step(), 0);
  EXPECT_THAT(link->exits[0].message(),
              AllOf(HasSubstr("compared with bf16"), HasSubstr("step 5")));
  EXPECT_THAT(link->steps, IsEmpty());
}

// Left in any of its runs, between them, or just after it, the trial comes to the same end, and
// what was finished is not done again.
TEST_F(TrialRunTest, LeftAnywhere_EqualsNeverLeft) {
  const v1::JobSpec spec = WithTrial(1);
  const auto whole = Run(spec);
  const std::string decision = whole->trials.back().SerializeAsString();
  struct Case {
    int asked_at;      // launch, counted over the runs
    size_t runs_kept;  // finished by then
  };
  for (const Case& c :
       {Case{1, 0}, Case{4, 0}, Case{10, 1}, Case{11, 1}, Case{15, 1}, Case{20, 2}}) {
    SCOPED_TRACE(c.asked_at);
    FakeLink left(Task(spec), store_);
    left.AskAt(c.asked_at, v1::CONTROL_BIT_PAUSE);
    EXPECT_EQ(RunTo(left).reason(), v1::EXIT_REASON_PAUSED) << left.exits[0].message();
    EXPECT_EQ(left.exits[0].step(), 0);
    EXPECT_THAT(left.steps, IsEmpty());
    EXPECT_THAT(left.checkpoints, IsEmpty());
    ASSERT_EQ(static_cast<size_t>(left.trials.back().runs_size()), c.runs_kept);

    v1::Task task = Task(spec);
    task.set_epoch(2);
    *task.mutable_trial() = left.trials.back();
    const auto again = Run(task);
    ASSERT_EQ(again->exits[0].reason(), v1::EXIT_REASON_FINISHED) << again->exits[0].message();
    const bool decided = c.runs_kept == 2;
    EXPECT_EQ(again->trials.size(), decided ? 0 : 2 - c.runs_kept + (c.runs_kept == 0 ? 1 : 0));
    EXPECT_EQ((decided ? left : *again).trials.back().SerializeAsString(), decision);
    if (c.runs_kept > 0) {
      EXPECT_THAT(again->logs, Not(Contains(HasSubstr("trial of bf16"))));
    }
    ExpectSameRun(*again, *whole);
  }
}

TEST_F(TrialRunTest, UnfinishedOne_BeginsAnewWithAnotherLearningRate) {
  v1::JobSpec spec = WithTrial(1);
  FakeLink left(Task(spec), store_);
  left.AskAt(15, v1::CONTROL_BIT_STOP);
  ASSERT_EQ(RunTo(left).reason(), v1::EXIT_REASON_STOPPED);
  spec.mutable_optimizer()->set_lr(0.02);
  v1::Task task = Task(spec);
  *task.mutable_trial() = left.trials.back();
  const auto again = Run(task);
  EXPECT_THAT(again->logs, Contains(HasSubstr("trial of bf16")));
  ExpectSameRun(*again, *Run(spec));
}

// The checkpoint carries the decision, for trainers that run alone.
TEST_F(TrialRunTest, ResumedFromACheckpoint_GoesOnInTheChosenRecipe) {
  v1::JobSpec spec = WithTrial(1);
  spec.mutable_checkpoint()->set_every_steps(4);
  spec.mutable_checkpoint()->set_keep_last(100);
  const auto whole = RunSpoiled(spec, "trainer.nan_gradient=error@5x9");
  ASSERT_EQ(whole->exits[0].reason(), v1::EXIT_REASON_FINISHED) << whole->exits[0].message();
  v1::Task task = Task(spec);
  task.set_epoch(2);
  task.set_resume_path(whole->checkpoints[1].path());
  task.set_resume_step(8);
  const auto resumed = Run(task);
  ASSERT_EQ(resumed->exits[0].reason(), v1::EXIT_REASON_FINISHED) << resumed->exits[0].message();
  EXPECT_THAT(resumed->trials, IsEmpty());
  EXPECT_EQ(resumed->run_info.recipe(), "bf16");
  ASSERT_EQ(resumed->steps.size(), 8U);
  EXPECT_EQ(resumed->steps.back().loss(), whole->steps.back().loss());
  EXPECT_EQ(Digest(*resumed), Digest(*whole));
  // On two ranks, and from what that run wrote in its turn.
  task.set_checkpoint_dir(dir_.path() + "/two");
  const auto [leader, follower] = RunTwo(task);
  ASSERT_EQ(leader->exits[0].reason(), v1::EXIT_REASON_FINISHED) << leader->exits[0].message();
  EXPECT_EQ(leader->run_info.recipe(), "bf16");
  task.set_resume_path(leader->checkpoints[0].path());
  task.set_resume_step(12);
  const auto back = Run(task);
  EXPECT_EQ(back->run_info.recipe(), "bf16");
  EXPECT_EQ(back->steps.size(), 4U);
}

TEST(TrialOfTest, ReadsWhatLaterVersionsWrite_AndRefusesWhatIsNoTrial) {
  v1::PrecisionTrial trial;
  trial.set_recipe("fp8");
  trial.set_chosen("bf16");
  CheckpointMeta meta;
  EXPECT_FALSE((*TrialOf(meta)).has_value());
  meta.extra_json = R"({"losses": []})";
  EXPECT_FALSE((*TrialOf(meta)).has_value());
  meta.extra_json = R"({"trial": )" + TrialToJson(trial) + "}";
  EXPECT_EQ((*TrialOf(meta))->SerializeAsString(), trial.SerializeAsString());
  meta.extra_json =
      R"({"trial": {"recipe": "fp8", "chosen": "bf16", "later": {"a": 1}, "runs": []}})";
  ASSERT_TRUE(TrialOf(meta).ok()) << TrialOf(meta).status();
  EXPECT_EQ((*TrialOf(meta))->SerializeAsString(), trial.SerializeAsString());
  for (const char* broken : {R"({"trial": "bf16"})", R"({"trial": {"runs": 3}})"}) {
    meta.extra_json = broken;
    EXPECT_EQ(TrialOf(meta).status().code(), absl::StatusCode::kDataLoss) << broken;
  }
}

TEST_F(TrialRunTest, JobThatBeganWithoutOne_IsNotTried) {
  v1::JobSpec spec = Job("fp8");
  spec.mutable_checkpoint()->set_every_steps(8);
  const auto before = Run(spec);
  v1::JobSpec with = WithTrial(1);
  v1::Task task = Task(with);
  task.set_resume_path(before->checkpoints[0].path());
  task.set_resume_step(8);
  const auto resumed = Run(task);
  EXPECT_THAT(resumed->trials, IsEmpty());
  EXPECT_THAT(resumed->logs, Contains(HasSubstr("warning: precision.trial is passed over")));
  EXPECT_EQ(resumed->run_info.recipe(), "fp8");
  EXPECT_EQ(Digest(*resumed), Digest(*before));
}

TEST_F(TrialRunTest, TwoRanksOfWhichOneKnowsTheDecision_BothSaySo) {
  v1::JobSpec spec = Job("fp8");
  spec.mutable_checkpoint()->set_every_steps(8);
  const auto before = Run(spec);
  v1::Task task = Task(WithTrial(1));
  task.set_resume_path(before->checkpoints[0].path());
  task.set_resume_step(8);
  task.set_world_size(2);
  task.mutable_trial()->set_recipe("fp8");
  task.mutable_trial()->set_chosen("bf16");
  LocalKeyValueStore store;
  FakeLink knows(task, store);
  task.set_rank(1);
  task.clear_trial();
  FakeLink does_not(task, store);
  std::thread other([&] { RunTo(does_not); });
  RunTo(knows);
  other.join();
  for (const FakeLink* link : {&knows, &does_not}) {
    EXPECT_EQ(link->exits[0].reason(), v1::EXIT_REASON_COMM);
    EXPECT_THAT(link->exits[0].message(), HasSubstr("some ranks pass precision.trial over"));
  }
}

TEST_F(TrialRunTest, TwoRanks_ChooseAlikeShardedOrNot) {
  for (const char* shard : {"off", "optimizer"}) {
    SCOPED_TRACE(shard);
    v1::JobSpec spec = WithTrial(1);
    spec.mutable_parallel()->set_shard(shard);
    const auto [leader, follower] = RunTwo(Task(spec));
    ASSERT_EQ(leader->exits[0].reason(), v1::EXIT_REASON_FINISHED) << leader->exits[0].message();
    EXPECT_EQ(follower->exits[0].reason(), v1::EXIT_REASON_FINISHED)
        << follower->exits[0].message();
    EXPECT_EQ(leader->trials.back().chosen(), "fp8");
    EXPECT_THAT(follower->trials, IsEmpty()) << "rank 0 alone says so";
    const auto [again, other] = RunTwo(Task(spec));
    EXPECT_EQ(again->trials.back().SerializeAsString(), leader->trials.back().SerializeAsString());
    EXPECT_EQ(again->steps.back().loss(), leader->steps.back().loss());
    // A pause ends the trial on both.
    v1::Task task = Task(spec);
    task.set_world_size(2);
    LocalKeyValueStore store;
    FakeLink asked(task, store);
    asked.AskAt(13, v1::CONTROL_BIT_PAUSE);
    task.set_rank(1);
    FakeLink told(task, store);
    std::thread thread([&] { RunTo(told); });
    RunTo(asked);
    thread.join();
    EXPECT_EQ(asked.exits[0].reason(), v1::EXIT_REASON_PAUSED) << asked.exits[0].message();
    EXPECT_EQ(told.exits[0].reason(), v1::EXIT_REASON_PAUSED) << told.exits[0].message();
  }
}

TEST_F(TrialRunTest, MadeWith_IsTheSameForTheSameAlone) {
  constexpr spec::ShardLevel kOff = spec::ShardLevel::kOff;
  const v1::JobSpec spec = WithTrial(1);
  const std::string digest = TrialMadeWith(spec, 1, kOff, 2);
  v1::JobSpec moved = spec;
  moved.set_name("other");
  moved.mutable_resources()->set_workers(9);
  moved.mutable_checkpoint()->set_every_steps(7);
  EXPECT_EQ(TrialMadeWith(moved, 1, kOff, 2), digest);
  EXPECT_NE(TrialMadeWith(spec, 2, kOff, 2), digest);
  EXPECT_NE(TrialMadeWith(spec, 1, spec::ShardLevel::kOptimizer, 2), digest);
  EXPECT_NE(TrialMadeWith(spec, 1, kOff, 4), digest);
  moved.mutable_train()->set_seed(99);
  EXPECT_NE(TrialMadeWith(moved, 1, kOff, 2), digest);
}

}  // namespace
}  // namespace hearth::trainer
