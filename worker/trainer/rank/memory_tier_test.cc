// Each memory_tier trains, from the field of the job file to checkpoints that resume exactly.
#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "common/spec/fields/memory_tiers.h"
#include "common/spec/plan/batch.h"
#include "common/spec/resolve/resolve.h"
#include "gtest/gtest.h"
#include "tests/support/trainer/test_gang.h"
#include "tests/support/trainer/test_run.h"
#include "worker/trainer/checkpoint/meta.h"

namespace hearth::trainer {
namespace {

struct TierCase {
  int32_t tier = 0;
  int micro_batches = 1;  // of a step
};
void PrintTo(const TierCase& row, std::ostream* out) {
  *out << "tier " << row.tier << ", " << row.micro_batches << " micro-batches";
}

std::vector<TierCase> TierCases() {
  std::vector<TierCase> cases;
  for (const spec::MemoryTierRow& row : spec::MemoryTierRows()) {
    for (const int micro_batches : {1, 2}) {
      cases.push_back({row.tier, micro_batches});
    }
  }
  return cases;
}

class MemoryTierTest : public testing::TestWithParam<TierCase> {
 protected:
  static constexpr int kSteps = 40;

  v1::JobSpec Job(int workers = 1) const {
    v1::JobSpec job = SmallJob(dir_.path(), "qwen2");
    // As a job file that gives the tier in place of formats.
    job.clear_optimizer();
    job.clear_gradients();
    job.clear_recompute();
    job.clear_weights();
    job.mutable_optimizer()->set_lr(1e-2);
    job.mutable_precision()->set_recipe("bf16");
    // Matrices that formats in blocks take.
    job.mutable_model()->set_hidden(64);
    job.mutable_model()->set_head_dim(16);
    job.mutable_model()->set_ffn_hidden(96);
    job.mutable_model()->set_vocab(131);
    job.mutable_batch()->set_micro_batch_size(4);
    job.mutable_batch()->set_global_batch_tokens(int64_t{4} * job.data().sequence_length() *
                                                 GetParam().micro_batches * workers);
    job.mutable_resources()->set_workers(workers);
    job.mutable_resources()->set_min_workers(workers);
    job.mutable_train()->set_steps(kSteps);
    job.mutable_schedule()->set_decay_steps(kSteps - job.schedule().warmup_steps());
    job.mutable_checkpoint()->set_every_steps(kSteps / 2);
    job.set_memory_tier(GetParam().tier);
    std::vector<spec::FieldViolation> violations;
    spec::Resolve(job, violations);
    EXPECT_TRUE(violations.empty()) << spec::ViolationsToStatus(violations).ToString();
    return job;
  }

  TempDir dir_;
};
INSTANTIATE_TEST_SUITE_P(Tiers, MemoryTierTest, testing::ValuesIn(TierCases()));

std::string TensorsOf(const v1::CheckpointAnnouncement& checkpoint) {
  return *Env::Real().ReadFile(checkpoint.path() + "/model.safetensors") +
         *Env::Real().ReadFile(checkpoint.path() + "/" + std::string(kStateFile));
}

TEST_P(MemoryTierTest, TinyJob_Trains_Saves_AndResumesWithTheSameBits) {
  const v1::JobSpec job = Job();
  EXPECT_EQ(job.optimizer().name(), "muon");
  EXPECT_EQ(spec::NeedsOneMicroBatch(job), GetParam().micro_batches == 1);
  LocalKeyValueStore store;
  FakeLink whole(MakeTask(job, dir_.path() + "/whole"), store);
  const v1::TrainerExit exit = RunTo(whole);
  ASSERT_EQ(exit.reason(), v1::EXIT_REASON_FINISHED) << exit.message();
  ASSERT_EQ(whole.steps.size(), static_cast<size_t>(kSteps));
  EXPECT_LT(whole.steps.back().loss(), 0.95 * whole.steps.front().loss());
  ASSERT_EQ(whole.checkpoints.size(), 2U);
  v1::Task task = MakeTask(job, dir_.path() + "/resumed");
  ResumeFrom(whole.checkpoints[0], task);
  LocalKeyValueStore other;
  FakeLink resumed(task, other);
  const v1::TrainerExit again = RunTo(resumed);
  ASSERT_EQ(again.reason(), v1::EXIT_REASON_FINISHED) << again.message();
  ASSERT_EQ(resumed.steps.size(), static_cast<size_t>(kSteps / 2));
  ASSERT_FALSE(resumed.checkpoints.empty());
  EXPECT_TRUE(TensorsOf(resumed.checkpoints.back()) == TensorsOf(whole.checkpoints.back()));
}

// A tier goes with what else saves memory: several ranks that divide all, and offload.
TEST_P(MemoryTierTest, TwoRanks_ThatDivideWeights_AndOffload_Train) {
  v1::JobSpec job = Job(2);
  EXPECT_EQ(spec::NeedsOneMicroBatch(job), GetParam().micro_batches == 1);
  job.mutable_parallel()->set_shard("weights");
  job.mutable_offload()->set_optimizer(true);
  LocalKeyValueStore store;
  const Gang gang = RunGang(store, job, 2, dir_.path() + "/gang", 1, nullptr);
  for (const v1::TrainerExit& exit : gang.exits) {
    EXPECT_EQ(exit.reason(), v1::EXIT_REASON_FINISHED) << exit.message();
  }
  const FakeLink& leader = *gang.links[0];
  ASSERT_EQ(leader.steps.size(), static_cast<size_t>(kSteps));
  EXPECT_LT(leader.steps.back().loss(), 0.95 * leader.steps.front().loss());
  EXPECT_EQ(leader.checkpoints.size(), 2U);
}

}  // namespace
}  // namespace hearth::trainer
