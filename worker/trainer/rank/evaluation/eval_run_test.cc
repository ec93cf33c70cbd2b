// A rank of a job of task: eval.
#include "worker/trainer/rank/evaluation/eval_run.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/system.h"
#include "common/dataset/dataset_writer.h"
#include "common/io/faulty_env.h"
#include "common/spec/fields/idle.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/common/temp_dir.h"
#include "tests/support/trainer/test_link.h"
#include "tests/support/trainer/test_run.h"
#include "worker/trainer/pulse/hang_watch.h"
#include "worker/trainer/pulse/pulse.h"
#include "worker/trainer/rank/rank.h"

namespace hearth::trainer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kBatches = 2;    // micro-batches of the held-out data, and global batches of training
constexpr int kSequences = 8;  // of each: 128 tokens

class EvalRunTest : public testing::Test {
 protected:
  // A run with checkpoints of steps 4 and 8, whose held-out losses it knows.
  EvalRunTest() : maker_(MakeTask(Training(), dir_.path() + "/made"), store_) {
    EXPECT_EQ(RunTo(maker_).reason(), v1::EXIT_REASON_FINISHED);
    EXPECT_EQ(maker_.checkpoints.size(), 2U);
  }

  v1::JobSpec Training() {
    v1::JobSpec spec = SmallJob(dir_.path());
    spec.mutable_train()->set_steps(8);
    spec.mutable_train()->set_eval_every(4);
    spec.mutable_train()->set_eval_batches(kBatches);
    spec.mutable_checkpoint()->set_every_steps(4);
    held_out_ = spec.data().validation(0).path();
    return spec;
  }

  v1::Task EvalTask() {
    v1::JobSpec spec;
    spec.set_name("eval");
    spec.set_task("eval");
    spec.mutable_evaluate()->set_job("small");
    spec.mutable_evaluate()->add_data(held_out_);
    spec.mutable_evaluate()->set_batch(kSequences);
    spec.mutable_evaluate()->set_batches(kBatches);
    const absl::Status resolved = spec::ResolveSubmitted(spec);
    EXPECT_TRUE(resolved.ok()) << resolved.ToString();
    v1::Task task = MakeTask(spec, dir_.path() + "/none");
    for (const v1::CheckpointAnnouncement& checkpoint : maker_.checkpoints) {
      v1::Checkpoint& model = *task.add_models();
      model.set_job_id("small");
      model.set_step(checkpoint.step());
      model.set_path(checkpoint.path());
    }
    return task;
  }

  TempDir dir_;
  LocalKeyValueStore store_;
  std::string held_out_;
  FakeLink maker_;
};

TEST_F(EvalRunTest, RunRank_TwoCheckpoints_FindsTheLossesOfTheirTraining) {
  FakeLink link(EvalTask(), store_);
  const v1::TrainerExit exit = RunTo(link);
  EXPECT_EQ(exit.reason(), v1::EXIT_REASON_FINISHED) << exit.message();
  EXPECT_EQ(exit.step(), 2);
  ASSERT_EQ(link.steps.size(), 2U);
  for (size_t i = 0; i < link.steps.size(); ++i) {
    const v1::StepReport& report = link.steps[i];
    EXPECT_EQ(report.step(), static_cast<int64_t>(i + 1));
    ASSERT_EQ(report.held_out_size(), 1);
    EXPECT_EQ(report.held_out(0).source(), held_out_);
    EXPECT_EQ(report.held_out(0).tokens(), kBatches * 128);
    EXPECT_FALSE(report.held_out(0).has_bits_per_byte()) << "a .bin file names no tokenizer";
    const double trained = maker_.steps[4 * (i + 1) - 1].validation_loss();
    EXPECT_NEAR(report.held_out(0).loss() / trained, 1.0, 1e-5);
    EXPECT_EQ(report.validation_loss(), report.held_out(0).loss());
  }
  EXPECT_NE(link.steps[0].validation_loss(), link.steps[1].validation_loss());
  EXPECT_GT(link.run_info.parameters(), 0);
  EXPECT_EQ(link.run_info.recipe(), "fp32");
  EXPECT_THAT(link.phases, ElementsAre("loading", "evaluating"));
  EXPECT_THAT(link.progress, ElementsAre(1, 2));
  EXPECT_THAT(link.logs, testing::Contains(HasSubstr("step 4 of small: " + held_out_ + ": loss ")));
  EXPECT_TRUE(link.checkpoints.empty());
}

TEST_F(EvalRunTest, RunRank_PausedAndResumed_EvaluatesEachModelOnce) {
  FakeLink whole(EvalTask(), store_);
  ASSERT_EQ(RunTo(whole).reason(), v1::EXIT_REASON_FINISHED);
  FakeLink first(EvalTask(), store_);
  // It looks before a model and before each of its batches: this is in the second model.
  first.AskAt(kBatches + 3, v1::CONTROL_BIT_PAUSE);
  const v1::TrainerExit paused = RunTo(first);
  EXPECT_EQ(paused.reason(), v1::EXIT_REASON_PAUSED) << paused.message();
  EXPECT_EQ(paused.step(), 1);
  ASSERT_EQ(first.steps.size(), 1U);

  v1::Task task = EvalTask();
  task.set_epoch(2);
  task.set_resume_step(1);
  FakeLink second(task, store_);
  EXPECT_EQ(RunTo(second).reason(), v1::EXIT_REASON_FINISHED);
  EXPECT_EQ(second.run_info.start_step(), 1);
  ASSERT_EQ(second.steps.size(), 1U);
  EXPECT_EQ(second.steps[0].step(), 2);
  EXPECT_EQ(second.steps[0].validation_loss(), whole.steps[1].validation_loss());

  task.set_resume_step(2);
  FakeLink third(task, store_);
  EXPECT_EQ(RunTo(third).reason(), v1::EXIT_REASON_FINISHED) << "nothing is left";
  EXPECT_TRUE(third.steps.empty());
}

TEST_F(EvalRunTest, RunRank_Stopped_LeavesWithinTheModel) {
  FakeLink link(EvalTask(), store_);
  link.AskAt(2, v1::CONTROL_BIT_STOP);
  const v1::TrainerExit exit = RunTo(link);
  EXPECT_EQ(exit.reason(), v1::EXIT_REASON_STOPPED);
  EXPECT_TRUE(link.steps.empty());
}

// What the rank's pulse shows whenever it looks for what it is asked: before a model, and before
// each batch, when the one before has just ended.
class PulseReader : public FakeLink {
 public:
  PulseReader(v1::Task task, KeyValueStore& store, const Pulse& pulse)
      : FakeLink(std::move(task), store), pulse_(pulse) {}
  uint64_t TakeControl() override {
    readings.push_back(pulse_.Read());
    return FakeLink::TakeControl();
  }

  std::vector<Pulse::Reading> readings;

 private:
  const Pulse& pulse_;
};

TEST_F(EvalRunTest, RunRank_Batches_AreWatchedForHangs) {
  Pulse pulse;
  PulseReader link(EvalTask(), store_, pulse);
  RankOptions options;
  options.link = &link;
  options.pulse = &pulse;
  EXPECT_EQ(RunRank(options).reason(), v1::EXIT_REASON_FINISHED);
  // Two models: a look before each, and one before each of its two batches.
  ASSERT_EQ(link.readings.size(), 6U);
  for (size_t model = 0; model < 2; ++model) {
    const Pulse::Reading& before_first = link.readings[3 * model + 1];
    const Pulse::Reading& in_first = link.readings[3 * model + 2];
    EXPECT_EQ(before_first.activity, Activity::kOther) << "files may take any time";
    EXPECT_EQ(before_first.learned, absl::ZeroDuration()) << "batches of another model";
    EXPECT_EQ(in_first.activity, Activity::kPreparing);
    EXPECT_GT(in_first.learned, absl::ZeroDuration()) << "the first batch is done";
    EXPECT_EQ(in_first.step, static_cast<int64_t>(model)) << "models that are done";
    EXPECT_LT(Allowance(HangLimits(), in_first), absl::InfiniteDuration());
  }
  // The last look of a model is before its last batch; what follows is the next model's.
  EXPECT_EQ(link.readings[3].activity, Activity::kOther);
}

TEST_F(EvalRunTest, RunRank_LaterBatch_HangsAfterAMinute) {
  v1::Task task = EvalTask();
  task.mutable_spec()->mutable_evaluate()->set_batches(3);
  task.mutable_spec()->mutable_evaluate()->set_batch(4);
  Pulse pulse;
  PulseReader link(task, store_, pulse);
  RankOptions options;
  options.link = &link;
  options.pulse = &pulse;
  EXPECT_EQ(RunRank(options).reason(), v1::EXIT_REASON_FINISHED);
  ASSERT_EQ(link.readings.size(), 8U);
  // Before the third batch: in the second one.
  const Pulse::Reading& second = link.readings[3];
  EXPECT_EQ(second.activity, Activity::kEvaluation);
  EXPECT_STREQ(second.what, "a batch of an evaluation");
  HangWatch watch(HangLimits(), nullptr);
  std::string found;
  absl::Duration now;
  for (; found.empty() && now < absl::Minutes(5); now += HangWatch::kPeriod) {
    found = watch.Look(second, now);
  }
  EXPECT_THAT(found, HasSubstr("(a batch of an evaluation; "));
  EXPECT_THAT(found, HasSubstr("the step's thread hangs"));
  EXPECT_LT(now, absl::Seconds(62)) << "a batch took a fraction of a second";
}

TEST_F(EvalRunTest, RunRank_BadModels_EndTheJobAfterTheGoodOnes) {
  v1::Task task = EvalTask();
  task.mutable_models(1)->set_path("/nowhere/step-00000008");
  FakeLink gone(task, store_);
  const v1::TrainerExit exit = RunTo(gone);
  EXPECT_EQ(exit.reason(), v1::EXIT_REASON_BAD_DATA);
  EXPECT_THAT(exit.message(), HasSubstr("/nowhere/step-00000008"));
  EXPECT_EQ(gone.steps.size(), 1U);

  v1::Task average = EvalTask();
  average.mutable_spec()->mutable_evaluate()->set_ema(true);
  FakeLink none(average, store_);
  EXPECT_EQ(RunTo(none).reason(), v1::EXIT_REASON_BAD_DATA) << "train.ema was not set";
  EXPECT_TRUE(none.steps.empty());
}

// A device that cannot be opened may be back when the job starts again: it is not the data's fault.
TEST_F(EvalRunTest, RunRank_DeviceThatCannotBeOpened_IsTheDevicesFault) {
  v1::Task task = EvalTask();
  task.set_device("cuda:7");
  FakeLink link(task, store_);
  const v1::TrainerExit exit = RunTo(link);
  EXPECT_EQ(exit.reason(), v1::EXIT_REASON_DEVICE) << exit.message();
  EXPECT_TRUE(link.steps.empty());
}

// A disk that does not give back the files with `part` in their paths.
class UnreadableFiles : public FaultyEnv {
 public:
  explicit UnreadableFiles(std::string part) : FaultyEnv(Env::Real()), part_(std::move(part)) {}
  absl::StatusOr<std::unique_ptr<MappedFile>> Map(const std::string& path) override {
    return Bad(path) ? Error(path) : FaultyEnv::Map(path);
  }
  absl::StatusOr<std::string> ReadFile(const std::string& path) override {
    return Bad(path) ? Error(path) : FaultyEnv::ReadFile(path);
  }

 private:
  bool Bad(const std::string& path) const { return path.find(part_) != std::string::npos; }
  // As Env::Real() says it.
  static absl::Status Error(const std::string& path) {
    return absl::InternalError("reading " + path + ": Input/output error");
  }

  const std::string part_;
};

TEST_F(EvalRunTest, RunRank_FilesThatCannotBeRead_AreBadData) {
  for (const char* part : {"/config.json", "/model.safetensors", "/val.bin"}) {
    UnreadableFiles env(part);
    FakeLink link(EvalTask(), store_);
    RankOptions options;
    options.link = &link;
    options.env = &env;
    const v1::TrainerExit exit = RunRank(options);
    EXPECT_EQ(exit.reason(), v1::EXIT_REASON_BAD_DATA) << part << ": " << exit.message();
    EXPECT_THAT(exit.message(), HasSubstr(part));
    EXPECT_THAT(exit.message(), HasSubstr("Input/output error"));
  }
}

// A dataset of bytes, except for its last token.
std::string WriteForeignText(const std::string& dir) {
  dataset::DatasetWriter::Options options;
  options.info.vocab = 300;
  options.info.tokenizer.kind = tokenizer::TokenizerKind::kBytes;
  options.info.tokenizer.vocab = 257;
  const std::string path = dir + "/foreign";
  auto writer = dataset::DatasetWriter::Create(path, options);
  EXPECT_TRUE(writer.ok()) << writer.status();
  std::vector<int32_t> tokens(33, 'a');
  tokens.back() = 290;
  EXPECT_TRUE((*writer)->AddDocument(tokens).ok());
  EXPECT_TRUE((*writer)->Finish().ok());
  return path;
}

TEST_F(EvalRunTest, RunRank_TokensThatTheTokenizerLacks_AreBadData) {
  v1::JobSpec spec = Training();
  spec.mutable_model()->set_vocab(300);
  FakeLink maker(MakeTask(spec, dir_.path() + "/wide"), store_);
  ASSERT_EQ(RunTo(maker).reason(), v1::EXIT_REASON_FINISHED);
  v1::Task task = EvalTask();
  task.mutable_models(0)->set_path(maker.checkpoints[0].path());
  task.mutable_spec()->mutable_evaluate()->set_data(0, WriteForeignText(dir_.path()));
  FakeLink link(task, store_);
  const v1::TrainerExit exit = RunTo(link);
  EXPECT_EQ(exit.reason(), v1::EXIT_REASON_BAD_DATA) << exit.message();
  EXPECT_THAT(exit.message(), HasSubstr("/foreign: no text of the tokenizer that it records: "));
  EXPECT_THAT(exit.message(), HasSubstr("token 290 "));
}

// The end of an evaluation on a machine that has only so much memory.
v1::TrainerExit RunWithMemory(const v1::Task& task, KeyValueStore& store, const char* bytes) {
  SetEnv("HEARTH_MEMORY_BYTES", bytes);
  FakeLink link(task, store);
  v1::TrainerExit exit = RunTo(link);
  UnsetEnv("HEARTH_MEMORY_BYTES");
  return exit;
}

TEST_F(EvalRunTest, RunRank_BatchThatNoMemoryHolds_IsABadSpec) {
  v1::Task task = EvalTask();
  task.mutable_spec()->mutable_evaluate()->set_batch(1 << 16);
  const v1::TrainerExit exit = RunWithMemory(task, store_, "4194304");
  EXPECT_EQ(exit.reason(), v1::EXIT_REASON_BAD_SPEC) << exit.message();
  EXPECT_THAT(exit.message(), HasSubstr("evaluate.batch 65536 needs "));
  EXPECT_THAT(exit.message(), HasSubstr("this machine has 4.0 MiB; evaluate.batch: "));
  EXPECT_THAT(exit.message(), HasSubstr(" would fit"));
}

TEST_F(EvalRunTest, RunRank_ModelThatNoMemoryHolds_IsNotAdvisedToRecompute) {
  const v1::TrainerExit exit = RunWithMemory(EvalTask(), store_, "1000");
  EXPECT_EQ(exit.reason(), v1::EXIT_REASON_BAD_SPEC) << exit.message();
  EXPECT_THAT(exit.message(), HasSubstr("not even a micro-batch of 1 would fit: a smaller model or "
                                        "a shorter sequence would need less"));
}

TEST_F(EvalRunTest, RunRank_UnknownTask_IsABadSpec) {
  v1::Task task = EvalTask();
  task.mutable_spec()->set_task("distill");
  FakeLink link(task, store_);
  EXPECT_EQ(RunTo(link).reason(), v1::EXIT_REASON_BAD_SPEC);
  ASSERT_EQ(link.exits.size(), 1U);
  EXPECT_THAT(link.exits[0].message(), HasSubstr("distill"));
}

}  // namespace
}  // namespace hearth::trainer
