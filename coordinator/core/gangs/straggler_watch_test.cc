#include "coordinator/core/gangs/straggler_watch.h"

#include <vector>

#include "gtest/gtest.h"

namespace hearth::coordinator {
namespace {

using Changes = std::vector<StragglerWatch::Change>;

class StragglerWatchTest : public ::testing::Test {
 protected:
  void Hear(const std::vector<double>& seconds) {
    for (size_t i = 0; i < seconds.size(); ++i) {
      watch_.Heard(static_cast<int>(seconds.size()), static_cast<int>(i), seconds[i]);
    }
  }
  Changes After(absl::Duration time) {
    now_ += time;
    return watch_.Review(now_);
  }

  StragglerWatch watch_;
  absl::Duration now_ = absl::Seconds(100);
};

TEST_F(StragglerWatchTest, SlowRank_ThatStaysSlow_IsNamedOnce) {
  Hear({0.10, 0.11, 0.154, 0.09});
  EXPECT_TRUE(After(absl::ZeroDuration()).empty());
  EXPECT_TRUE(After(StragglerWatch::kPersists - absl::Milliseconds(1)).empty());
  const Changes changes = After(absl::Milliseconds(1));
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].rank, 2);
  EXPECT_TRUE(changes[0].slow);
  EXPECT_NEAR(changes[0].ratio, 1.54, 1e-9);
  EXPECT_TRUE(After(absl::Hours(1)).empty());
}

TEST_F(StragglerWatchTest, SlowRank_ThatRecoversInBetween_IsNotNamed) {
  Hear({0.1, 0.2});
  After(absl::ZeroDuration());
  After(absl::Seconds(9));
  Hear({0.1, 0.1});
  EXPECT_TRUE(After(absl::Seconds(1)).empty());
  Hear({0.1, 0.2});
  EXPECT_TRUE(After(absl::Seconds(1)).empty());
  EXPECT_TRUE(After(absl::Seconds(9)).empty());
  EXPECT_EQ(After(absl::Seconds(1)).size(), 1u);
}

TEST_F(StragglerWatchTest, NamedRank_IsNamedUntilItIsClearlyFaster) {
  Hear({0.2, 0.1});
  After(absl::ZeroDuration());
  ASSERT_EQ(After(StragglerWatch::kPersists).size(), 1u);
  Hear({0.12, 0.1});
  EXPECT_TRUE(After(absl::Seconds(1)).empty());
  Hear({0.11, 0.1});
  const Changes changes = After(absl::Seconds(1));
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].rank, 0);
  EXPECT_FALSE(changes[0].slow);
}

TEST_F(StragglerWatchTest, OneRankAlone_OrOneThatSaysNothing_IsNotJudged) {
  Hear({0.5});
  EXPECT_TRUE(After(absl::Hours(1)).empty());
  StragglerWatch three;
  three.Heard(3, 0, 0.9);
  three.Heard(3, 1, 0.1);
  EXPECT_TRUE(three.Review(absl::ZeroDuration()).empty());
  EXPECT_TRUE(three.Review(absl::Hours(1)).empty()) << "rank 2 may be as slow as rank 0";
}

TEST_F(StragglerWatchTest, ShortSteps_DifferencesOfMicroseconds_AreNoise) {
  Hear({0.0010, 0.0005});
  After(absl::ZeroDuration());
  EXPECT_TRUE(After(absl::Hours(1)).empty());
}

}  // namespace
}  // namespace hearth::coordinator
