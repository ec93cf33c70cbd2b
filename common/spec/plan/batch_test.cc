#include "common/spec/plan/batch.h"

#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hearth::spec {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(MakeBatchPlanTest, Design_Example_Has16MicroBatches) {
  const auto plan = MakeBatchPlan(589824, 18, 2048, 8);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->micro_batches, 16);
  EXPECT_EQ(plan->rounds(), 2);
  EXPECT_EQ(plan->global_tokens(), 589824);
}

TEST(MakeBatchPlanTest, NotAMultiple_IsRefusedWithTheNearest) {
  const auto plan = MakeBatchPlan(1000, 2, 128, 1);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(plan.status().message()), HasSubstr("768 or 1024"));
}

TEST(MakeBatchPlanTest, MoreWorkersThanMicroBatches_IsRefused) {
  const auto plan = MakeBatchPlan(512, 2, 128, 3);
  ASSERT_FALSE(plan.ok());
  EXPECT_THAT(std::string(plan.status().message()), HasSubstr("too few for 3 workers"));
}

TEST(MakeBatchPlanTest, ZeroSizes_AreRefused) {
  EXPECT_FALSE(MakeBatchPlan(512, 0, 128, 1).ok());
  EXPECT_FALSE(MakeBatchPlan(0, 1, 128, 1).ok());
  EXPECT_FALSE(MakeBatchPlan(512, 1, 128, 0).ok());
}

TEST(BatchPlanTest, AnyWorldSize_EveryMicroBatchRunsOnceAndAllRanksEndTogether) {
  for (int64_t micro_batches = 1; micro_batches <= 17; ++micro_batches) {
    for (int64_t world = 1; world <= micro_batches; ++world) {
      const BatchPlan plan{.micro_batch = 3,
                           .sequence_length = 8,
                           .micro_batches = micro_batches,
                           .world_size = world};
      std::multiset<int64_t> seen;
      for (int64_t rank = 0; rank < world; ++rank) {
        int64_t count = 0;
        for (int64_t round = 0; round < plan.rounds(); ++round) {
          const int64_t index = plan.MicroBatchAt(rank, round);
          if (index >= 0) {
            EXPECT_EQ(index % world, rank);
            seen.insert(index);
            ++count;
          } else {
            EXPECT_EQ(round, 0) << "only the first round may be sat out";
          }
        }
        EXPECT_EQ(count, plan.CountForRank(rank));
        EXPECT_GE(plan.MicroBatchAt(rank, plan.rounds() - 1), 0) << "all ranks end on work";
        EXPECT_EQ(plan.MicroBatchAt(rank, plan.rounds()), -1);
      }
      EXPECT_EQ(seen.size(), static_cast<size_t>(micro_batches));
      EXPECT_EQ(std::set<int64_t>(seen.begin(), seen.end()).size(), seen.size());
    }
  }
}

TEST(BatchPlanTest, FirstSample_ConsecutiveSteps_LeaveNoGap) {
  const BatchPlan plan{.micro_batch = 3, .sequence_length = 8, .micro_batches = 4};
  EXPECT_EQ(plan.FirstSample(1, 0), 0);
  EXPECT_EQ(plan.FirstSample(1, 3), 9);
  EXPECT_EQ(plan.FirstSample(2, 0), 12);
}

TEST(MicroBatchCandidatesTest, Divisors_LargestFirstWithinLimits) {
  EXPECT_THAT(MicroBatchCandidates(768, 64, 2, 100), ElementsAre(6, 4, 3, 2, 1));
  EXPECT_THAT(MicroBatchCandidates(768, 64, 2, 3), ElementsAre(3, 2, 1));
  EXPECT_TRUE(MicroBatchCandidates(100, 64, 1, 8).empty());
  EXPECT_TRUE(MicroBatchCandidates(64, 64, 2, 8).empty());
}

TEST(OneMicroBatchEachTest, Sizes_AreWholeOrNone) {
  EXPECT_EQ(OneMicroBatchEach(4096, 512, 2), std::vector<int64_t>{4});
  EXPECT_EQ(OneMicroBatchEach(512, 512, 1), std::vector<int64_t>{1});
  EXPECT_TRUE(OneMicroBatchEach(1536, 512, 2).empty());
  EXPECT_TRUE(OneMicroBatchEach(0, 512, 1).empty());
  EXPECT_TRUE(OneMicroBatchEach(512, 0, 1).empty());
}

TEST(HasOneMicroBatchTest, FollowsFromTheBatchAndTheWorkers) {
  v1::JobSpec job;
  job.mutable_data()->set_sequence_length(512);
  EXPECT_TRUE(HasOneMicroBatch(job)) << "the global batch follows from the micro-batch";
  job.mutable_batch()->set_global_batch_tokens(4096);
  EXPECT_FALSE(HasOneMicroBatch(job)) << "the size that fits may be less";
  job.mutable_batch()->set_micro_batch_size(8);
  EXPECT_TRUE(HasOneMicroBatch(job));
  job.mutable_batch()->set_micro_batch_size(4);
  EXPECT_FALSE(HasOneMicroBatch(job));
  job.mutable_resources()->set_workers(2);
  EXPECT_TRUE(HasOneMicroBatch(job));
  job.mutable_resources()->set_min_workers(1);
  EXPECT_FALSE(HasOneMicroBatch(job)) << "one worker would have both";
}

}  // namespace
}  // namespace hearth::spec
