// train.samples: what ranks write between steps, and that it changes nothing.
#include "worker/trainer/rank/evaluation/samples.h"

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "common/dataset/dataset_writer.h"
#include "common/spec/resolve/resolve.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/common/temp_dir.h"
#include "tests/support/trainer/one_rank.h"
#include "tests/support/trainer/test_link.h"
#include "tests/support/trainer/test_run.h"
#include "tests/support/trainer/test_shards.h"
#include "worker/trainer/checkpoint/folder_weights.h"
#include "worker/trainer/checkpoint/meta.h"
#include "worker/trainer/generate/text_request.h"
#include "worker/trainer/generate/text_writer.h"

namespace hearth::trainer {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// A dataset that records the tokenizer of bytes.
std::string WriteText(const std::string& dir, std::string_view name, int documents) {
  dataset::DatasetWriter::Options options;
  options.info.vocab = 257;
  options.info.eos = 256;
  options.info.tokenizer.kind = tokenizer::TokenizerKind::kBytes;
  options.info.tokenizer.vocab = 257;
  options.info.tokenizer.eos = 256;
  const std::string path = dir + "/" + std::string(name);
  auto writer = dataset::DatasetWriter::Create(path, options);
  EXPECT_TRUE(writer.ok()) << writer.status();
  const std::string text = "Once upon a time there was a small model that wrote.";
  for (int i = 0; i < documents; ++i) {
    std::vector<int32_t> tokens;
    for (size_t at = 0; at < text.size(); ++at) {
      tokens.push_back(text[(at + static_cast<size_t>(i)) % text.size()]);
    }
    EXPECT_TRUE((*writer)->AddDocument(tokens).ok());
  }
  EXPECT_TRUE((*writer)->Finish().ok());
  return path;
}

v1::TextRequest Request(const std::string& prompt, double temperature, int tokens = 12) {
  v1::TextRequest text;
  text.set_prompt(prompt);
  text.set_temperature(temperature);
  text.set_max_tokens(tokens);
  return text;
}

// Seven steps on text, evaluated after 1, 3, 6 and 7.
v1::JobSpec TextJob(const std::string& dir, const std::string& recipe = "fp32") {
  v1::JobSpec spec = SmallJob(dir);
  spec.mutable_model()->set_vocab(257);
  spec.mutable_data()->mutable_train(0)->set_path(WriteText(dir, "text", 100));
  spec.mutable_data()->mutable_validation(0)->set_path(WriteText(dir, "held_out", 20));
  spec.mutable_train()->set_steps(7);
  spec.mutable_train()->set_eval_every(3);
  spec.mutable_checkpoint()->set_every_steps(3);
  spec.mutable_precision()->set_recipe(recipe);
  spec.mutable_model()->set_head_dim(8);  // FP8 wants multiples of 16
  spec.mutable_model()->set_ffn_hidden(32);
  return spec;
}

v1::JobSpec WithSamples(v1::JobSpec spec) {
  *spec.mutable_train()->add_samples() = Request("Once", 0);
  *spec.mutable_train()->add_samples() = Request("", 1);
  spec.mutable_train()->mutable_samples(1)->set_repetition_penalty(1.5);
  *spec.mutable_train()->add_samples() = Request("upon a time", 0, 5);
  return spec;
}

std::string FileOf(const std::string& path) {
  const auto text = Env::Real().ReadFile(path);
  EXPECT_TRUE(text.ok()) << text.status();
  return text.ok() ? *text : "";
}

// Numbers of the steps, and each file that a checkpoint has of weights and state.
void ExpectSameRun(const FakeLink& a, const FakeLink& b) {
  ASSERT_EQ(a.steps.size(), b.steps.size());
  for (size_t i = 0; i < a.steps.size(); ++i) {
    EXPECT_EQ(a.steps[i].loss(), b.steps[i].loss()) << i;
    EXPECT_EQ(a.steps[i].grad_norm(), b.steps[i].grad_norm()) << i;
    EXPECT_EQ(a.steps[i].validation_loss(), b.steps[i].validation_loss()) << i;
  }
  ASSERT_EQ(a.checkpoints.size(), b.checkpoints.size());
  ASSERT_FALSE(a.checkpoints.empty());
  for (size_t i = 0; i < a.checkpoints.size(); ++i) {
    for (const std::string& file : {std::string("model.safetensors"), std::string(kStateFile)}) {
      EXPECT_TRUE(FileOf(a.checkpoints[i].path() + "/" + file) ==
                  FileOf(b.checkpoints[i].path() + "/" + file))
          << file;
    }
  }
}

std::vector<int64_t> StepsWithSamples(const FakeLink& link) {
  std::vector<int64_t> steps;
  for (const v1::StepReport& report : link.steps) {
    if (!report.samples().empty()) {
      steps.push_back(report.step());
    }
  }
  return steps;
}

// In each way in which weights are kept: narrow formats are values that generating must not round,
// and the average and narrow optimizer state are state beside them.
TEST(SamplesTest, RunRank_WithSamples_TrainsTheSameBits) {
  for (const char* const recipe : {"fp32", "bf16", "fp8"}) {
    SCOPED_TRACE(recipe);
    const TempDir dir;
    v1::JobSpec spec = TextJob(dir.path(), recipe);
    spec.mutable_train()->set_ema(0.9);
    spec.mutable_optimizer()->set_state("int8");
    LocalKeyValueStore store;
    FakeLink without(MakeTask(spec, dir.path() + "/without"), store);
    EXPECT_EQ(RunTo(without).reason(), v1::EXIT_REASON_FINISHED) << without.exits[0].message();
    FakeLink with(MakeTask(WithSamples(spec), dir.path() + "/with"), store);
    EXPECT_EQ(RunTo(with).reason(), v1::EXIT_REASON_FINISHED) << with.exits[0].message();
    EXPECT_THAT(StepsWithSamples(without), IsEmpty());
    EXPECT_THAT(StepsWithSamples(with), ElementsAre(1, 3, 6, 7));
    EXPECT_THAT(with.logs, Not(Contains(HasSubstr(" of 3 samples: "))));
    for (const int64_t step : StepsWithSamples(with)) {
      EXPECT_EQ(with.steps[static_cast<size_t>(step - 1)].samples_size(), 3) << step;
    }
    ExpectSameRun(without, with);
  }
}

class SharedSamplesTest : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Levels, SharedSamplesTest, testing::ValuesIn(DividingShards()));

TEST_P(SharedSamplesTest, RunRank_TwoRanks_RankZeroWritesAndBothTrainOn) {
  const TempDir dir;
  v1::JobSpec spec = TextJob(dir.path());
  spec.mutable_resources()->set_workers(2);
  spec.mutable_parallel()->set_shard(GetParam());
  spec.mutable_checkpoint()->set_every_steps(0);
  const auto run = [&](const v1::JobSpec& job, const std::string& out) {
    auto store = std::make_unique<LocalKeyValueStore>();
    FakeLink leader(MakeTask(job, out, 0, 2), *store);
    FakeLink follower(MakeTask(job, out, 1, 2), *store);
    const auto [first, second] = RunBoth(leader, follower);
    EXPECT_EQ(first.reason(), v1::EXIT_REASON_FINISHED) << first.message();
    EXPECT_EQ(second.reason(), v1::EXIT_REASON_FINISHED) << second.message();
    EXPECT_THAT(follower.logs, Not(Contains(HasSubstr("\"Once\" + "))));
    return leader.steps;
  };
  const std::vector<v1::StepReport> without = run(spec, dir.path() + "/without");
  const std::vector<v1::StepReport> with = run(WithSamples(spec), dir.path() + "/with");
  ASSERT_EQ(with.size(), 7U);
  ASSERT_EQ(without.size(), 7U);
  for (size_t i = 0; i < with.size(); ++i) {
    EXPECT_EQ(with[i].loss(), without[i].loss()) << i;
    EXPECT_EQ(with[i].grad_norm(), without[i].grad_norm()) << i;
  }
  EXPECT_EQ(with.back().samples_size(), 3);
}

// As `hearth-trainer sample` does with the checkpoint of the same step, on the CPU.
std::string SampleOf(const std::string& checkpoint, const v1::JobSpec& spec, int request) {
  const v1::TextRequest& text = spec.train().samples(request);
  const auto tokenizer = dataset::NewBytesTokenizer();
  const std::vector<std::vector<int32_t>> prompts = {
      *EncodePrompt(text.prompt(), *tokenizer, spec.model())};
  GeneratorOptions options;
  options.model = spec.model();
  options.recipe = "fp32";
  options.prompt = static_cast<int64_t>(prompts[0].size());
  options.length = options.prompt + text.max_tokens();
  options.rule = RuleOf(text);
  options.end_token = tokenizer->eos();
  const auto generator = *Generator::Create(options);
  EXPECT_TRUE(
      LoadFolderWeights(Env::Real(), checkpoint, generator->exec(), generator->parameters()).ok());
  EXPECT_TRUE(generator->Prepare().ok());
  WritingTimes times;
  WritingOptions writing;
  writing.tokens = text.max_tokens();
  const auto written = WriteTexts(*generator, *tokenizer, prompts, writing, Clock::Real(), times);
  EXPECT_TRUE(written.ok()) << written.status();
  return Characters((*written)[0].text);
}

TEST(SamplesTest, RunRank_Texts_AreThoseOfTheStepsCheckpoint) {
  for (const char* const recipe : {"fp32", "bf16"}) {
    SCOPED_TRACE(recipe);
    const TempDir dir;
    const v1::JobSpec spec = WithSamples(TextJob(dir.path(), recipe));
    LocalKeyValueStore store;
    FakeLink link(MakeTask(spec, dir.path() + "/out"), store);
    EXPECT_EQ(RunTo(link).reason(), v1::EXIT_REASON_FINISHED);
    ASSERT_EQ(link.checkpoints.size(), 3U);
    for (const v1::CheckpointAnnouncement& checkpoint : link.checkpoints) {
      const v1::StepReport& report = link.steps[static_cast<size_t>(checkpoint.step() - 1)];
      ASSERT_EQ(report.samples_size(), 3);
      for (int i = 0; i < 3; ++i) {
        const v1::SampleText& sample = report.samples(i);
        EXPECT_EQ(sample.step(), checkpoint.step());
        EXPECT_EQ(sample.prompt(), spec.train().samples(i).prompt());
        EXPECT_EQ(sample.text(), SampleOf(checkpoint.path(), spec, i)) << i;
        EXPECT_NE(sample.end(), v1::TEXT_END_UNSPECIFIED);
        EXPECT_LE(sample.tokens(), spec.train().samples(i).max_tokens());
      }
    }
    EXPECT_THAT(link.logs, Contains(HasSubstr("info: step 7: \"Once\" + \"")));
  }
}

// The training goes on with the texts that were complete.
TEST(SamplesTest, Write_TellsEachPassAndKeepsWhatIsCompleteWhenToldToEnd) {
  const TempDir dir;
  v1::JobSpec spec = TextJob(dir.path());
  *spec.mutable_train()->add_samples() = Request("Once", 0, 9);
  *spec.mutable_train()->add_samples() = Request("Twice", 0, 9);
  OpenRank one(spec);
  const auto samples = Samples::Open(spec, spec.data().train(0).path(), Env::Real());
  ASSERT_TRUE(samples.ok()) << samples.status();
  int passes = 0;  // progress to the hang watch
  int last = std::numeric_limits<int>::max();
  Samples::WriteOptions options;
  options.engine = &one.session.engine();
  options.clock = &one.clock;
  options.at_pass = [&passes, &last] {
    return ++passes > last ? absl::DeadlineExceededError("too slow") : absl::OkStatus();
  };
  v1::StepReport whole;
  ASSERT_TRUE(samples->Write(options, whole).ok());
  ASSERT_EQ(whole.samples_size(), 2);
  EXPECT_GE(passes, whole.samples(0).tokens() + whole.samples(1).tokens());
  last = passes - 1;
  passes = 0;
  v1::StepReport report;
  EXPECT_EQ(samples->Write(options, report).code(), absl::StatusCode::kDeadlineExceeded);
  ASSERT_EQ(report.samples_size(), 1);
  EXPECT_EQ(report.samples(0).text(), whole.samples(0).text());
}

// The texts of these requests by the untrained model of TextJob, and the calls of at_pass. `last`:
// the call at which it says that the time is over.
struct Written {
  absl::Status status;
  v1::StepReport report;
  int passes = 0;
};
Written WriteAll(const std::vector<v1::TextRequest>& requests,
                 int last = std::numeric_limits<int>::max()) {
  const TempDir dir;
  v1::JobSpec spec = TextJob(dir.path());
  for (const v1::TextRequest& request : requests) {
    *spec.mutable_train()->add_samples() = request;
  }
  OpenRank one(spec);
  const auto samples = Samples::Open(spec, spec.data().train(0).path(), Env::Real());
  EXPECT_TRUE(samples.ok()) << samples.status();
  Written written;
  Samples::WriteOptions options;
  options.engine = &one.session.engine();
  options.clock = &one.clock;
  options.at_pass = [&written, last] {
    return ++written.passes >= last ? absl::DeadlineExceededError("too slow") : absl::OkStatus();
  };
  written.status = samples->Write(options, written.report);
  return written;
}

// A long prompt costs neither the short ones behind it nor their prefill.
TEST(SamplesTest, Write_LongPromptFirst_WritesTheShortOnesBeforeItInPassesOfTheirOwn) {
  const std::vector<v1::TextRequest> requests = {Request(std::string(300, 'a') + "b", 0, 9),
                                                 Request("upon a time", 1, 9),
                                                 Request("Once", 0, 9)};
  const Written whole = WriteAll(requests);
  ASSERT_TRUE(whole.status.ok()) << whole.status;
  ASSERT_EQ(whole.report.samples_size(), 3);
  int alone_passes = 0;
  for (int i = 0; i < 3; ++i) {
    const Written alone = WriteAll({requests[static_cast<size_t>(i)]});
    ASSERT_TRUE(alone.status.ok()) << alone.status;
    EXPECT_EQ(whole.report.samples(i).prompt(), requests[static_cast<size_t>(i)].prompt());
    EXPECT_EQ(whole.report.samples(i).text(), alone.report.samples(0).text()) << i;
    alone_passes += alone.passes;
  }
  // Each alone copies the model; together the two short ones share a copy, but not with the long.
  EXPECT_EQ(whole.passes, alone_passes - 1);

  const Written ended = WriteAll(requests, whole.passes);
  EXPECT_EQ(ended.status.code(), absl::StatusCode::kDeadlineExceeded);
  ASSERT_EQ(ended.report.samples_size(), 2);
  EXPECT_EQ(ended.report.samples(0).prompt(), "upon a time");
  EXPECT_EQ(ended.report.samples(1).prompt(), "Once");
  EXPECT_EQ(ended.report.samples(0).text(), whole.report.samples(1).text());
  EXPECT_EQ(ended.report.samples(1).text(), whole.report.samples(2).text());
}

TEST(SamplesTest, Open_WhatCannotBeWritten_IsRefusedBeforeTheFirstStep) {
  const TempDir dir;
  v1::JobSpec spec = WithSamples(TextJob(dir.path()));
  const std::string text = spec.data().train(0).path();
  EXPECT_THAT(Samples::Open(spec, "", Env::Real()).status().message(),
              HasSubstr("train.samples: no dataset of data.train records a tokenizer"));
  spec.mutable_train()->mutable_samples(1)->set_min_p(1.5);
  EXPECT_THAT(Samples::Open(spec, text, Env::Real()).status().message(),
              HasSubstr("train.samples[1]: "));
  spec.mutable_train()->mutable_samples(1)->clear_min_p();
  spec.mutable_model()->set_position("learned");
  spec.mutable_model()->set_max_position(4);
  EXPECT_THAT(Samples::Open(spec, text, Env::Real()).status().message(),
              HasSubstr("train.samples[0]: a prompt of 4 tokens: the model learned 4 positions"));
  spec.mutable_train()->clear_samples();
  const auto none = Samples::Open(spec, "", Env::Real());
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_TRUE(none->empty());
}

TEST(SamplesTest, RunRank_DataWithoutATokenizer_IsBadData) {
  const TempDir dir;
  v1::JobSpec spec = SmallJob(dir.path());
  *spec.mutable_train()->add_samples() = Request("Once", 0);
  LocalKeyValueStore store;
  FakeLink link(MakeTask(spec, dir.path() + "/out"), store);
  const v1::TrainerExit exit = RunTo(link);
  EXPECT_EQ(exit.reason(), v1::EXIT_REASON_BAD_DATA);
  EXPECT_THAT(exit.message(), HasSubstr("train.samples: "));
}

}  // namespace
}  // namespace hearth::trainer
