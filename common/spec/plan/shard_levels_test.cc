#include "common/spec/plan/shard_levels.h"

#include "common/spec/fields/rows.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hearth::spec {
namespace {

using ::testing::ElementsAre;

std::vector<ShardLevel> Allowed(const char* shard, int world_size) {
  v1::JobSpec job;
  job.mutable_parallel()->set_shard(shard);
  return AllowedShardLevels(job, world_size);
}

TEST(ShardLevels, EachRow_IsThatOfItsLevel_AndDividesWhatTheOneBeforeDoes) {
  const ShardRow* before = nullptr;
  for (const ShardRow& row : ShardRows()) {
    EXPECT_EQ(&RowOf(row.level), &row);
    EXPECT_EQ(ShardsOf(row.level, 4), row.optimizer ? 4 : 1) << row.name;
    if (before != nullptr) {
      EXPECT_GE(row.optimizer, before->optimizer) << row.name;
      EXPECT_GE(row.gradients, before->gradients) << row.name;
      EXPECT_GE(row.weights, before->weights) << row.name;
    }
    before = &row;
  }
}

TEST(ShardLevels, Allowed_AreTheOneThatTheJobNames_OrAll_PlainestFirst) {
  for (const ShardRow& row : ShardRows()) {
    EXPECT_THAT(Allowed(std::string(row.name).c_str(), 2), ElementsAre(row.level));
    EXPECT_THAT(Allowed(std::string(row.name).c_str(), 1), ElementsAre(ShardLevel::kOff));
  }
  EXPECT_THAT(Allowed("auto", 2), ElementsAre(ShardLevel::kOff, ShardLevel::kOptimizer,
                                              ShardLevel::kGradients, ShardLevel::kWeights));
  EXPECT_EQ(AllowedShardLevels(v1::JobSpec(), 2), Allowed("auto", 2));
}

TEST(ShardLevels, StatesOfWholeMatrices_AreDividedByNoLevel) {
  v1::JobSpec job;
  job.mutable_parallel()->set_shard("auto");
  job.mutable_optimizer()->set_name("muon");
  job.mutable_optimizer()->set_state("int4");
  EXPECT_THAT(AllowedShardLevels(job, 2), ElementsAre(ShardLevel::kOff));
  job.mutable_optimizer()->set_state("int8");
  EXPECT_EQ(AllowedShardLevels(job, 2), Allowed("auto", 2));
}

TEST(ShardLevels, StoredJobsOfOlderVersions_KeepTheirLevel) {
  EXPECT_THAT(Allowed("on", 2), ElementsAre(ShardLevel::kOptimizer));
  // The field had number 1 and these values when it was called shard_optimizer.
  v1::JobSpec job;
  ASSERT_TRUE(job.mutable_parallel()->ParseFromString("\x0a\x02on"));
  EXPECT_THAT(AllowedShardLevels(job, 3), ElementsAre(ShardLevel::kOptimizer));
  ModerniseValues(job);
  EXPECT_EQ(job.parallel().shard(), "optimizer");
  ASSERT_TRUE(job.mutable_parallel()->ParseFromString("\x0a\x03off"));
  EXPECT_THAT(AllowedShardLevels(job, 3), ElementsAre(ShardLevel::kOff));
}

}  // namespace
}  // namespace hearth::spec
