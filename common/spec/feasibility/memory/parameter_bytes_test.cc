#include "common/spec/feasibility/memory/parameter_bytes.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/table_rows.h"
#include "common/spec/feasibility/memory/state_choice.h"
#include "common/spec/gpus/gpus.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/common/planned_job.h"

namespace hearth::spec {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const ParameterBytes* Find(const std::string& name) {
  return FindRow(ParameterByteRows(), &ParameterBytes::name, name);
}

TEST(StateFormatsTest, BytesOfAParameter_AreThosePublished) {
  const double plain[] = {12,     8,      10.5625, 4.5625, 3.5625, 3.0625,
                          2.0625, 2.8828, 1.8828,  5.0625, 3.5625, 2.5625};
  ASSERT_EQ(AskedParameterBytes().size(), std::size(plain));
  for (size_t i = 0; i < std::size(plain); ++i) {
    EXPECT_NEAR(AskedParameterBytes()[i].bytes(), plain[i], 5e-5) << AskedParameterBytes()[i].name;
  }
}

TEST(StateFormatsTest, ScalesOfBlocks_AreCountedBesideThem) {
  const absl::Span<const ParameterBytes> asked = AskedParameterBytes();
  EXPECT_NEAR(asked[5].with_scales(), 3.1875, 5e-5);
  EXPECT_NEAR(asked[6].with_scales(), 2.1953, 5e-5);
  EXPECT_NEAR(asked[8].with_scales(), 2.0391, 5e-5);
  EXPECT_NEAR(asked[11].with_scales(), 2.5625 + 1.0 / 128 + 4.0 / 256, 5e-5);
  EXPECT_EQ(asked[0].with_scales(), 12.0) << "no blocks, no scales";
}

// docs/memory.md.
TEST(StateFormatsTest, WhatThisVersionTrains_HasTheBytesOfItsTables) {
  const struct {
    const char* name;
    double bytes;
  } rows[] = {
      {"adamw, state fp32, fp32 masters, gradients fp32", 18},
      {"adamw, state fp32, fp32 masters, gradients bf16", 16},
      {"adamw, state bf16, fp32 masters, gradients bf16", 12},
      {"adamw, state int8, fp32 masters, gradients bf16", 10.03125},
      {"adamw, state int4, fp32 masters, gradients bf16", 9.0625},
      {"adamw, state int8, no masters, gradients bf16", 6.03125},
      {"adamw, state int4, no masters, gradients bf16", 5.0625},
      {"muon, state fp32, fp32 masters, gradients bf16", 12},
      {"muon, state bf16, fp32 masters, gradients bf16", 10},
      {"muon, state int8, fp32 masters, gradients bf16", 9.015625},
      {"muon, state fp32, no masters, gradients bf16", 8},
      {"muon, state int8, no masters, gradients bf16", 5.015625},
      // The matrix of q, k and v is 1152 x 768: an element takes half a byte, a 16th, and in bf16
      // 8 / 768 and 3 * 8 / 1152.
      {"muon, state int4, fp32 masters, gradients bf16", 8.6250},
      {"muon, state int4, no masters, gradients bf16", 4.6250},
  };
  for (const auto& row : rows) {
    const ParameterBytes* const found = Find(row.name);
    ASSERT_NE(found, nullptr) << row.name;
    EXPECT_TRUE(found->built) << row.name;
    EXPECT_NEAR(found->with_scales(), row.bytes, 5e-5) << row.name;
  }
}

// Each combination that the job file's rules allow is a row, and only those are.
TEST(StateFormatsTest, WhatThisVersionTrains_IsWhatTheRulesAllow) {
  const v1::JobSpec job = PlannedJob("hearth-112m", "bf16");
  size_t allowed = 0;
  for (const std::string_view optimizer : StateFields()[0].values()) {
    for (const std::string_view state : StateFields()[1].values()) {
      for (const std::string_view master : StateFields()[2].values()) {
        for (const std::string_view gradients : StateFields()[3].values()) {
          const StateChoice choice = {std::string(optimizer), std::string(state),
                                      std::string(master), std::string(gradients)};
          const bool ok = CheckChoice(job, choice).ok();
          const ParameterBytes* const row =
              Find(absl::StrCat(ChoiceText(choice), ", gradients ", choice.gradients));
          EXPECT_EQ(row != nullptr, ok) << ChoiceText(choice);
          allowed += ok ? 1 : 0;
        }
      }
    }
  }
  EXPECT_EQ(ParameterByteRows().size(), allowed + AskedParameterBytes().size());
  EXPECT_GE(allowed, 28U);
  // FP16, gradients in E4M3 with FP32 scales, and IQ3_XXS are in no table.
  for (size_t i = 0; i < AskedParameterBytes().size(); ++i) {
    EXPECT_EQ(AskedParameterBytes()[i].built, i == 6 || i >= 9) << AskedParameterBytes()[i].name;
  }
}

TEST(StateChoiceTest, WhatTheRulesRefuse_IsRefused) {
  const v1::JobSpec job = PlannedJob("hearth-112m", "bf16");
  StateChoice choice = ChoiceOf(job);
  EXPECT_TRUE(CheckChoice(job, choice).ok());
  choice.master = "none";
  EXPECT_TRUE(CheckChoice(job, choice).ok());
  EXPECT_THAT(std::string(CheckChoice(PlannedJob("hearth-112m", "fp32"), choice).message()),
              HasSubstr("optimizer.master"));
  choice = {"muon", "int4", "fp32", ""};
  v1::JobSpec away = job;
  away.mutable_offload()->set_optimizer(true);
  EXPECT_THAT(std::string(CheckChoice(away, choice).message()), HasSubstr("offload.optimizer"));
  for (const char* state : {"bf16", "int8", "int4"}) {
    EXPECT_TRUE(CheckChoice(job, {"muon", state, "none", ""}).ok()) << state;
  }
  choice.state = "int2";
  EXPECT_THAT(std::string(CheckChoice(job, choice).message()), HasSubstr("optimizer.state"));
}

TEST(StateChoiceTest, KeysThatMeanNothingWithAnotherOptimizer_AreNamed) {
  v1::JobSpec job = PlannedJob("hearth-112m", "bf16");
  job = WithChoice(job, {"muon", "fp32", "fp32", ""});
  job.mutable_optimizer()->set_momentum(0.9);
  EXPECT_THAT(IdleWith(job, ChoiceOf(job)), IsEmpty());
  EXPECT_THAT(IdleWith(job, {"adamw", "int8", "fp32", "bf16"}), ElementsAre("optimizer.momentum"));
}

TEST(StateChoiceTest, ChoicesByLoss_BeginWithTheJobAndChangeTheLeastFirst) {
  const v1::JobSpec job = PlannedJob("hearth-112m", "bf16");
  const std::vector<StateChoice> choices = ChoicesByLoss(job);
  const auto place = [&](const char* state, const char* master, const char* gradients) {
    const StateChoice choice = {"adamw", state, master, gradients};
    const auto it = std::find(choices.begin(), choices.end(), choice);
    EXPECT_NE(it, choices.end()) << state << " " << master << " " << gradients;
    return it - choices.begin();
  };
  EXPECT_EQ(choices.front(), ChoiceOf(job));
  EXPECT_LT(place("fp32", "fp32", "bf16"), place("int8", "fp32", "fp32"));
  EXPECT_LT(place("int8", "fp32", "bf16"), place("int8", "none", "fp32"));
  EXPECT_LT(place("int8", "none", "bf16"), place("int4", "fp32", "bf16"));
  for (const StateChoice& choice : choices) {
    EXPECT_NE(choice.state, "bf16") << "it is not proposed";
  }
}

// A figure that was measured with one optimizer says nothing of another.
TEST(StateChoiceTest, LossOf_IsThatOfTheJobsOptimizer) {
  EXPECT_EQ(LossOf("optimizer.state", "int8", "adamw"), "0.00 %");
  EXPECT_EQ(LossOf("optimizer.state", "int8", "muon"), "-0.05 %");
  EXPECT_EQ(LossOf("optimizer.state", "bf16", "muon"), "+0.04 %");
  EXPECT_EQ(LossOf("weights.store", "q4_0", "muon"), "+26.8 %");
  EXPECT_EQ(LossOf("weights.store", "q4_0", "adamw"), "");
  EXPECT_EQ(LossOf("optimizer.name", "muon", "muon"), "-17 %");
}

// Billions of parameters: 0.8 x GB / bytes.
struct LargestCase {
  const char* gpu;
  double billions[3];
};
constexpr LargestCase kLargest[] = {
    {"RTX 3060", {0.80, 3.13, 5.10}},  {"RTX 3090", {1.60, 6.27, 10.2}},
    {"RTX 4080", {1.07, 4.18, 6.80}},  {"RTX 4090", {1.60, 6.27, 10.2}},
    {"RTX 5080", {1.07, 4.18, 6.80}},  {"RTX 5090", {2.13, 8.36, 13.6}},
    {"RTX A6000", {3.20, 12.5, 20.4}}, {"A100 40GB", {2.67, 10.4, 17.0}},
    {"A100 80GB", {5.33, 20.9, 34.0}}, {"H100 SXM", {5.33, 20.9, 34.0}},
    {"H200", {9.40, 36.8, 59.9}},
};

TEST(StateFormatsTest, LargestModels_OfElevenGpusAndThreeTiers) {
  ASSERT_EQ(ParameterByteTiers().size(), 3U);
  for (const LargestCase& expected : kLargest) {
    const auto gpu = GpuByName(expected.gpu);
    ASSERT_TRUE(gpu.ok()) << expected.gpu;
    for (size_t tier = 0; tier < 3; ++tier) {
      const double billions =
          1e-9 * LargestParameters((*gpu)->memory_gb, ParameterByteTiers()[tier]->bytes());
      EXPECT_NEAR(billions / expected.billions[tier], 1, 0.005) << expected.gpu << " " << tier;
    }
  }
}

}  // namespace
}  // namespace hearth::spec
