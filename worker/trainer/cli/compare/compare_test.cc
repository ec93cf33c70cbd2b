#include "worker/trainer/cli/compare/compare.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>

#include "common/config/config.h"
#include "common/spec/recipe/recipe.h"
#include "common/spec/recipe/trial_recipes.h"
#include "common/spec/resolve/resolve.h"
#include "nlohmann/json.hpp"
#include "tests/support/common/temp_dir.h"
#include "worker/trainer/cli/verbs.h"

namespace hearth::trainer {
namespace {

using spec::InRecipe;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Optional;

constexpr char kJob[] = R"(
name: compared
model: {preset: hearth-nano, vocab: 256}
data: {train: /nowhere, validation: /nowhere, sequence_length: 32}
batch: {global_batch_tokens: 4096}
precision: {recipe: nvfp4, fallback: [bf16], remedies: [{clip: 0.5}], techniques: {hadamard: false}}
train: {steps: 1000, eval_every: 500}
)";

v1::JobSpec Job() {
  auto job = config::ParseJobSpec(kJob, "job.yaml");
  EXPECT_TRUE(job.ok()) << job.status();
  return *std::move(job);
}

std::string Violations(v1::JobSpec job) {
  std::vector<spec::FieldViolation> violations;
  spec::Resolve(job, violations);
  return spec::ViolationsToStatus(violations).ToString();
}

TEST(InRecipe, LeavesOutWhatTheRecipeWouldBeRefusedWith) {
  for (const std::string_view name : spec::RecipeNames()) {
    EXPECT_EQ(Violations(InRecipe(Job(), std::string(name))), "OK") << name;
  }
  EXPECT_EQ(InRecipe(Job(), "bf16").precision().fallback_size(), 0);
  EXPECT_EQ(InRecipe(Job(), "fp8").precision().fallback(0), "bf16");
  EXPECT_EQ(InRecipe(Job(), "fp8").precision().remedies_size(), 1);
  v1::JobSpec head = Job();
  head.mutable_precision()->set_lm_head("fp8");
  EXPECT_EQ(InRecipe(head, "fp8").precision().lm_head(), "fp8");
  EXPECT_FALSE(InRecipe(head, "nvfp4").precision().has_lm_head());
  // The output projection alone in fp8; elsewhere nothing would be left to quantise.
  head = InRecipe(head, "fp8");
  spec::ApplyPreset(*head.mutable_model());
  head.mutable_precision()->mutable_high_precision_layers()->set_first(head.model().layers());
  EXPECT_EQ(Violations(head), "OK");
  EXPECT_EQ(Violations(InRecipe(head, "nvfp4")), "OK");
  EXPECT_FALSE(InRecipe(head, "nvfp4").precision().has_high_precision_layers());
  EXPECT_THAT(Violations(InRecipe(Job(), "fp9")), HasSubstr("fp9"));
}

TEST(InRecipe, DropsSwitchesThatWouldChangeNothing) {
  v1::JobSpec job = Job();
  job.mutable_precision()->set_bf16_tail(0.1);
  job.mutable_precision()->mutable_techniques()->set_square_weights(false);
  ASSERT_EQ(Violations(job), "OK");
  for (const spec::Recipe& row : spec::Recipes()) {
    const std::string recipe(row.name);
    const v1::PrecisionSpec in = InRecipe(job, recipe).precision();
    EXPECT_EQ(Violations(InRecipe(job, recipe)), "OK") << recipe;
    EXPECT_EQ(in.has_bf16_tail(), row.quantised()) << recipe;
    const bool rotates = row.wgrad.a.hadamard > 0;
    EXPECT_EQ(in.has_techniques(), rotates || row.fprop.b.square) << recipe;
    EXPECT_EQ(in.techniques().has_hadamard(), rotates) << recipe;
    EXPECT_EQ(in.techniques().has_square_weights(), row.fprop.b.square) << recipe;
  }
}

// 100 steps whose loss falls by 0.01 a step; `add` above that in the last half.
ComparedRun Run(const std::string& recipe, double add) {
  ComparedRun run;
  run.recipe = recipe;
  run.state = "ok";
  run.execution = "emulated";
  for (int64_t step = 1; step <= 100; ++step) {
    run.training.push_back({step, 3 - 0.01 * static_cast<double>(step) + (step > 50 ? add : 0)});
  }
  run.held_out = {{1, 3}, {50, 2.5}, {100, 2 + add}};
  run.training_loss = 2 + add;
  run.held_out_loss = 2 + add;
  run.tokens_per_second = 12345;
  run.memory_bytes = int64_t{1} << 30;
  run.planned_bytes = int64_t{1} << 29;
  run.global_batch_tokens = 4096;
  return run;
}

Comparison Three() {
  Comparison comparison;
  comparison.job = "a<b";
  comparison.device = "cpu";
  comparison.steps = 100;
  comparison.window = 10;
  comparison.runs = {Run("bf16", 0), Run("fp8", 0.02), Run("nvfp4", 0.1)};
  comparison.runs[1].memory_bytes /= 2;
  comparison.runs[1].tokens_per_second *= 2;
  comparison.runs[1].skipped_steps = 3;
  comparison.runs[1].redone_steps = 2;
  comparison.runs[2].state = "failed";
  comparison.runs[2].problem = "numerical at step 7: not finite";
  Relate(comparison);
  return comparison;
}

TEST(Relate, GapsAndRatiosAreToTheFirstThatIsOk) {
  Comparison comparison = Three();
  EXPECT_EQ(comparison.runs[0].training_gap, std::nullopt);
  EXPECT_THAT(comparison.runs[1].training_gap, Optional(DoubleNear(1.0, 1e-9)));
  EXPECT_THAT(comparison.runs[1].held_out_gap, Optional(DoubleNear(1.0, 1e-9)));
  EXPECT_THAT(comparison.runs[1].memory_ratio, Optional(0.5));
  EXPECT_THAT(comparison.runs[1].planned_ratio, Optional(1.0));
  EXPECT_THAT(comparison.runs[1].speed_ratio, Optional(2.0));
  EXPECT_EQ(comparison.runs[2].training_gap, std::nullopt);
  comparison.runs[1].training_gap.reset();
  comparison.runs[0].state = "failed";
  Relate(comparison);
  EXPECT_EQ(comparison.runs[1].training_gap, std::nullopt);
}

TEST(CompareTable, HasARowForEachAndTheReasonOfTheOneThatFailed) {
  const std::string table = CompareTable(Three());
  EXPECT_THAT(table, HasSubstr("a<b on cpu: 100 steps of 4,096 tokens"));
  EXPECT_THAT(table,
              HasSubstr("\nbf16    emulated    2.0000        -    2.0000        -  12,345  "));
  EXPECT_THAT(table, HasSubstr("+1.00 %"));
  EXPECT_THAT(table, HasSubstr("\nnvfp4   failed: numerical at step 7: not finite\n"));
  EXPECT_THAT(table, Not(HasSubstr(" \n")));
}

TEST(CompareJson, HasTheNumbersAndNullWhereThereIsNone) {
  Comparison comparison = Three();
  comparison.runs[1].held_out_gap = std::nan("");
  comparison.runs[2].problem = "byte \xff";
  const auto json = nlohmann::json::parse(CompareJson(comparison));
  EXPECT_EQ(json["reference"], "bf16");
  ASSERT_EQ(json["runs"].size(), 3U);
  EXPECT_NEAR(json["runs"][1]["training_gap_percent"].get<double>(), 1.0, 1e-9);
  EXPECT_TRUE(json["runs"][1]["held_out_gap_percent"].is_null());
  EXPECT_TRUE(json["runs"][0]["training_gap_percent"].is_null());
  EXPECT_EQ(json["runs"][1]["memory_ratio"], 0.5);
  EXPECT_EQ(json["runs"][1]["skipped_steps"], 3);
  EXPECT_EQ(json["runs"][1]["redone_steps"], 2);
  EXPECT_EQ(json["runs"][2]["state"], "failed");
}

size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

TEST(ComparePicture, DrawsEachRunInBothPanelsAndNamesIt) {
  Comparison comparison = Three();
  const std::string picture = ComparePicture(comparison);
  EXPECT_EQ(Count(picture, "<polyline"), 5U);  // three losses, two gaps
  EXPECT_EQ(Count(picture, "<circle"), 9U + 6U);
  EXPECT_EQ(Count(picture, ">fp8</text>"), 2U);
  EXPECT_EQ(Count(picture, ">nvfp4 (failed)</text>"), 2U);
  EXPECT_THAT(picture, HasSubstr("a&lt;b"));
  EXPECT_THAT(picture, Not(HasSubstr("nan")));
  EXPECT_THAT(picture, Not(HasSubstr("#000")));
  EXPECT_THAT(picture, Not(HasSubstr("#fff")));
}

TEST(ComparePicture, GapOfARunThatEndedEarly_IsOverTheStepsOfBoth) {
  Comparison comparison = Three();
  comparison.runs.resize(2);
  comparison.runs[1] = comparison.runs[0];
  comparison.runs[1].recipe = "fp8";
  comparison.runs[1].training.resize(60);
  comparison.runs[1].state = "stopped";
  const std::string picture = ComparePicture(comparison);
  const size_t gap = picture.rfind("<polyline points=\"");
  const std::string points = picture.substr(gap, picture.find("\" fill", gap) - gap);
  EXPECT_EQ(Count(points, ","), Count(points, ",505.0")) << points;  // the middle: no gap
}

TEST(ComparePicture, WithoutNumbers_IsStillAPicture) {
  Comparison comparison = Three();
  for (ComparedRun& run : comparison.runs) {
    run.training.clear();
    run.held_out.clear();
  }
  comparison.runs[1].training = {{1, std::nan("")}};
  const std::string picture = ComparePicture(comparison);
  EXPECT_THAT(picture, Not(HasSubstr("nan")));
  EXPECT_THAT(picture, Not(HasSubstr("inf")));
  EXPECT_THAT(picture, HasSubstr("</svg>"));
}

// A program that does as `run JOB --device D --out DIR ...` would, by the recipe's name.
constexpr char kTrainer[] = R"(#!/bin/sh
job=$2; out=$6; recipe=$(basename "$out")
echo "$recipe $*" >> "$(dirname "$out")/calls"
echo "step 1/4 loss 3"
case $recipe in
fp8) kill -9 $$;;
mxfp8) echo "hearth-trainer: no such GPU"; exit 26;;
nvfp4) echo '{"reason":"EXIT_REASON_NUMERICAL","step":"2","message":"the loss\nis not finite"}' > "$out/exit.json"; exit 24;;
esac
loss=3; [ "$recipe" = fp8_current ] && loss=3.03
tokens=4096; [ "$recipe" = nvfp4_eden ] && tokens=2048
echo '{"recipe_execution":"emulated","planned_bytes":"1000","micro_batch_size":8,"global_batch_tokens":"4096"}' > "$out/run.json"
: > "$out/metrics.jsonl"
for step in 1 2 3 4; do
  echo "{\"step\":\"$step\",\"loss\":$loss,\"tokens\":\"$((step * tokens))\",\"tokens_per_second\":10,\"memory_bytes\":\"$((step * 100))\",\"validation_loss\":$loss,\"skipped_steps\":\"1\",\"guard\":{\"redone_steps\":\"1\"}}" >> "$out/metrics.jsonl"
done
mkdir -p "$out/checkpoints/x"
echo '{"reason":"EXIT_REASON_FINISHED"}' > "$out/exit.json"
)";

class CompareCommandTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::ofstream(dir_ + "/job.yaml") << kJob;
    std::ofstream(dir_ + "/trainer") << kTrainer;
    chmod((dir_ + "/trainer").c_str(), 0755);
    options_.job.job_file = dir_ + "/job.yaml";
    options_.out = dir_ + "/out";
    options_.program = dir_ + "/trainer";
    options_.steps = 4;
    options_.json = true;
    options_.quiet = true;
  }

  int Compare(const std::vector<std::string>& recipes) {
    options_.recipes = recipes;
    ::testing::internal::CaptureStdout();
    const int status = CompareCommand(options_);
    const std::string text = ::testing::internal::GetCapturedStdout();
    json_ = text.empty() ? nlohmann::json() : nlohmann::json::parse(text);
    return status;
  }
  std::string File(const std::string& name) {
    std::ifstream in(dir_ + "/out/" + name);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }

  const TempDir temp_;
  const std::string dir_ = temp_.path();
  CompareOptions options_;
  nlohmann::json json_;
};

TEST_F(CompareCommandTest, RunsEachInItsFolderWithTheFirstOnesBatch) {
  ASSERT_EQ(Compare({"bf16", "fp8_current"}), 0);
  const auto& runs = json_["runs"];
  EXPECT_EQ(runs[0]["memory_bytes"], 400);
  EXPECT_EQ(runs[0]["redone_steps"], 1);
  EXPECT_NEAR(runs[1]["training_gap_percent"].get<double>(), 1.0, 1e-9);
  EXPECT_THAT(File("bf16/job.yaml"), HasSubstr("recipe: bf16"));
  EXPECT_THAT(File("bf16/job.yaml"), Not(HasSubstr("micro_batch_size")));
  EXPECT_THAT(File("fp8_current/job.yaml"), HasSubstr("micro_batch_size: 8"));
  EXPECT_THAT(File("fp8_current/job.yaml"), HasSubstr("steps: 4"));
  EXPECT_THAT(File("fp8_current/job.yaml"), HasSubstr("eval_every: 1\n"));
  EXPECT_THAT(File("bf16/run.log"), HasSubstr("step 1/4"));
  EXPECT_THAT(File("compare.svg"), HasSubstr("<polyline"));
  EXPECT_THAT(File("compare.txt"), HasSubstr("+1.00 %"));
  EXPECT_EQ(nlohmann::json::parse(File("compare.json")), json_);
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/out/bf16/checkpoints"));
}

TEST_F(CompareCommandTest, OneThatHasNoResult_HasARowThatSaysWhy) {
  ASSERT_EQ(Compare({"bf16", "fp8", "mxfp8", "nvfp4", "nvfp4_eden", "fp9", "fp8_current"}), 1);
  std::vector<std::string> states;
  std::vector<std::string> problems;
  for (const auto& run : json_["runs"]) {
    states.push_back(run["state"]);
    problems.push_back(run["problem"]);
  }
  EXPECT_THAT(states, ElementsAre("ok", "failed", "failed", "failed", "failed", "refused", "ok"));
  EXPECT_THAT(problems,
              ElementsAre("", "killed by signal 9 (Killed)", "exit status 26: no such GPU",
                          "numerical at step 2: the loss; is not finite",
                          "trained on 8192 tokens, bf16 on 16384", HasSubstr("fp9"), ""));
}

TEST_F(CompareCommandTest, WithoutAReference_NothingElseRuns) {
  ASSERT_EQ(Compare({"nvfp4", "bf16"}), 1);
  EXPECT_EQ(json_["runs"][1]["state"], "not run");
  EXPECT_THAT(File("calls"), Not(HasSubstr("bf16 ")));
}

// Several processes fill one folder: each takes what is not under way, and what has ended is
// compared.
TEST_F(CompareCommandTest, Shared_LeavesRunsToOthersAndTheReportHasAll) {
  options_.job.overrides = {"batch.micro_batch_size=8"};
  options_.report = true;
  EXPECT_EQ(Compare({"bf16", "fp8_current"}), 1) << "nothing has run";
  options_.report = false;
  options_.share = true;
  std::filesystem::create_directories(dir_ + "/out/bf16");
  const int other = open((dir_ + "/out/bf16/lock").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644);
  ASSERT_GE(other, 0);
  ASSERT_EQ(flock(other, LOCK_EX), 0);
  EXPECT_EQ(Compare({"bf16", "fp8_current"}), 1);
  EXPECT_TRUE(json_.is_null()) << "one of several has no table";
  EXPECT_EQ(Count(File("calls"), "\n"), 1U) << File("calls");
  options_.share = false;
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(Compare({"bf16", "fp8_current"}), 1);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("another process runs"));
  close(other);
  options_.share = true;
  EXPECT_EQ(Compare({"bf16", "fp8_current"}), 0);
  const std::string calls = File("calls");
  EXPECT_EQ(Count(calls, "\n"), 2U) << calls;
  options_.share = false;
  options_.report = true;
  EXPECT_EQ(Compare({"bf16", "mxfp8", "fp8_current"}), 0);
  EXPECT_EQ(File("calls"), calls);
  ASSERT_EQ(json_["runs"].size(), 3U);
  EXPECT_EQ(json_["runs"][1]["state"], "not ended");
  EXPECT_NEAR(json_["runs"][2]["training_gap_percent"].get<double>(), 1.0, 1e-9);
  EXPECT_THAT(File("compare.txt"), HasSubstr("\nnot ended: mxfp8\n"));
}

TEST_F(CompareCommandTest, Report_SaysWhichRunsFailed) {
  options_.job.overrides = {"batch.micro_batch_size=8"};
  ASSERT_EQ(Compare({"bf16", "nvfp4", "nvfp4_eden"}), 1);
  options_.report = true;
  EXPECT_EQ(Compare({"bf16", "nvfp4", "nvfp4_eden"}), 1);
  EXPECT_EQ(json_["runs"][1]["problem"], "numerical at step 2: the loss; is not finite");
  EXPECT_EQ(json_["runs"][2]["problem"], "trained on 8192 tokens, bf16 on 16384");
  std::ofstream(dir_ + "/out/nvfp4/exit.json") << R"({"reason":"EXIT_REASON_STOPPED","step":"2"})";
  EXPECT_EQ(Compare({"bf16", "nvfp4"}), 0);
  EXPECT_EQ(json_["runs"][1]["state"], "not ended");
  EXPECT_THAT(File("compare.txt"), HasSubstr("\nnvfp4   not ended: at step 2; the same command"));
}

TEST_F(CompareCommandTest, SharedJobWhoseBatchIsOpen_IsRefused) {
  options_.share = true;
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(Compare({"bf16", "fp8_current"}), 1);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("batch.micro_batch_size"));
}

TEST_F(CompareCommandTest, CalledAgain_TakesWhatIsDoneAndRefusesAnotherJob) {
  ASSERT_EQ(Compare({"bf16", "fp8_current"}), 0);
  const nlohmann::json first = json_;
  const std::string calls = File("calls");
  ASSERT_EQ(Compare({"bf16", "fp8_current"}), 0);
  EXPECT_EQ(File("calls"), calls);
  EXPECT_EQ(json_, first);
  ::testing::internal::CaptureStderr();
  options_.steps = 8;
  EXPECT_EQ(Compare({"bf16", "fp8_current"}), 1);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("another comparison"));
}

TEST_F(CompareCommandTest, SwitchesOfOneRecipe_AreLeftOutOfTheOthersJobs) {
  options_.job.overrides = {"precision.bf16_tail=0.25",
                            "precision.techniques.stochastic_rounding=false"};
  ASSERT_EQ(Compare({"bf16", "fp8_current", "nvfp4_eden", "nvfp4"}), 1);
  for (const auto& run : json_["runs"]) {
    EXPECT_NE(run["state"], "refused") << run["recipe"] << ": " << run["problem"];
  }
  EXPECT_THAT(File("bf16/job.yaml"), Not(HasSubstr("bf16_tail")));
  EXPECT_THAT(File("bf16/job.yaml"), Not(HasSubstr("techniques")));
  EXPECT_THAT(File("fp8_current/job.yaml"), HasSubstr("bf16_tail: 0.25"));
  EXPECT_THAT(File("fp8_current/job.yaml"), Not(HasSubstr("techniques")));
  EXPECT_THAT(File("nvfp4_eden/job.yaml"), HasSubstr("hadamard: false"));
  EXPECT_THAT(File("nvfp4_eden/job.yaml"), Not(HasSubstr("stochastic_rounding")));
  EXPECT_THAT(File("nvfp4/job.yaml"), HasSubstr("stochastic_rounding: false"));
}

TEST_F(CompareCommandTest,
       LayersOfTheRecipesRow_AreInTheJobSoThatOtherDefaultsAreAnotherComparison) {
  options_.job.overrides = {"model.layers=8"};
  ASSERT_EQ(Compare({"bf16", "nvfp4_eden"}), 1) << "its trainer takes fewer tokens: " << json_;
  EXPECT_THAT(File("bf16/job.yaml"), Not(HasSubstr("high_precision_layers")));
  const std::string job = File("nvfp4_eden/job.yaml");
  EXPECT_THAT(job, HasSubstr("high_precision_layers"));
  auto spec = config::ParseJobSpec(job, "job.yaml");
  ASSERT_TRUE(spec.ok()) << spec.status();
  const v1::LayerSet& layers = spec->precision().high_precision_layers();
  EXPECT_EQ(layers.first(), 1);
  EXPECT_THAT(layers.layers(), ElementsAre(6));
  spec->mutable_precision()->clear_high_precision_layers();
  std::ofstream(dir_ + "/out/nvfp4_eden/job.yaml") << config::ToYaml(*spec);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(Compare({"bf16", "nvfp4_eden"}), 1);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("another comparison"));
}

TEST_F(CompareCommandTest, ScheduleLongerThanTheSteps_IsRefusedWithTheWayOut) {
  options_.job.overrides = {"schedule.warmup_steps=100"};
  ASSERT_EQ(Compare({"bf16", "fp8_current"}), 1);
  const std::string warmup = json_["runs"][0]["problem"];
  EXPECT_THAT(warmup, HasSubstr("schedule.warmup_steps: 100 is more than train.steps 4"));
  EXPECT_THAT(warmup, HasSubstr("fit the schedule into 4 steps with --set "
                                "schedule.warmup_steps=N"));
  EXPECT_THAT(warmup, Not(HasSubstr("decay_steps")));
  options_.job.overrides.emplace_back("schedule.decay_steps=300");
  ASSERT_EQ(Compare({"bf16", "fp8_current"}), 1);
  EXPECT_THAT(std::string(json_["runs"][0]["problem"]),
              HasSubstr("--set schedule.warmup_steps=N --set schedule.decay_steps=N"));
  options_.job.overrides = {"schedule.decay_steps=300"};
  ASSERT_EQ(Compare({"bf16", "fp8_current"}), 1);
  EXPECT_THAT(std::string(json_["runs"][0]["problem"]),
              EndsWith("fit the schedule into 4 steps with --set schedule.decay_steps=N"));
  options_.job.overrides = {"schedule.warmup_steps=1", "schedule.decay_steps=2"};
  EXPECT_EQ(Compare({"bf16", "fp8_current"}), 0);
}

// A program whose held-out losses differ from seed to seed, and a little from recipe to recipe.
constexpr char kSeededTrainer[] = R"(#!/bin/sh
out=$6; name=$(basename "$out")
echo "$name" >> "$(dirname "$out")/calls"
case $name in
bf16-seed1234) loss=3.0;; fp8_current-seed1234) loss=3.03;;  mxfp8-seed1234) loss=3.033;;
bf16-seed1235) loss=3.1;; fp8_current-seed1235) loss=3.131;; mxfp8-seed1235) loss=3.1279;;
bf16-seed1236) loss=3.2;; fp8_current-seed1236) loss=3.234;; mxfp8-seed1236) loss=3.2352;;
esac
echo '{"recipe_execution":"emulated","planned_bytes":"1000","micro_batch_size":8,"global_batch_tokens":"4096"}' > "$out/run.json"
echo "{\"step\":\"4\",\"loss\":$loss,\"tokens\":\"16384\",\"tokens_per_second\":10,\"validation_loss\":$loss}" > "$out/metrics.jsonl"
echo '{"reason":"EXIT_REASON_FINISHED"}' > "$out/exit.json"
)";

TEST_F(CompareCommandTest, Seeds_RunWhatIsMissingAndGiveMeansWithErrors) {
  std::ofstream(dir_ + "/trainer") << kSeededTrainer;
  options_.seeds = 2;
  ASSERT_EQ(Compare({"bf16", "fp8_current", "mxfp8"}), 0);
  const std::string two = File("calls");
  options_.seeds = 3;
  ASSERT_EQ(Compare({"bf16", "fp8_current", "mxfp8"}), 0);
  EXPECT_EQ(File("calls"), two + "bf16-seed1236\nfp8_current-seed1236\nmxfp8-seed1236\n");
  EXPECT_THAT(File("mxfp8-seed1236/job.yaml"), HasSubstr("seed: 1236"));
  EXPECT_EQ(json_["runs"].size(), 9U);
  ASSERT_EQ(json_["rows"].size(), 3U);
  EXPECT_TRUE(json_["rows"][0]["held_out_gap_percent"].is_null()) << "the reference";
  const auto& gap = json_["rows"][1]["held_out_gap_percent"];
  EXPECT_NEAR(gap["mean"].get<double>(), 1.0208, 1e-4);
  EXPECT_NEAR(gap["standard_error"].get<double>(), 0.0208, 1e-4);
  EXPECT_EQ(gap["seeds"], 3);
  EXPECT_EQ(json_["rows"][1]["gap_significant"], true);
  const std::string table = File("compare.txt");
  EXPECT_THAT(table, HasSubstr("gaps and ratios: to bf16 with the same seed"));
  EXPECT_THAT(table, HasSubstr("\nfp8_current  emulated      3    3.1317  +1.02 ± 0.02 %    "
                               "3.1317  +1.02 ± 0.02 %"));
  EXPECT_THAT(table,
              HasSubstr("\nWith a probability of error of 5 %:\nfp8_current and mxfp8: +0.01 "
                        "± 0.06 % apart: not significantly different from each other\n"));
  // A bar for each held-out gap.
  EXPECT_EQ(Count(File("compare.svg"), "<path d=\"M"), 2U);
}

// The first run that has ended is of another recipe than the first of --recipes.
TEST_F(CompareCommandTest, Report_ComparesWithTheFirstRecipeWhateverHasEnded) {
  std::ofstream(dir_ + "/trainer") << kSeededTrainer;
  options_.job.overrides = {"batch.micro_batch_size=8"};
  options_.seeds = 3;
  const std::vector<std::string> recipes = {"bf16", "fp8_current", "mxfp8"};
  ASSERT_EQ(Compare(recipes), 0);
  options_.report = true;
  std::filesystem::remove(dir_ + "/out/bf16-seed1234/exit.json");
  EXPECT_EQ(Compare(recipes), 0);
  EXPECT_EQ(json_["reference"], "bf16");
  EXPECT_EQ(json_["problem"], "");
  for (const auto& run : json_["runs"]) {
    EXPECT_NE(run["state"], "failed") << run["recipe"] << ": " << run["problem"];
  }
  EXPECT_EQ(json_["rows"][0]["ok"], 2);
  EXPECT_EQ(json_["rows"][1]["ok"], 3);
  const auto& gap = json_["rows"][1]["held_out_gap_percent"];
  EXPECT_EQ(gap["seeds"], 2);
  EXPECT_NEAR(gap["mean"].get<double>(), 1.03125, 1e-9);
  EXPECT_THAT(File("compare.txt"), HasSubstr("\nbf16         emulated  2 of 3    3.1500 "));
  EXPECT_THAT(File("compare.txt"), HasSubstr("of 4,096 tokens; "));
  EXPECT_THAT(File("compare.txt"),
              HasSubstr("\nnot ended: bf16 seed 1234\nmeans over fewer seeds: bf16 losses 2 of 3; "
                        "fp8_current gaps 2 of 3; mxfp8 gaps 2 of 3\n"));
  EXPECT_THAT(File("compare.svg"), HasSubstr("gap to bf16 in percent"));
  std::filesystem::remove(dir_ + "/out/bf16-seed1235/exit.json");
  std::filesystem::remove(dir_ + "/out/bf16-seed1236/exit.json");
  EXPECT_EQ(Compare(recipes), 1);
  EXPECT_THAT(std::string(json_["problem"]), HasSubstr("no run of bf16"));
  EXPECT_TRUE(json_["rows"][1]["held_out_gap_percent"].is_null());
  EXPECT_THAT(File("compare.txt"), HasSubstr("\n" + std::string(json_["problem"]) + "\n"));
}

TEST_F(CompareCommandTest, Varied_RunsEachValueInAFolderOfItsOwn) {
  options_.vary = {"precision.bf16_tail=0.25,0.5"};
  ASSERT_EQ(Compare({"bf16", "fp8_current"}), 0);
  EXPECT_THAT(File("fp8_current-bf16_tail=0.25/job.yaml"), HasSubstr("bf16_tail: 0.25"));
  EXPECT_THAT(File("fp8_current-bf16_tail=0.5/job.yaml"), HasSubstr("bf16_tail: 0.5"));
  EXPECT_THAT(File("bf16/job.yaml"), Not(HasSubstr("bf16_tail")));
  EXPECT_THAT(File("compare.txt"), HasSubstr("\nfp8_current bf16_tail=0.5 "));
  EXPECT_THAT(File("compare.txt"), HasSubstr("One seed does not show which gaps are significant"));
}

TEST_F(CompareCommandTest, RecipesMustBeTwoDifferentOnes) {
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(Compare({"bf16"}), 2);
  EXPECT_EQ(Compare({"bf16", "bf16"}), 2);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("--recipes"));
  EXPECT_THAT(File("calls"), IsEmpty());
}

}  // namespace
}  // namespace hearth::trainer
