#include "worker/trainer/cli/generate/log_probs.h"

#include <filesystem>
#include <string>

#include "common/io/env.h"
#include "gtest/gtest.h"
#include "tests/support/common/temp_dir.h"
#include "worker/trainer/checkpoint/meta.h"

namespace hearth::trainer {
namespace {

class LogProbsTest : public testing::Test {
 protected:
  // A checkpoint of a job with this setting; only what says so is there.
  std::string Checkpoint(const std::string& deterministic,
                         const std::string& recipe = "bf16",
                         const std::string& attention = "causal") {
    CheckpointMeta meta;
    meta.job_id = "job";
    meta.micro_batch_size = 6;
    meta.recipe = recipe;
    meta.recorded.set_task("pretrain");
    meta.recorded.mutable_data()->set_sequence_length(48);
    meta.recorded.mutable_data()->set_attention(attention);
    if (!deterministic.empty()) {
      meta.recorded.mutable_train()->set_deterministic(deterministic);
    }
    std::filesystem::create_directories(dir_.path() + "/state");
    EXPECT_TRUE(
        Env::Real()
            .WriteFileAtomically(dir_.path() + "/" + std::string(kMetaFile), MetaToJson(meta))
            .ok());
    return dir_.path();
  }

  TempDir dir_;
};

TEST_F(LogProbsTest, Auto_IsTrainingWhereTheJobsBitsRepeatAndSomebodyReads) {
  struct Row {
    const char* deterministic;
    const char* recipe;
    bool shown;
    LogProbs from;
  };
  for (const Row& row : {Row{"true", "bf16", true, LogProbs::kTraining},
                         Row{"true", "bf16", false, LogProbs::kGeneration},
                         Row{"true", "fp8", true, LogProbs::kGeneration},
                         Row{"auto", "bf16", true, LogProbs::kGeneration},
                         Row{"false", "bf16", true, LogProbs::kGeneration},
                         Row{"", "bf16", true, LogProbs::kGeneration}}) {
    SCOPED_TRACE(std::string(row.deterministic) + " " + row.recipe);
    const auto choice = ChooseLogProbs({}, row.shown, Checkpoint(row.deterministic, row.recipe));
    ASSERT_TRUE(choice.ok()) << choice.status();
    EXPECT_EQ(choice->from, row.from);
    EXPECT_EQ(choice->deterministic, std::string(row.deterministic) == "true");
  }
}

TEST_F(LogProbsTest, Training_HasTheShapeOfTheJobUnlessOneIsGiven) {
  LogProbsOptions options;
  options.from = "training";
  const std::string folder = Checkpoint("auto", "bf16", "document");
  const auto as_trained = ChooseLogProbs(options, true, folder);
  ASSERT_TRUE(as_trained.ok()) << as_trained.status();
  EXPECT_EQ(as_trained->from, LogProbs::kTraining);
  EXPECT_FALSE(as_trained->deterministic);
  EXPECT_EQ(as_trained->shape.micro_batch, 6);
  EXPECT_EQ(as_trained->shape.length, 48);
  EXPECT_TRUE(as_trained->shape.documents);
  options.micro_batch = 2;
  options.sequence_length = 96;
  const auto given = ChooseLogProbs(options, true, folder);
  ASSERT_TRUE(given.ok()) << given.status();
  EXPECT_EQ(given->shape.micro_batch, 2);
  EXPECT_EQ(given->shape.length, 96);
}

TEST_F(LogProbsTest, Generation_IsTakenWhereItIsAskedFor) {
  LogProbsOptions options;
  options.from = "generation";
  const auto choice = ChooseLogProbs(options, true, Checkpoint("true"));
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_EQ(choice->from, LogProbs::kGeneration);
}

TEST_F(LogProbsTest, AFolderWithoutAJob_NeedsAShape) {
  EXPECT_EQ(ChooseLogProbs({}, true, dir_.path())->from, LogProbs::kGeneration);
  LogProbsOptions options;
  options.from = "training";
  options.micro_batch = 4;
  const absl::Status status = ChooseLogProbs(options, true, dir_.path()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("--sequence-length"), std::string::npos) << status;
  options.sequence_length = 32;
  const auto choice = ChooseLogProbs(options, true, dir_.path());
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_EQ(choice->shape.length, 32);
  EXPECT_FALSE(choice->shape.documents);
}

TEST_F(LogProbsTest, WhatCannotBe_IsRefused) {
  LogProbsOptions options;
  options.from = "both";
  const absl::Status name = ChooseLogProbs(options, true, Checkpoint("true")).status();
  EXPECT_EQ(name.message(), "--log-probs both: must be auto or generation or training");
  options.from = "training";
  const absl::Status hidden = ChooseLogProbs(options, false, Checkpoint("true")).status();
  EXPECT_EQ(hidden.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(hidden.message().find("only -o json"), std::string::npos) << hidden;
}

}  // namespace
}  // namespace hearth::trainer
