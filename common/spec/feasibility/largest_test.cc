#include "common/spec/feasibility/largest.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/table_rows.h"
#include "common/spec/feasibility/memory/state_choice.h"
#include "common/spec/gpus/gpus.h"
#include "gtest/gtest.h"
#include "tests/support/common/planned_job.h"

namespace hearth::spec {
namespace {

TEST(LargestTest, TheLargestOfAFamily_FitsAndGrowsWithTheGpu) {
  const auto family = FamilyOf(PlannedJob("hearth-112m", "bf16", 1, 1024), 1, int64_t{34} << 30);
  ASSERT_TRUE(family.ok()) << family.status();
  const FamilyModel* const small = LargestOf(*family, GpuNamed("RTX 3060").memory_bytes());
  const FamilyModel* const large = LargestOf(*family, GpuNamed("RTX 5090").memory_bytes());
  ASSERT_TRUE(small != nullptr && large != nullptr);
  EXPECT_LE(large->total_bytes, GpuNamed("RTX 5090").memory_bytes());
  EXPECT_GT(large->parameters, 2 * small->parameters);
  EXPECT_EQ(LargestOf(*family, 1), nullptr);
  const FamilyModel* const next = FirstTooLarge(*family, GpuNamed("RTX 5090").memory_bytes());
  ASSERT_NE(next, nullptr);
  EXPECT_GT(next->parameters, large->parameters);
  EXPECT_EQ(large->heads * 64, large->hidden);
  EXPECT_EQ(large->head_dim, 64);
}

// `jobctl plan --largest` named models that left no margin, which the trainer refused.
TEST(LargestTest, Model_FitsIntoWhatTheTrainerPlansWith) {
  constexpr int64_t kArena = int64_t{7} << 30;
  const std::vector<FamilyModel> family = {
      {.layers = 1, .parameters = 1, .total_bytes = kArena / 2},
      {.layers = 2, .parameters = 2, .total_bytes = kArena + OverheadBytes(1)},
      {.layers = 3, .parameters = 3, .total_bytes = 2 * kArena}};
  const int64_t memory = kArena + OverheadBytes(1) + kOverheadMarginBytes;
  ASSERT_EQ(PlannableBytes("cuda", memory, 1), kArena);
  EXPECT_EQ(LargestOf(family, memory), &family[1]);
  EXPECT_EQ(FirstTooLarge(family, memory), &family[2]);
  EXPECT_EQ(LargestOf(family, memory - 1), &family[0]);
  EXPECT_EQ(FirstTooLarge(family, memory - 1), &family[1]);
  EXPECT_EQ(FirstTooLarge(family, 1), &family[0]);
  EXPECT_EQ(FirstTooLarge(family, 4 * memory), nullptr);
}

TEST(LargestTest, NarrowerFormats_TrainLargerModels) {
  const auto families = FamiliesOf(PlannedJob("hearth-112m", "bf16", 1, 1024), 1,
                                   GpuNamed("RTX 3060").memory_bytes());
  ASSERT_TRUE(families.ok()) << families.status();
  const auto largest = [&](const char* name) -> double {
    for (const FormatFamily& family : *families) {
      if (ShortChoiceText(family.format) == name) {
        const FamilyModel* model = LargestOf(family.models, GpuNamed("RTX 3060").memory_bytes());
        return model != nullptr ? static_cast<double>(model->parameters) : 0;
      }
    }
    ADD_FAILURE() << "no row " << name;
    return 0;
  };
  EXPECT_GT(largest("adamw"), 0);
  EXPECT_GT(largest("muon"), largest("adamw"));
  EXPECT_GT(largest("adamw+int8"), largest("adamw+bf16"));
  EXPECT_GT(largest("adamw+int8+no-masters"), 1.5 * largest("adamw+int8"));
  // The tiers come last. From the second on they keep less for a parameter than any format of state
  // alone.
  const auto tier = std::find_if(families->begin(), families->end(),
                                 [](const FormatFamily& f) { return f.tier == "memory_tier: 2"; });
  ASSERT_NE(tier, families->end());
  const FamilyModel* const model = LargestOf(tier->models, GpuNamed("RTX 3060").memory_bytes());
  ASSERT_NE(model, nullptr);
  EXPECT_GT(static_cast<double>(model->parameters), largest("muon+int8+no-masters"));
  EXPECT_EQ(families->back().tier, "memory_tier: 3");
}

// Gradients take less of every tier if a step has one micro-batch.
TEST(LargestTest, Tiers_OfOneMicroBatchAStep_TakeLess) {
  v1::JobSpec job = PlannedJob("hearth-112m", "bf16", 1, 1024);
  const int64_t bytes = int64_t{8} << 30;
  const auto several = FamiliesOf(job, 1, 2 * bytes);
  job.mutable_batch()->set_global_batch_tokens(1024);
  const auto one = FamiliesOf(job, 1, bytes);
  ASSERT_TRUE(several.ok() && one.ok());
  int tiers = 0;
  for (const FormatFamily& family : *one) {
    if (family.tier.empty()) {
      continue;
    }
    ++tiers;
    const FormatFamily* const same = FindRow(*several, &FormatFamily::tier, family.tier);
    ASSERT_NE(same, nullptr) << family.tier;
    const FamilyModel* const largest = LargestOf(family.models, bytes);
    ASSERT_NE(largest, nullptr) << family.tier;
    const FamilyModel* const model =
        FindRow(same->models, &FamilyModel::parameters, largest->parameters);
    ASSERT_NE(model, nullptr) << family.tier;
    EXPECT_LT(largest->total_bytes, model->total_bytes) << family.tier;
  }
  EXPECT_EQ(tiers, 3);
}

}  // namespace
}  // namespace hearth::spec
