#include "common/spec/fields/memory_tiers.h"

#include <algorithm>
#include <string>
#include <vector>

#include "common/spec/fields/conditions.h"
#include "common/spec/fields/idle.h"
#include "common/spec/fields/rows.h"
#include "common/spec/plan/plan_inputs.h"
#include "common/spec/plan/training_plan.h"
#include "common/spec/resolve/resolve.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hearth::spec {
namespace {

using ::testing::HasSubstr;

v1::JobSpec JobOf(int32_t tier) {
  v1::JobSpec job;
  job.set_name("tiers");
  job.mutable_model()->set_preset("hearth-112m");
  job.mutable_data()->add_train()->set_path("/data");
  job.mutable_data()->set_sequence_length(1024);
  job.mutable_batch()->set_micro_batch_size(1);
  job.mutable_train()->set_steps(1000);
  job.mutable_resources()->set_device("cuda");
  if (tier > 0) {
    job.set_memory_tier(tier);
  }
  return job;
}

v1::JobSpec Resolved(v1::JobSpec job) {
  std::vector<FieldViolation> violations;
  ResolveSubmitted(job, violations);
  EXPECT_TRUE(violations.empty()) << ViolationsToStatus(violations);
  return job;
}

int64_t ArenaBytes(const v1::JobSpec& job) {
  // So many sequences that activations count.
  const auto inputs = MakePlanInputs(job, 8, 1, /*training=*/true);
  EXPECT_TRUE(inputs.ok()) << inputs.status();
  return PlanTraining((*inputs)->options)->arena_bytes();
}

TEST(MemoryTiersTest, Settings_AreNamesOfTheirRows) {
  const v1::JobSpec job;
  int32_t tier = 0;
  for (const MemoryTierRow& row : MemoryTierRows()) {
    EXPECT_EQ(row.tier, ++tier);
    for (const TierSetting& setting : row.settings) {
      const Place place = FindPlace(job, setting.path);
      ASSERT_NE(place.field, nullptr) << setting.path;
      const std::vector<std::string_view> names = NamesOf(RowOf(*place.field));
      EXPECT_NE(std::find(names.begin(), names.end(), setting.value), names.end())
          << setting.path << " " << setting.value;
    }
  }
  EXPECT_EQ(tier, 3) << "the range of memory_tier";
}

TEST(MemoryTiersTest, EachTier_Resolves_SetsItsFields_AndTakesLess) {
  int64_t before = ArenaBytes(Resolved(JobOf(0)));
  for (const MemoryTierRow& row : MemoryTierRows()) {
    const v1::JobSpec job = Resolved(JobOf(row.tier));
    for (const TierSetting& setting : row.settings) {
      EXPECT_EQ(ValueText(job, setting.path).value_or(""), setting.value) << setting.path;
    }
    const int64_t bytes = ArenaBytes(job);
    EXPECT_LT(bytes, before) << row.name;
    before = bytes;
    EXPECT_EQ(ArenaBytes(WithMemoryTier(Resolved(JobOf(0)), row)), bytes) << row.name;
  }
}

TEST(MemoryTiersTest, WhatTheJobGives_Wins) {
  v1::JobSpec job = JobOf(1);
  job.mutable_optimizer()->set_name("adamw");
  job.mutable_weights()->set_store("int8");
  job = Resolved(job);
  EXPECT_EQ(job.optimizer().name(), "adamw");
  EXPECT_EQ(job.optimizer().state(), "int8");
  EXPECT_EQ(job.weights().store(), "int8");
}

TEST(MemoryTiersTest, WithoutNarrowWeights_ItIsRefused) {
  v1::JobSpec job = JobOf(1);
  job.mutable_precision()->set_recipe("fp32");
  std::vector<FieldViolation> violations;
  ResolveSubmitted(job, violations);
  ASSERT_EQ(violations.size(), 1U) << ViolationsToStatus(violations);
  EXPECT_EQ(violations[0].field, "memory_tier");
  EXPECT_THAT(violations[0].description, HasSubstr("changes nothing"));
  EXPECT_FALSE(job.has_weights());
}

}  // namespace
}  // namespace hearth::spec
