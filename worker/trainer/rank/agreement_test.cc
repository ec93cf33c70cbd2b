#include "worker/trainer/rank/agreement.h"

#include <array>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/spec/plan/plan_inputs.h"
#include "gtest/gtest.h"
#include "tests/support/common/temp_dir.h"
#include "tests/support/trainer/test_link.h"
#include "tests/support/trainer/test_run.h"
#include "worker/trainer/device/rank_device.h"

namespace hearth::trainer {
namespace {

constexpr int kRanks = 2;
constexpr int64_t kAmple = int64_t{1} << 40;  // bytes

// What each of two ranks makes of `call(rank, collective)`, on a thread each.
template <typename Call>
auto OnBoth(const Call& call) {
  const auto comms = NewThreadCollectives(kRanks);
  std::array<decltype(call(0, *comms[0])), kRanks> results;
  std::thread other([&] { results[1] = call(1, *comms[1]); });
  results[0] = call(0, *comms[0]);
  other.join();
  return results;
}

TEST(CheckSameTest, DifferentValues_AreNamedByAllRanks) {
  for (const absl::Status& same :
       OnBoth([](int, Collective& comm) { return CheckSame(comm, "seed", -3); })) {
    EXPECT_TRUE(same.ok()) << same;
  }
  for (const absl::Status& differs : OnBoth(
           [](int rank, Collective&comm) { return CheckSame(comm, "seed", rank == 0 ? 5 : 3); })) {
    EXPECT_EQ(differs.code(), absl::StatusCode::kDataLoss);
    EXPECT_EQ(differs.message(), "seed: 3 and 5");
  }
}

constexpr spec::ShardLevel kOff = spec::ShardLevel::kOff;

class AgreementTest : public testing::Test {
 protected:
  AgreementTest() : spec_(SmallJob(data_.path())) {
    spec_.mutable_batch()->clear_micro_batch_size();  // auto
    spec_.mutable_resources()->set_workers(kRanks);
    spec_.mutable_parallel()->set_shard("auto");
  }

  int64_t ArenaBytes(int64_t micro_batch, spec::ShardLevel shard) const {
    const auto inputs = spec::MakePlanInputs(spec_, micro_batch, 1, true, kRanks, shard);
    return spec::PlanTraining((*inputs)->options)->arena_bytes();
  }
  // With so much memory on each rank, from the checkpoint if there is one.
  struct Outcome {
    int64_t value = 0;
    absl::Status status;
    v1::ExitReason blame = v1::EXIT_REASON_INTERNAL;
  };
  template <typename Function>
  std::array<Outcome, kRanks> Agree(std::array<int64_t, kRanks> bytes,
                                    const LoadedCheckpoint* resumed,
                                    const Function& function) const {
    return OnBoth([&](int rank, Collective& comm) {
      v1::Task task = MakeTask(spec_, "", rank, kRanks);
      task.set_device(device_);
      const AgreementParts parts = {{spec_},      &task,  &comm, bytes[static_cast<size_t>(rank)],
                                    whole_bytes_, resumed};
      Outcome outcome;
      const auto agreed = function(parts, outcome.blame);
      outcome.status = agreed.status();
      outcome.value = agreed.ok() ? static_cast<int64_t>(*agreed) : 0;
      return outcome;
    });
  }
  // Both ranks' answer.
  int64_t MicroBatch(std::array<int64_t, kRanks> bytes,
                     const LoadedCheckpoint* resumed = nullptr) const {
    const auto outcomes =
        Agree(bytes, resumed, [](const AgreementParts& parts, v1::ExitReason& blame) {
          return AgreeOnMicroBatch(parts, kOff, blame);
        });
    EXPECT_TRUE(outcomes[0].status.ok()) << outcomes[0].status;
    EXPECT_EQ(outcomes[0].value, outcomes[1].value);
    return outcomes[0].value;
  }

  TempDir data_;
  v1::JobSpec spec_;
  std::string device_ = "cpu";
  int64_t whole_bytes_ = kAmple;
};

// The global batch of 8 sequences is 4 a rank.
TEST_F(AgreementTest, MicroBatch_IsTheLargestThatAllRanksHaveMemoryFor) {
  EXPECT_EQ(MicroBatch({kAmple, kAmple}), 4);
  const int64_t small = ArenaBytes(4, kOff) - 1;
  EXPECT_EQ(MicroBatch({kAmple, small}), 2);
  EXPECT_EQ(MicroBatch({small, kAmple}), 2);
}

// The order of the sums depends on it: a resumed run keeps it. With another number of ranks the
// sums have another order anyway.
TEST_F(AgreementTest, MicroBatch_OfAResumedRun_IsThatOfItsCheckpoint) {
  LoadedCheckpoint checkpoint;
  checkpoint.meta.micro_batch_size = 1;
  checkpoint.meta.world_size = kRanks;
  EXPECT_EQ(MicroBatch({kAmple, kAmple}, &checkpoint), 1);
  checkpoint.meta.world_size = kRanks + 1;
  EXPECT_EQ(MicroBatch({kAmple, kAmple}, &checkpoint), 4);
  spec_.mutable_batch()->clear_global_batch_tokens();
  EXPECT_EQ(MicroBatch({kAmple, kAmple}, &checkpoint), 1)
      << "an open global batch follows from the micro-batch";
}

TEST_F(AgreementTest, ShardLevel_IsWhatTheRankWithTheLeastMemoryNeeds) {
  spec_.mutable_batch()->set_micro_batch_size(1);
  const int64_t whole = ArenaBytes(1, kOff);
  const int64_t optimizer = ArenaBytes(1, spec::ShardLevel::kOptimizer);
  ASSERT_LT(optimizer, whole);
  ASSERT_LT(ArenaBytes(1, spec::ShardLevel::kGradients), optimizer);
  const auto level = [this](std::array<int64_t, kRanks> bytes) {
    const auto outcomes = Agree(bytes, nullptr, AgreeOnShardLevel);
    EXPECT_TRUE(outcomes[0].status.ok()) << outcomes[0].status;
    EXPECT_EQ(outcomes[0].value, outcomes[1].value);
    return static_cast<spec::ShardLevel>(outcomes[0].value);
  };
  EXPECT_EQ(level({whole, whole}), kOff);
  EXPECT_EQ(level({whole, whole - 1}), spec::ShardLevel::kOptimizer);
  EXPECT_EQ(level({whole - 1, whole}), spec::ShardLevel::kOptimizer);
  EXPECT_EQ(level({optimizer - 1, whole}), spec::ShardLevel::kGradients);
}

TEST_F(AgreementTest, AJobThatFitsNoRank_IsBlamedOnTheSpecOrOnTheGpuOfThisStart) {
  for (const auto& [device, blame] :
       {std::pair("cpu", v1::EXIT_REASON_BAD_SPEC), std::pair("cuda:0", v1::EXIT_REASON_DEVICE)}) {
    device_ = device;
    const auto outcomes = Agree({1, 1}, nullptr, [](const auto& parts, v1::ExitReason& blamed) {
      return AgreeOnMicroBatch(parts, kOff, blamed);
    });
    for (const Outcome& outcome : outcomes) {
      EXPECT_EQ(outcome.status.code(), absl::StatusCode::kResourceExhausted) << outcome.status;
      EXPECT_EQ(outcome.blame, blame) << device;
      EXPECT_FALSE(IsDeviceTooSmall(outcome.status)) << "others use the GPU's memory";
    }
  }
}

TEST_F(AgreementTest, AJobThatFitsNoGpuOfThisSize_SaysSo) {
  whole_bytes_ = 1;
  for (const bool gpu : {false, true}) {
    device_ = gpu ? "cuda:0" : "cpu";
    const auto outcomes = Agree({1, 1}, nullptr, [](const auto& parts, v1::ExitReason& blamed) {
      return AgreeOnMicroBatch(parts, kOff, blamed);
    });
    for (const Outcome& outcome : outcomes) {
      EXPECT_EQ(outcome.status.code(), absl::StatusCode::kResourceExhausted) << outcome.status;
      EXPECT_EQ(IsDeviceTooSmall(outcome.status), gpu) << "a machine is not chosen by its memory";
    }
  }
}

}  // namespace
}  // namespace hearth::trainer
