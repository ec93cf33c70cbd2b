#include "worker/trainer/cli/compare/compare_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "common/config/config.h"
#include "worker/trainer/cli/compare/compare_plan.h"

namespace hearth::trainer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(MeanOf, HasTheStandardErrorOfTheMean) {
  const auto mean = MeanOf({1.0, 2.0, std::nan(""), 6.0});
  ASSERT_TRUE(mean.has_value());
  EXPECT_EQ(mean->seeds, 3);
  EXPECT_DOUBLE_EQ(mean->mean, 3.0);
  EXPECT_NEAR(mean->error, std::sqrt(14.0 / 2 / 3), 1e-12);
  EXPECT_EQ(GapText(*mean, 2), "+3.00 ± 1.53 %");
  EXPECT_EQ(GapText(*mean, 3), "+3.000 ± 1.528 %");
  EXPECT_FALSE(MeanOf({std::nan("")}).has_value());
  EXPECT_EQ(GapText(*MeanOf({-0.5}), 2), "-0.50 %");
}

// Student's t: 4.303 standard errors with three seeds, 2.776 with five.
TEST(MeanOfSeeds, FewerSeeds_NeedLargerGapsToBeTold) {
  const auto significant = [](int seeds, double mean, double error) {
    return MeanOfSeeds{.seeds = seeds, .mean = mean, .error = error}.significant();
  };
  EXPECT_FALSE(significant(1, 9, 0)) << "one seed says nothing about its error";
  EXPECT_FALSE(significant(3, 4.2, 1));
  EXPECT_TRUE(significant(3, -4.4, 1));
  EXPECT_FALSE(significant(5, 2.7, 1));
  EXPECT_TRUE(significant(5, 2.8, 1));
  EXPECT_TRUE(significant(40, 2.2, 1));
}

ComparedRun Done(const std::string& recipe, int64_t seed, double held_out) {
  ComparedRun run;
  run.recipe = recipe;
  run.seed = seed;
  run.state = "ok";
  run.training_loss = run.held_out_loss = held_out;
  return run;
}

TEST(RowsOf, GapsAreToTheReferenceOfTheSameSeed) {
  Comparison comparison;
  comparison.seeds = 2;
  // The seeds differ by 10 %, the recipes by 1 %.
  comparison.runs = {Done("bf16", 1, 3.0), Done("fp8", 1, 3.03), Done("bf16", 2, 3.3),
                     Done("fp8", 2, 3.333)};
  Relate(comparison);
  const std::vector<CompareRow> rows = RowsOf(comparison);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_FALSE(rows[0].gap().has_value());
  ASSERT_TRUE(rows[1].held_out_gap.has_value());
  EXPECT_NEAR(rows[1].held_out_gap->mean, 1.0, 1e-9);
  EXPECT_NEAR(rows[1].held_out_gap->error, 0.0, 1e-9);
  EXPECT_NEAR(rows[1].held_out_loss->mean, 3.1815, 1e-9);
  EXPECT_EQ(NotSignificant(comparison, rows), "");
}

TEST(RowsOf, ARunThatFailed_IsLeftOut) {
  Comparison comparison;
  comparison.seeds = 2;
  comparison.runs = {Done("bf16", 1, 3.0), Done("fp8", 1, 3.03), Done("bf16", 2, 3.3),
                     Done("fp8", 2, 3.333)};
  comparison.runs[3].state = "failed";
  comparison.runs[3].problem = "no such GPU";
  Relate(comparison);
  const std::vector<CompareRow> rows = RowsOf(comparison);
  EXPECT_EQ(rows[1].ok, 1);
  EXPECT_EQ(rows[1].held_out_gap->seeds, 1);
  const std::string table = CompareTable(comparison);
  EXPECT_THAT(table, HasSubstr(" 1 of 2 "));
  EXPECT_THAT(table, HasSubstr("\nfp8 with seed 2: failed: no such GPU\n"));
  EXPECT_THAT(table, HasSubstr("fp8: +1.00 %: one seed tells nothing about the error"));
  EXPECT_THAT(table, HasSubstr("\nmeans over fewer seeds: fp8 losses 1 of 2, gaps 1 of 2\n"));
}

// `recipes` with seeds 1, 2 and 3. A loss is 3 + the seed / 10, times 1 + the recipe's index / 100.
Comparison Seeded(const std::vector<std::string>& recipes) {
  Comparison comparison;
  comparison.seeds = 3;
  for (int64_t seed = 1; seed <= 3; ++seed) {
    double gap = 0;
    for (const std::string& recipe : recipes) {
      comparison.runs.push_back(
          Done(recipe, seed, (3 + static_cast<double>(seed) / 10) * (1 + gap)));
      gap += 0.01;
    }
  }
  return comparison;
}

TEST(RowsOf, ASeedWithoutAReference_CountsInNoGapAndTheTableSaysSo) {
  Comparison comparison = Seeded({"bf16", "fp8"});
  comparison.runs[0].state = "not ended";
  comparison.runs[1].held_out_loss = comparison.runs[1].training_loss = 9;  // an absurd gap
  Relate(comparison);
  const std::vector<CompareRow> rows = RowsOf(comparison);
  EXPECT_EQ(rows[0].held_out_loss->seeds, 2);
  EXPECT_EQ(rows[1].held_out_loss->seeds, 3);
  ASSERT_EQ(rows[1].held_out_gap->seeds, 2);
  EXPECT_NEAR(rows[1].held_out_gap->mean, 1.0, 1e-9);
  const std::string table = CompareTable(comparison);
  EXPECT_THAT(table, HasSubstr("gaps and ratios: to bf16 with the same seed"));
  EXPECT_THAT(table, HasSubstr(" 2 of 3 "));
  EXPECT_THAT(table, HasSubstr("\nnot ended: bf16 seed 1\n"
                               "means over fewer seeds: bf16 losses 2 of 3; fp8 gaps 2 of 3\n"));
}

TEST(CompareTable, WithoutAnyReference_SaysThatThereAreNoGaps) {
  Comparison comparison = Seeded({"bf16", "fp8", "nvfp4"});
  EXPECT_EQ(ProblemOf(comparison), "");
  for (ComparedRun& run : comparison.runs) {
    run.state = run.recipe == "bf16" || run.seed == 3 ? "not ended" : "ok";
  }
  Relate(comparison);
  const std::string table = CompareTable(comparison);
  EXPECT_THAT(table, HasSubstr("gaps and ratios: to bf16"));
  EXPECT_THAT(table, HasSubstr("\nbf16    not ended\n"));
  EXPECT_THAT(table, HasSubstr("\nnot ended: bf16 seed 1; bf16 seed 2; bf16 seed 3; fp8 seed 3; "
                               "nvfp4 seed 3\nno run of bf16, the reference, has ended well"));
  for (const CompareRow& row : RowsOf(comparison)) {
    EXPECT_FALSE(row.gap().has_value()) << row.name;
  }
  // A failure is told even if the row's first run has not ended.
  comparison.runs[3].state = "failed";
  comparison.runs[3].problem = "no such GPU";
  EXPECT_THAT(CompareTable(comparison), HasSubstr("\nbf16    failed: no such GPU\n"));
}

TEST(Listed, ALongList_IsCut) {
  const std::vector<std::string> nine = {"a", "b", "c", "d", "e", "f", "g", "h", "i"};
  EXPECT_EQ(Listed({"a", "b"}), "a; b");
  EXPECT_EQ(Listed({nine.begin(), nine.begin() + 8}), "a; b; c; d; e; f; g; h");
  EXPECT_EQ(Listed(nine), "a; b; c; d; e; f; g; h; and 1 more");
}

TEST(CompareTable, AnErrorThatWouldPrintAsZero_GivesItsColumnAThirdDigit) {
  Comparison comparison = Seeded({"bf16", "fp8", "nvfp4"});
  for (size_t i = 0; i < comparison.runs.size(); ++i) {
    ComparedRun& run = comparison.runs[i];
    // All gaps have an error of 0.4 %; that of fp8, held out, has 0.004 %.
    const double apart = 0.01 * static_cast<double>(*run.seed - 2);
    const double held_out = run.recipe == "fp8" ? 0.00693 : run.recipe == "nvfp4" ? 0.693 : 0;
    const double training = run.recipe == "bf16" ? 0 : 0.693;
    const double base = *comparison.runs[i - i % 3].held_out_loss;
    run.training_loss = *run.held_out_loss + base * training * apart;
    run.held_out_loss = *run.held_out_loss + base * held_out * apart;
  }
  Relate(comparison);
  const std::string table = CompareTable(comparison);
  EXPECT_THAT(table, HasSubstr("+1.00 ± 0.40 %    3.2320  +1.000 ± 0.004 % "));
  EXPECT_THAT(table, HasSubstr("+2.00 ± 0.40 %    3.2645  +2.000 ± 0.400 % "));
}

v1::JobSpec Job() {
  auto job = config::ParseJobSpec(R"(
name: compared
model: {preset: hearth-nano, vocab: 256}
data: {train: /nowhere, sequence_length: 32}
batch: {global_batch_tokens: 4096}
train: {steps: 1000, seed: 7}
)",
                                  "job.yaml");
  EXPECT_TRUE(job.ok()) << job.status();
  return *std::move(job);
}

std::vector<std::string> Folders(const std::vector<ComparedRun>& runs) {
  std::vector<std::string> folders;
  for (const ComparedRun& run : runs) {
    folders.push_back(FolderOf(run));
  }
  return folders;
}

TEST(PlanRuns, Seeds_BeginWithTheJobs) {
  const auto runs = PlanRuns(Job(), {"bf16", "fp8"}, {}, {}, 2);
  ASSERT_TRUE(runs.ok()) << runs.status();
  EXPECT_THAT(Folders(*runs), ElementsAre("bf16-seed7", "fp8-seed7", "bf16-seed8", "fp8-seed8"));
  EXPECT_EQ(JobOf(Job(), (*runs)[3])->train().seed(), 8);
  EXPECT_THAT(Folders(*PlanRuns(Job(), {"bf16", "fp8"}, {}, {}, 0)), ElementsAre("bf16", "fp8"));
}

TEST(PlanRuns, SettingThatARecipeDoesNotHave_IsOneRunOfIt) {
  const auto runs = PlanRuns(Job(), {"bf16", "nvfp4"}, {"precision.bf16_tail=0.1,0.2"}, {}, 0);
  ASSERT_TRUE(runs.ok()) << runs.status();
  EXPECT_THAT(Folders(*runs), ElementsAre("bf16", "nvfp4-bf16_tail=0.1", "nvfp4-bf16_tail=0.2"));
  Comparison comparison;
  comparison.runs = *runs;
  EXPECT_EQ(ReferenceOf(comparison, 2), 0U);
  EXPECT_TRUE(comparison.in_rows());
  // The default, which the others need not name.
  const auto none = PlanRuns(Job(), {"bf16", "nvfp4"}, {"precision.bf16_tail=0,0.2"}, {}, 0);
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_THAT(Folders(*none), ElementsAre("bf16", "nvfp4-bf16_tail=0", "nvfp4-bf16_tail=0.2"));
  EXPECT_TRUE((*none)[0].overrides.empty());
}

TEST(PlanRuns, SettingOfAllRecipes_HasAReferenceForEachValue) {
  const auto runs =
      PlanRuns(Job(), {"bf16", "fp8"}, {"optimizer.lr=1e-4,3e-4", "train.clip_to=1"}, {}, 0);
  EXPECT_FALSE(runs.ok()) << "no such field";
  const auto good = PlanRuns(Job(), {"bf16", "fp8"}, {"optimizer.lr=1e-4,3e-4"}, {}, 0);
  ASSERT_TRUE(good.ok()) << good.status();
  EXPECT_THAT(Folders(*good),
              ElementsAre("bf16-lr=1e-4", "fp8-lr=1e-4", "bf16-lr=3e-4", "fp8-lr=3e-4"));
  Comparison comparison;
  comparison.runs = *good;
  EXPECT_EQ(ReferenceOf(comparison, 1), 0U);
  EXPECT_EQ(ReferenceOf(comparison, 3), 2U);
}

// A study: every recipe as it is, and every switch alone where the recipe has it.
TEST(PlanRuns, Each_IsASettingOfItsOwnBesideThePlainJob) {
  const auto runs = PlanRuns(Job(), {"bf16", "mxfp8", "nvfp4"}, {},
                             {"precision.techniques.bf16_operands=dgrad.dy,[forward.x,forward.w]",
                              "precision.techniques.mxfp8_operands=dgrad.dy"},
                             0);
  ASSERT_TRUE(runs.ok()) << runs.status();
  EXPECT_THAT(
      Folders(*runs),
      ElementsAre("bf16", "mxfp8", "nvfp4", "mxfp8-bf16_operands=dgrad.dy",
                  "nvfp4-bf16_operands=dgrad.dy", "mxfp8-bf16_operands=-forward.x-forward.w-",
                  "nvfp4-bf16_operands=-forward.x-forward.w-", "nvfp4-mxfp8_operands=dgrad.dy"));
  Comparison comparison;
  comparison.runs = *runs;
  EXPECT_EQ(ReferenceOf(comparison, 7), 0U);
  const auto job = JobOf(Job(), (*runs)[6]);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_THAT(job->precision().techniques().bf16_operands(), ElementsAre("forward.x", "forward.w"));
}

TEST(PlanRuns, Each_GoesWithEverySettingOfVary) {
  const auto runs = PlanRuns(Job(), {"bf16", "fp8"}, {"optimizer.lr=1e-4,3e-4"},
                             {"precision.high_precision_linears=down"}, 0);
  ASSERT_TRUE(runs.ok()) << runs.status();
  EXPECT_THAT(Folders(*runs), ElementsAre("bf16-lr=1e-4", "fp8-lr=1e-4", "bf16-lr=3e-4",
                                          "fp8-lr=3e-4", "fp8-lr=1e-4-high_precision_linears=down",
                                          "fp8-lr=3e-4-high_precision_linears=down"));
  Comparison comparison;
  comparison.runs = *runs;
  EXPECT_EQ(ReferenceOf(comparison, 5), 2U);
}

TEST(PlanRuns, WhatIsNoField_IsRefusedWithTheWayOut) {
  const auto message = [](const std::string& vary) {
    return std::string(PlanRuns(Job(), {"bf16", "fp8"}, {vary}, {}, 0).status().message());
  };
  EXPECT_THAT(message("optimizer.lr"), HasSubstr("want FIELD=VALUE,VALUE,..."));
  EXPECT_THAT(message("optimizer.lr=1,"), HasSubstr("a value is empty"));
  EXPECT_THAT(message("precision.recipe=fp8"), HasSubstr("--recipes varies it"));
  EXPECT_THAT(message("train.seed=1,2"), HasSubstr("--seeds varies it"));
  EXPECT_THAT(message("optimizer.lrate=1"), Not(HasSubstr("--vary")));
}

}  // namespace
}  // namespace hearth::trainer
