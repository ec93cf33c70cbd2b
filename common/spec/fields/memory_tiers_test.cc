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
      if (place.field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_BOOL) {
        EXPECT_EQ(setting.value, "true") << setting.path;
        continue;
      }
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
  v1::JobSpec job = JobOf(3);
  job.mutable_optimizer()->set_name("adamw");
  job.mutable_weights()->set_store("int8");
  job = Resolved(job);
  EXPECT_EQ(job.optimizer().name(), "adamw");
  EXPECT_EQ(job.optimizer().state(), "int8");
  EXPECT_EQ(job.weights().store(), "int8");
}

// The job's value of a setting with a condition.
std::string Conditional(const MemoryTierRow& row, const v1::JobSpec& job) {
  const auto setting = std::find_if(row.settings.begin(), row.settings.end(),
                                    [](const TierSetting& one) { return !one.when.empty(); });
  EXPECT_NE(setting, row.settings.end());
  return ValueText(job, setting->path).value_or("") == setting->value ? "set" : "left out";
}

TEST(MemoryTiersTest, SeveralMicroBatches_GetTheTierWithoutWhatNeedsOne) {
  for (const MemoryTierRow& row : MemoryTierRows()) {
    v1::JobSpec job = JobOf(row.tier);
    job.mutable_batch()->set_global_batch_tokens(1024);
    EXPECT_EQ(Conditional(row, Resolved(job)), "set");
    job.mutable_batch()->set_global_batch_tokens(2048);
    EXPECT_EQ(Conditional(row, Resolved(job)), "left out");
    EXPECT_EQ(Resolved(job).optimizer().name(), "muon");
    EXPECT_EQ(Conditional(row, WithMemoryTier(Resolved(job), row)), "left out");
    job.mutable_resources()->set_workers(2);
    EXPECT_EQ(Conditional(row, Resolved(job)), "set");
    job.mutable_resources()->set_min_workers(1);
    EXPECT_EQ(Conditional(row, Resolved(job)), "left out");
  }
}

// The job's own setting stays, and what does not go with it is left out.
TEST(MemoryTiersTest, WhatDoesNotGoWithTheJobsOwn_IsLeftOut) {
  const absl::Span<const MemoryTierRow> rows = MemoryTierRows();
  v1::JobSpec fused = JobOf(1);
  fused.mutable_optimizer()->set_fused(true);
  EXPECT_EQ(Conditional(rows[0], Resolved(fused)), "left out");
  v1::JobSpec coded = JobOf(3);
  coded.mutable_gradients()->set_store("fp8");
  EXPECT_EQ(Conditional(rows[2], Resolved(coded)), "left out");
  EXPECT_EQ(Conditional(rows[2], WithMemoryTier(Resolved(coded), rows[2])), "set");
  v1::JobSpec guarded = JobOf(3);
  guarded.mutable_train()->set_spike_grad_sigma(6);
  EXPECT_EQ(Conditional(rows[2], Resolved(guarded)), "left out");
  v1::JobSpec counted = JobOf(3);
  counted.mutable_precision()->set_recipe("fp8");
  counted.mutable_precision()->set_stats_every(10);
  EXPECT_EQ(Conditional(rows[2], Resolved(counted)), "left out");
}

// Parts of a tier that a small model has no tensors for are no keys of the user.
TEST(MemoryTiersTest, ModelTooSmallForBlocks_IsNotRefused) {
  for (const MemoryTierRow& row : MemoryTierRows()) {
    v1::JobSpec job = JobOf(row.tier);
    v1::ModelSpec& model = *job.mutable_model();
    model.set_layers(1);
    model.set_hidden(40);
    model.set_heads(5);
    model.set_kv_heads(5);
    model.set_head_dim(8);
    model.set_ffn_hidden(72);
    const v1::JobSpec resolved = Resolved(job);
    Resolved(resolved);  // and what it resolves to can be submitted again
  }
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
