#include "worker/trainer/rank/rank.h"

#include <cmath>
#include <map>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "common/base/system.h"
#include "common/fault/fault.h"
#include "common/hf/hf_config.h"
#include "common/io/sha256.h"
#include "common/spec/objective/objective_table.h"
#include "common/spec/optimizer/optimizer_table.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/trainer/test_link.h"
#include "tests/support/trainer/test_recipes.h"
#include "tests/support/trainer/test_run.h"
#include "worker/trainer/checkpoint/checkpoint.h"
#include "worker/trainer/checkpoint/folder_weights.h"
#include "worker/trainer/generate/generator.h"
#include "worker/trainer/rank/evaluation/forward_model.h"

namespace hearth::trainer {
namespace {

std::string Digest(const std::string& checkpoint) {
  return *Sha256HexOfFile(Env::Real(), checkpoint + "/model.safetensors") +
         *Sha256HexOfFile(Env::Real(), checkpoint + "/state/tensors.safetensors");
}

class RunTest : public testing::Test {
 protected:
  v1::JobSpec Job(const std::string& recipe = "bf16") {
    v1::JobSpec spec = SmallJob(dir_.path(), "qwen3");
    spec.mutable_precision()->set_recipe(recipe);
    spec.mutable_model()->set_dropout(0.1);
    if (spec::FindRecipe(recipe)->quantised()) {  // sizes in multiples of 16
      spec.mutable_model()->set_head_dim(8);
      spec.mutable_model()->set_ffn_hidden(32);
    }
    spec.mutable_train()->set_steps(12);
    spec.mutable_train()->set_eval_every(5);
    spec.mutable_train()->set_spike_sigma(50);
    spec.mutable_train()->set_spike_window(8);
    return spec;
  }

  // A job that may start from a model folder.
  v1::JobSpec JobForFolders() {
    v1::JobSpec spec = Job("fp32");
    spec.mutable_model()->set_dropout(0);
    return spec;
  }

  // `spec`, from the weights of what `maker` has trained.
  static v1::JobSpec From(const FakeLink& maker, v1::JobSpec spec) {
    spec.mutable_model()->set_from(maker.checkpoints[0].path());
    return spec;
  }

  // A run that is paused after step 7 and resumed takes the steps of one that is not.
  void ExpectResumeIsExact(const v1::JobSpec& spec, const std::string& root) {
    FakeLink whole(MakeTask(spec, root + "/whole"), store_);
    ASSERT_EQ(RunTo(whole).reason(), v1::EXIT_REASON_FINISHED);

    FakeLink first(MakeTask(spec, root + "/e1"), store_);
    first.AskAt(7, v1::CONTROL_BIT_PAUSE);
    const v1::TrainerExit paused = RunTo(first);
    EXPECT_EQ(paused.reason(), v1::EXIT_REASON_PAUSED);
    EXPECT_EQ(paused.step(), 7);
    ASSERT_EQ(first.checkpoints.size(), 1U);

    v1::Task task = MakeTask(spec, root + "/e2");
    ResumeFrom(first.checkpoints[0], task);
    FakeLink second(task, store_);
    EXPECT_EQ(RunTo(second).reason(), v1::EXIT_REASON_FINISHED);
    EXPECT_EQ(second.run_info.start_step(), 7);
    ASSERT_EQ(second.steps.size(), 5U);
    for (size_t i = 0; i < 5; ++i) {
      EXPECT_EQ(second.steps[i].loss(), whole.steps[i + 7].loss());
      EXPECT_EQ(second.steps[i].grad_norm(), whole.steps[i + 7].grad_norm());
    }
    EXPECT_EQ(Digest(second.checkpoints.back().path()), Digest(whole.checkpoints.back().path()));
  }

  TempDir dir_;
  LocalKeyValueStore store_;
};

TEST_F(RunTest, RunRank_ToTheEnd_ReportsEveryStepAndTheFinalCheckpoint) {
  FakeLink link(MakeTask(Job(), dir_.path() + "/c"), store_);
  const v1::TrainerExit exit = RunTo(link);
  EXPECT_EQ(exit.reason(), v1::EXIT_REASON_FINISHED) << exit.message();
  EXPECT_EQ(exit.step(), 12);
  EXPECT_EQ(exit.checkpoint_step(), 12);
  ASSERT_EQ(link.steps.size(), 12U);
  for (size_t i = 0; i < link.steps.size(); ++i) {
    EXPECT_EQ(link.steps[i].step(), static_cast<int64_t>(i + 1));
    EXPECT_EQ(link.steps[i].tokens(), static_cast<int64_t>(i + 1) * 128);
    const bool evaluates = i == 0 || i + 1 == 5 || i + 1 == 10 || i + 1 == 12;
    EXPECT_EQ(link.steps[i].has_validation_loss(), evaluates) << i + 1;
    EXPECT_GT(link.steps[i].memory_bytes(), 0);
  }
  ASSERT_EQ(link.checkpoints.size(), 1U);
  EXPECT_EQ(link.checkpoints[0].step(), 12);
  EXPECT_EQ(link.run_info.micro_batch_size(), 2);
  EXPECT_EQ(link.run_info.recipe_execution(), "emulated");
  EXPECT_EQ(link.exits.size(), 1U);
}

TEST_F(RunTest, RunRank_PausedAndResumed_EqualsNeverStopped) {
  // Those with block scales want larger extents: block_recipe_test.cc.
  for (const std::string& recipe :
       RecipesWhere([](const spec::Recipe& r) { return !r.column_scales(); })) {
    SCOPED_TRACE(recipe);
    ExpectResumeIsExact(Job(recipe), dir_.path() + "/" + recipe);
  }
}

TEST_F(RunTest, RunRank_PackedDocumentsPausedAndResumed_EqualsNeverStopped) {
  v1::JobSpec spec = Job();
  const v1::JobSpec documents = DocumentJob(dir_.path(), "qwen3");
  *spec.mutable_data() = documents.data();
  ExpectResumeIsExact(spec, dir_.path() + "/documents");
}

TEST_F(RunTest, RunRank_EveryOptimizerPausedAndResumed_EqualsNeverStopped) {
  for (const spec::OptimizerRow& row : spec::Optimizers()) {
    const v1::JobSpec spec = WithOptimizer(Job(), row.name);
    SCOPED_TRACE(spec.optimizer().name());
    ExpectResumeIsExact(spec, dir_.path() + "/" + spec.optimizer().name());
  }
}

TEST_F(RunTest, RunRank_ChatsPausedAndResumed_EqualsNeverStopped) {
  v1::JobSpec spec = Job();
  *spec.mutable_data() = ChatJob(dir_.path(), "qwen3").data();
  spec.set_task("sft");
  ExpectResumeIsExact(spec, dir_.path() + "/chats");
}

TEST(RunsTaskTest, EveryObjective_HasARun) {
  for (const spec::ObjectiveRow& row : spec::Objectives()) {
    EXPECT_TRUE(RunsTask(row.kind)) << row.name;
  }
}

TEST_F(RunTest, RunRank_PretrainOnChats_SaysThatAllTokensCount) {
  v1::JobSpec spec = Job("fp32");
  *spec.mutable_data() = ChatJob(dir_.path(), "qwen3").data();
  FakeLink link(MakeTask(spec, dir_.path() + "/plain"), store_);
  ASSERT_EQ(RunTo(link).reason(), v1::EXIT_REASON_FINISHED);
  EXPECT_THAT(link.logs,
              testing::Contains(testing::HasSubstr("task: pretrain trains on all tokens")));
}

TEST_F(RunTest, OpenForwardModel_OfPackedDocuments_EvaluatesAsTheJobDid) {
  v1::JobSpec spec = Job("fp32");
  *spec.mutable_data() = DocumentJob(dir_.path(), "qwen3").data();
  FakeLink maker(MakeTask(spec, dir_.path() + "/made"), store_);
  ASSERT_EQ(RunTo(maker).reason(), v1::EXIT_REASON_FINISHED);
  ForwardModelOptions folder;
  folder.path = maker.checkpoints.back().path();
  folder.micro_batch = 4;
  const auto model = OpenForwardModel(folder);
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  const auto& engine = model->engine;
  const v1::DataSpec& data = engine->options().spec.data();
  EXPECT_EQ(spec::PackingOf(data), spec::Packing::kBestFit);
  EXPECT_TRUE(engine->documents());
  const auto loader = OpenLoader(spec, spec.data().validation(), false, Env::Real());
  ASSERT_TRUE(loader.ok()) << loader.status().ToString();
  LossSums sums;
  for (int64_t first = 0; first < 16; first += folder.micro_batch) {
    ASSERT_TRUE((*loader)->Fill(first, folder.micro_batch, engine->model().batch()).ok());
    ASSERT_TRUE(engine->model().ForwardLoss(engine->exec(), sums).ok());
  }
  EXPECT_NEAR(sums.loss / sums.weight / maker.steps.back().validation_loss(), 1.0, 1e-5);
}

TEST_F(RunTest, RunRank_TornCheckpoint_FallsBackToTheOneBeforeAndSaysSo) {
  v1::JobSpec spec = Job();
  spec.mutable_checkpoint()->set_every_steps(4);
  FakeLink first(MakeTask(spec, dir_.path() + "/c"), store_);
  ASSERT_EQ(RunTo(first).reason(), v1::EXIT_REASON_FINISHED);
  ASSERT_EQ(first.checkpoints.size(), 3U);
  const std::string torn = first.checkpoints[2].path();
  std::filesystem::resize_file(torn + "/model.safetensors", 100);
  v1::Task task = MakeTask(spec, dir_.path() + "/d");
  task.set_resume_path(torn);
  v1::Checkpoint& earlier = *task.add_earlier_checkpoints();
  earlier.set_path(first.checkpoints[1].path());
  earlier.set_step(8);
  FakeLink second(task, store_);
  EXPECT_EQ(RunTo(second).reason(), v1::EXIT_REASON_FINISHED);
  EXPECT_EQ(second.run_info.start_step(), 8);
  ASSERT_FALSE(second.logs.empty());
  EXPECT_NE(second.logs[0].find("warning"), std::string::npos);
}

TEST_F(RunTest, RunRank_TwoRanksOverGloo_BothFinishWithOneCurve) {
  const v1::JobSpec spec = Job("fp32");
  FakeLink solo(MakeTask(spec, dir_.path() + "/solo"), store_);
  ASSERT_EQ(RunTo(solo).reason(), v1::EXIT_REASON_FINISHED);
  FakeLink leader(MakeTask(spec, dir_.path() + "/duo", 0, 2), store_);
  FakeLink follower(MakeTask(spec, dir_.path() + "/duo", 1, 2), store_);
  leader.AskAt(9, v1::CONTROL_BIT_SAVE);
  const auto [exit, follower_exit] = RunBoth(leader, follower);
  EXPECT_EQ(exit.reason(), v1::EXIT_REASON_FINISHED) << exit.message();
  EXPECT_EQ(follower_exit.reason(), v1::EXIT_REASON_FINISHED) << follower_exit.message();
  EXPECT_EQ(leader.run_info.comm(), "gloo");
  EXPECT_TRUE(follower.steps.empty());
  EXPECT_FALSE(follower.progress.empty());
  EXPECT_EQ(leader.checkpoints.size(), 2U);
  ASSERT_EQ(leader.steps.size(), solo.steps.size());
  for (size_t i = 0; i < solo.steps.size(); ++i) {
    EXPECT_NEAR(leader.steps[i].loss() / solo.steps[i].loss(), 1.0, 1e-5) << "step " << i + 1;
  }
  EXPECT_NEAR(leader.steps.back().validation_loss() / solo.steps.back().validation_loss(), 1.0,
              1e-5);
}

TEST_F(RunTest, RunRank_StopAskedOfTheFollower_StopsBothAtOneStep) {
  const v1::JobSpec spec = Job("fp32");
  FakeLink leader(MakeTask(spec, dir_.path() + "/duo", 0, 2), store_);
  FakeLink follower(MakeTask(spec, dir_.path() + "/duo", 1, 2), store_);
  follower.AskAt(6, v1::CONTROL_BIT_STOP);
  const auto [exit, follower_exit] = RunBoth(leader, follower);
  EXPECT_EQ(exit.reason(), v1::EXIT_REASON_STOPPED);
  EXPECT_EQ(follower_exit.reason(), v1::EXIT_REASON_STOPPED);
  EXPECT_EQ(exit.step(), 6);
  EXPECT_EQ(follower_exit.step(), 6);
  EXPECT_EQ(exit.checkpoint_step(), 6);
}

TEST_F(RunTest, RunRank_DivergingJob_EndsAsNumerical) {
  v1::JobSpec spec = Job("fp32");
  spec.mutable_optimizer()->set_lr(1e36);
  spec.mutable_schedule()->set_warmup_steps(0);
  FakeLink link(MakeTask(spec, dir_.path() + "/c"), store_);
  const v1::TrainerExit exit = RunTo(link);
  EXPECT_EQ(exit.reason(), v1::EXIT_REASON_NUMERICAL) << exit.message();
  EXPECT_NE(exit.message().find("not finite"), std::string::npos) << exit.message();
}

TEST_F(RunTest, RunRank_BadInput_NamesTheCulprit) {
  v1::JobSpec token = Job();
  token.mutable_model()->set_vocab(20);
  FakeLink small_vocab(MakeTask(token, dir_.path() + "/c"), store_);
  EXPECT_EQ(RunTo(small_vocab).reason(), v1::EXIT_REASON_BAD_DATA);
  EXPECT_NE(small_vocab.exits[0].message().find("train.bin"), std::string::npos)
      << small_vocab.exits[0].message();

  v1::JobSpec missing = Job();
  missing.mutable_data()->mutable_train(0)->set_path("/nowhere/train.bin");
  FakeLink no_data(MakeTask(missing, dir_.path() + "/c"), store_);
  EXPECT_EQ(RunTo(no_data).reason(), v1::EXIT_REASON_BAD_DATA);
  EXPECT_NE(no_data.exits[0].message().find("/nowhere/train.bin"), std::string::npos);

  FakeLink maker(MakeTask(Job(), dir_.path() + "/made"), store_);
  ASSERT_EQ(RunTo(maker).reason(), v1::EXIT_REASON_FINISHED);
  v1::JobSpec wider = Job();
  wider.mutable_model()->set_ffn_hidden(32);
  v1::Task task = MakeTask(wider, dir_.path() + "/c");
  task.set_resume_path(maker.checkpoints[0].path());
  FakeLink other_model(task, store_);
  EXPECT_EQ(RunTo(other_model).reason(), v1::EXIT_REASON_BAD_DATA);
  EXPECT_NE(other_model.exits[0].message().find("ffn_hidden"), std::string::npos)
      << other_model.exits[0].message();
}

TEST_F(RunTest, RunRank_FromModelFolder_StartsWithItsWeights) {
  const v1::JobSpec spec = JobForFolders();
  FakeLink maker(MakeTask(spec, dir_.path() + "/made"), store_);
  ASSERT_EQ(RunTo(maker).reason(), v1::EXIT_REASON_FINISHED);
  v1::JobSpec from = From(maker, spec);
  from.mutable_train()->set_steps(1);
  FakeLink link(MakeTask(from, dir_.path() + "/c"), store_);
  ASSERT_EQ(RunTo(link).reason(), v1::EXIT_REASON_FINISHED) << link.exits[0].message();
  EXPECT_LT(link.steps[0].loss(), 0.9 * maker.steps[0].loss());
}

// What fails after the files were read is not the data's fault: elsewhere the job may run.
TEST_F(RunTest, RunRank_WeightsThatDoNotReachTheDevice_AreNotBadData) {
  const v1::JobSpec spec = JobForFolders();
  FakeLink maker(MakeTask(spec, dir_.path() + "/made"), store_);
  ASSERT_EQ(RunTo(maker).reason(), v1::EXIT_REASON_FINISHED);
  v1::JobSpec from = From(maker, spec);
  v1::Task resumed = MakeTask(spec, dir_.path() + "/c");
  ResumeFrom(maker.checkpoints[0], resumed);
  for (const v1::Task& task : {MakeTask(from, dir_.path() + "/c"), resumed}) {
    ASSERT_TRUE(fault::Configure("trainer.upload=error").ok());
    FakeLink link(task, store_);
    const v1::TrainerExit exit = RunTo(link);
    EXPECT_EQ(fault::Hits("trainer.upload"), 1);
    EXPECT_TRUE(fault::Configure("").ok());
    EXPECT_EQ(exit.reason(), v1::EXIT_REASON_INTERNAL) << exit.message();
  }
  from.mutable_model()->set_from(dir_.path() + "/nothing");
  FakeLink unread(MakeTask(from, dir_.path() + "/c"), store_);
  EXPECT_EQ(RunTo(unread).reason(), v1::EXIT_REASON_BAD_DATA) << unread.exits[0].message();
}

TEST_F(RunTest, RunRank_BatchBeyondTheMachine_IsABadSpec) {
  v1::JobSpec spec = Job("fp32");
  SetEnv("HEARTH_MEMORY_BYTES", "1000");
  FakeLink link(MakeTask(spec, dir_.path() + "/c"), store_);
  const v1::TrainerExit exit = RunTo(link);
  UnsetEnv("HEARTH_MEMORY_BYTES");
  EXPECT_EQ(exit.reason(), v1::EXIT_REASON_BAD_SPEC) << exit.message();
  EXPECT_THAT(exit.message(), testing::HasSubstr("batch.micro_batch_size 2 needs "));
  EXPECT_THAT(exit.message(), testing::HasSubstr(" of memory, this machine has 1000 B"));
  EXPECT_THAT(exit.message(), testing::HasSubstr("recompute: block would need less"));
}

TEST_F(RunTest, Generator_OfACheckpoint_WritesTheTrainedPattern) {
  v1::JobSpec spec = Job("fp32");
  spec.mutable_model()->set_dropout(0);
  spec.mutable_train()->set_steps(80);
  FakeLink maker(MakeTask(spec, dir_.path() + "/made"), store_);
  ASSERT_EQ(RunTo(maker).reason(), v1::EXIT_REASON_FINISHED);
  const std::string folder = maker.checkpoints.back().path();
  GeneratorOptions options;
  options.model = *hf::ReadHfConfig(folder, Env::Real());
  options.recipe = "fp32";
  options.prompt = 3;
  options.length = 23;
  options.rule.temperature = 0;
  const auto generator = Generator::Create(options);
  ASSERT_TRUE(generator.ok()) << generator.status().ToString();
  ASSERT_TRUE(
      LoadFolderWeights(Env::Real(), folder, (*generator)->exec(), (*generator)->parameters())
          .ok());
  const std::vector<int32_t> prompt = {1, 4, 7};
  ASSERT_TRUE((*generator)->Begin({{prompt, 0, 20}}).ok());
  int32_t last = prompt.back();
  int pattern = 0;
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(i == 0 || (*generator)->Launch().ok());
    const int32_t token = (*generator)->Take()->tokens[0];
    pattern += token == (last + 3) % 37;
    last = token;
  }
  EXPECT_GE(pattern, 16);
}

}  // namespace
}  // namespace hearth::trainer
