#include "worker/trainer/model/weight_walk.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hearth::trainer {
namespace {

using ::testing::ElementsAre;

// Records the calls that it gets.
class FakeSource : public WeightSource {
 public:
  absl::Status Begin(const kernels::Exec& /*exec*/) override { return Note("begin"); }
  absl::Status Announce(const kernels::Exec& /*exec*/, int unit) override {
    return Note(absl::StrCat("announce ", unit));
  }
  absl::Status Acquire(const kernels::Exec& /*exec*/, int unit) override {
    return Note(absl::StrCat("acquire ", unit));
  }
  absl::Status Release(const kernels::Exec& /*exec*/, int unit) override {
    return Note(absl::StrCat("release ", unit));
  }

  std::vector<std::string> Take() { return std::exchange(calls_, {}); }

 private:
  absl::Status Note(std::string call) {
    calls_.push_back(std::move(call));
    return absl::OkStatus();
  }
  std::vector<std::string> calls_;
};

// Layers of two blocks between an embedding and a head, in three slots.
spec::WeightUnits Units(int layers, bool tied) {
  spec::WeightUnits units;
  units.slots.resize(3);
  const auto add = [&units](int slot) {
    spec::WeightUnit& unit = units.units.emplace_back();
    unit.slot = slot;
  };
  add(0);
  units.of_block = {0};
  for (int layer = 0; layer < layers; ++layer) {
    add(1 + layer % 2);
    units.of_block.insert(units.of_block.end(), {layer + 1, layer + 1});
  }
  if (!tied) {
    add(0);
  }
  units.of_block.push_back(tied ? 0 : layers + 1);
  return units;
}

class WeightWalkTest : public testing::Test {
 protected:
  // The unit that arrived with the block, and what the source was asked for it.
  std::vector<std::string> Enter(WeightWalk& walk, int block, int arrived) {
    const absl::StatusOr<int> unit = walk.Enter(exec_, block);
    EXPECT_TRUE(unit.ok()) << unit.status();
    EXPECT_EQ(unit.value_or(-2), arrived) << "block " << block;
    return source_.Take();
  }
  kernels::Exec exec_;
  FakeSource source_;
};

TEST_F(WeightWalkTest, ForwardAndBack_NextIsAnnounced_LastLayersAreStillThere) {
  WeightWalk walk(Units(3, false));
  ASSERT_TRUE(walk.Begin(exec_, &source_, /*backward=*/true).ok());
  EXPECT_THAT(source_.Take(), ElementsAre("begin"));
  EXPECT_THAT(Enter(walk, 0, 0), ElementsAre("announce 0", "acquire 0", "announce 1"));
  EXPECT_THAT(Enter(walk, 1, 1), ElementsAre("release 0", "acquire 1", "announce 2"));
  EXPECT_THAT(Enter(walk, 2, -1), ElementsAre()) << "the layer's second block";
  EXPECT_THAT(Enter(walk, 3, 2), ElementsAre("release 1", "acquire 2", "announce 3"));
  EXPECT_THAT(Enter(walk, 5, 3), ElementsAre("release 2", "acquire 3", "announce 4"));
  EXPECT_THAT(Enter(walk, 7, 4), ElementsAre("release 3", "acquire 4"));
  EXPECT_THAT(Enter(walk, 5, -1), ElementsAre("release 4", "acquire 3")) << "back";
  EXPECT_THAT(Enter(walk, 3, -1), ElementsAre("release 3", "acquire 2", "announce 1"));
  EXPECT_THAT(Enter(walk, 1, 1), ElementsAre("release 2", "acquire 1"));
  ASSERT_TRUE(walk.End(exec_).ok());
  EXPECT_THAT(source_.Take(), ElementsAre("release 1"));
  // Nothing of one pass is there in the next.
  ASSERT_TRUE(walk.Begin(exec_, &source_, /*backward=*/false).ok());
  source_.Take();
  EXPECT_THAT(Enter(walk, 0, 0), ElementsAre("announce 0", "acquire 0", "announce 1"));
}

// Units in one slot: none is announced before the one before it has been released.
TEST_F(WeightWalkTest, InTurn_EachIsAnnouncedJustBeforeItIsRead) {
  spec::WeightUnits units = Units(2, false);
  units.ahead = false;
  units.slots.resize(2);
  units.units[1].slot = units.units[2].slot = 1;
  WeightWalk walk(units);
  ASSERT_TRUE(walk.Begin(exec_, &source_, /*backward=*/true).ok());
  source_.Take();
  EXPECT_THAT(Enter(walk, 0, 0), ElementsAre("announce 0", "acquire 0"));
  EXPECT_THAT(Enter(walk, 1, 1), ElementsAre("release 0", "announce 1", "acquire 1"));
  EXPECT_THAT(Enter(walk, 2, -1), ElementsAre()) << "the layer's second block";
  EXPECT_THAT(Enter(walk, 3, 2), ElementsAre("release 1", "announce 2", "acquire 2"));
  EXPECT_THAT(Enter(walk, 5, 3), ElementsAre("release 2", "announce 3", "acquire 3"));
  EXPECT_THAT(Enter(walk, 3, -1), ElementsAre("release 3", "acquire 2")) << "still in its slot";
  EXPECT_THAT(Enter(walk, 1, 1), ElementsAre("release 2", "announce 1", "acquire 1"));
  EXPECT_TRUE(walk.End(exec_).ok());
}

// Units that are unpacked share a slot and arrive in another: each is announced while the one
// before it is read.
TEST_F(WeightWalkTest, Unpacked_EachIsAnnouncedWhileTheOneBeforeIsRead) {
  spec::WeightUnits units = Units(2, false);
  for (spec::WeightUnit& unit : units.units) {
    unit.arrival = unit.slot == 0 ? 0 : 2;
    unit.slot = unit.slot == 0 ? 0 : 1;
  }
  WeightWalk walk(units);
  ASSERT_TRUE(walk.Begin(exec_, &source_, /*backward=*/true).ok());
  source_.Take();
  EXPECT_THAT(Enter(walk, 0, 0), ElementsAre("announce 0", "acquire 0", "announce 1"));
  EXPECT_THAT(Enter(walk, 1, 1), ElementsAre("release 0", "acquire 1", "announce 2"));
  EXPECT_THAT(Enter(walk, 3, 2), ElementsAre("release 1", "acquire 2", "announce 3"));
  EXPECT_THAT(Enter(walk, 5, 3), ElementsAre("release 2", "acquire 3")) << "2 is in its slot";
  EXPECT_THAT(Enter(walk, 3, -1), ElementsAre("release 3", "acquire 2", "announce 1"));
  EXPECT_THAT(Enter(walk, 1, 1), ElementsAre("release 2", "acquire 1"));
  EXPECT_TRUE(walk.End(exec_).ok());
}

TEST_F(WeightWalkTest, ATiedHead_FindsTheEmbeddingInItsSlot) {
  WeightWalk walk(Units(2, true));
  ASSERT_TRUE(walk.Begin(exec_, &source_, /*backward=*/false).ok());
  for (const int block : {0, 1, 2, 3, 4}) {
    ASSERT_TRUE(walk.Enter(exec_, block).ok());
  }
  source_.Take();
  EXPECT_THAT(Enter(walk, 5, -1), ElementsAre("release 2", "acquire 0"));
  EXPECT_TRUE(walk.End(exec_).ok());
}

TEST_F(WeightWalkTest, Misuse_IsAnError) {
  WeightWalk walk(Units(2, false));
  EXPECT_EQ(walk.Enter(exec_, 0).status().code(), absl::StatusCode::kInternal) << "before a pass";
  EXPECT_EQ(walk.Begin(exec_, nullptr, true).code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(walk.Begin(exec_, &source_, true).ok());
  EXPECT_EQ(walk.Enter(exec_, 3).status().code(), absl::StatusCode::kInternal) << "out of turn";
  EXPECT_EQ(walk.End(exec_).code(), absl::StatusCode::kInternal) << "before the end";
}

TEST_F(WeightWalkTest, WithoutUnits_NoCallDoesAnything) {
  WeightWalk walk{spec::WeightUnits()};
  EXPECT_TRUE(walk.Begin(exec_, nullptr, true).ok());
  EXPECT_EQ(walk.Enter(exec_, 7).value_or(-2), -1);
  EXPECT_TRUE(walk.End(exec_).ok());
}

}  // namespace
}  // namespace hearth::trainer
