// Runs in which a product fails on block-scaled matrix units before the first step: they go on
// without these, and say so.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/fault/fault.h"
#include "tests/support/trainer/test_link.h"
#include "tests/support/trainer/test_run.h"

namespace hearth::trainer {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kFault[] = "trainer.native_gemm=error";

class NativeGemmTest : public testing::Test {
 protected:
  ~NativeGemmTest() override { EXPECT_TRUE(fault::Configure("").ok()); }

  v1::JobSpec Job(const std::string& recipe) {
    v1::JobSpec spec = SmallJob(dir_.path(), "qwen3");
    v1::ModelSpec& model = *spec.mutable_model();
    model.set_hidden(32);
    model.set_heads(2);
    model.set_kv_heads(2);
    model.set_head_dim(16);
    model.set_ffn_hidden(32);
    spec.mutable_data()->set_sequence_length(32);
    spec.mutable_batch()->set_micro_batch_size(4);
    spec.mutable_batch()->set_global_batch_tokens(256);
    spec.mutable_precision()->set_recipe(recipe);
    spec.mutable_train()->set_steps(6);
    return spec;
  }

  v1::Task Task(const v1::JobSpec& spec, int rank = 0, int world_size = 1) {
    return MakeTask(spec, dir_.path() + "/run" + std::to_string(runs_), rank, world_size);
  }

  std::unique_ptr<FakeLink> Run(const v1::Task& task, const std::string& faults) {
    EXPECT_TRUE(fault::Configure(faults).ok());
    ++runs_;
    auto link = std::make_unique<FakeLink>(task, store_);
    EXPECT_EQ(RunTo(*link).reason(), v1::EXIT_REASON_FINISHED) << link->exits[0].message();
    return link;
  }

  static std::vector<double> Losses(const FakeLink& link) {
    std::vector<double> losses;
    for (const v1::StepReport& step : link.steps) {
      losses.push_back(step.loss());
    }
    return losses;
  }

  TempDir dir_;
  LocalKeyValueStore store_;
  int runs_ = 0;
};

testing::Matcher<std::string> Warns() {
  return AllOf(StartsWith("warning: "), HasSubstr("without block-scaled matrix units"),
               HasSubstr("trainer.native_gemm"));
}

TEST_F(NativeGemmTest, FailingProduct_IsSaidAndTheRunEndsAsTheCleanOne) {
  for (const char* recipe : {"nvfp4", "fp8"}) {
    SCOPED_TRACE(recipe);
    const auto clean = Run(Task(Job(recipe)), "");
    const auto failed = Run(Task(Job(recipe)), kFault);
    EXPECT_EQ(fault::Hits("trainer.native_gemm"), 1) << "tried again";
    EXPECT_THAT(clean->logs, Each(Not(Warns())));
    EXPECT_THAT(failed->logs, Contains(Warns()).Times(1));
    EXPECT_EQ(failed->run_info.recipe_execution(), "emulated");
    EXPECT_EQ(Losses(*clean).size(), 6U);
    EXPECT_EQ(Losses(*failed), Losses(*clean));
  }
}

TEST_F(NativeGemmTest, NothingQuantised_ReachesNoSuchProduct) {
  const auto run = Run(Task(Job("bf16")), kFault);
  EXPECT_EQ(fault::Hits("trainer.native_gemm"), 0);
  EXPECT_THAT(run->logs, Each(Not(Warns())));
}

TEST_F(NativeGemmTest, Resumed_StateIsThatOfTheCheckpoint) {
  v1::JobSpec spec = Job("nvfp4");
  spec.mutable_checkpoint()->set_every_steps(3);
  const auto whole = Run(Task(spec), "");
  ASSERT_EQ(whole->checkpoints.size(), 2U);
  v1::Task task = Task(spec);
  task.set_epoch(2);
  task.set_resume_path(whole->checkpoints[0].path());
  task.set_resume_step(3);
  const auto resumed = Run(task, kFault);
  EXPECT_THAT(resumed->logs, Contains(Warns()).Times(1));
  const std::vector<double> losses = Losses(*whole);
  EXPECT_EQ(Losses(*resumed), std::vector<double>(losses.begin() + 3, losses.end()));
}

TEST_F(NativeGemmTest, TwoRanks_GoOnTogether) {
  const auto run = [this](const std::string& faults) {
    EXPECT_TRUE(fault::Configure(faults).ok());
    LocalKeyValueStore store;
    ++runs_;
    auto leader = std::make_unique<FakeLink>(Task(Job("nvfp4"), 0, 2), store);
    FakeLink follower(Task(Job("nvfp4"), 1, 2), store);
    v1::TrainerExit exit;
    std::thread other([&] { exit = RunTo(follower); });
    RunTo(*leader);
    other.join();
    EXPECT_EQ(leader->exits[0].reason(), v1::EXIT_REASON_FINISHED) << leader->exits[0].message();
    EXPECT_EQ(exit.reason(), v1::EXIT_REASON_FINISHED) << exit.message();
    return leader;
  };
  const auto clean = run("");
  const auto failed = run(kFault);
  EXPECT_THAT(failed->logs, Contains(Warns()).Times(1));
  EXPECT_EQ(Losses(*failed), Losses(*clean));
}

}  // namespace
}  // namespace hearth::trainer
