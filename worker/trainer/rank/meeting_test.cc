#include "worker/trainer/rank/meeting.h"

#include <array>
#include <cstdint>
#include <thread>

#include "gtest/gtest.h"
#include "tests/support/trainer/one_rank.h"

namespace hearth::trainer {
namespace {

constexpr int kRanks = 2;

// The largest (rank + 1) of all ranks, in each of two meetings; zeros if something failed.
std::array<int32_t, 2> MeetTwice(FakeLink& link) {
  RankContext rank(OptionsOf(link));
  Meeting meeting(rank);
  std::array<int32_t, 2> largest{};
  for (int32_t& value : largest) {
    if (!meeting.Meet().ok()) {
      return {};
    }
    value = rank.task.rank() + 1;
    if (!meeting.comm().AllReduceMax(absl::MakeSpan(&value, 1)).ok() ||
        !meeting.comm().Barrier().ok()) {
      return {};
    }
    meeting.Leave();
  }
  return largest;
}

// Keys of a store are written once, and those of the first meeting are still there.
TEST(MeetingTest, Meet_AgainOverTheSameStore_MeetsTheSamePeers) {
  LocalKeyValueStore store;
  const auto task_of = [](int rank) {
    v1::Task task = MakeTask(v1::JobSpec(), "", rank, kRanks);
    task.set_advertise_host("127.0.0.1");
    return task;
  };
  FakeLink leader(task_of(0), store);
  FakeLink follower(task_of(1), store);
  std::array<int32_t, 2> other{};
  std::thread thread([&] { other = MeetTwice(follower); });
  const std::array<int32_t, 2> own = MeetTwice(leader);
  thread.join();
  EXPECT_EQ(own, (std::array<int32_t, 2>{kRanks, kRanks}));
  EXPECT_EQ(other, own);
}

TEST(MeetingTest, Meet_SingleRank_NeedsNoPeer) {
  OneRank one;
  Meeting meeting(one.rank);
  EXPECT_FALSE(meeting.met());
  ASSERT_TRUE(meeting.Meet().ok());
  EXPECT_TRUE(meeting.met());
  EXPECT_EQ(meeting.comm().world_size(), 1);
  EXPECT_TRUE(one.link.phases.empty());
  meeting.Leave();
  EXPECT_FALSE(meeting.met());
}

}  // namespace
}  // namespace hearth::trainer
