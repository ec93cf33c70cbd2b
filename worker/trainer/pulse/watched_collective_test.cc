#include "worker/trainer/pulse/watched_collective.h"

#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "tests/support/common/fake_clock.h"

namespace hearth::trainer {
namespace {

// A second passes between any two looks.
class PassingClock : public FakeClock {
 public:
  absl::Duration Monotonic() override {
    Advance(absl::Seconds(1));
    return FakeClock::Monotonic();
  }
};

TEST(WatchedCollective, Calls_ThatBlock_CountAsWaited) {
  PassingClock clock;
  Pulse pulse;
  pulse.Begin(Activity::kStep, "a step");
  const std::unique_ptr<Collective> comm = Watched(NewSoloCollective(), pulse, clock);
  EXPECT_EQ(pulse.TakeWaited(), absl::ZeroDuration());
  std::vector<float> data = {1.0F};
  ASSERT_TRUE(comm->AllReduceSum(absl::MakeSpan(data)).ok());
  ASSERT_TRUE(comm->Barrier().ok());
  EXPECT_EQ(pulse.TakeWaited(), absl::Seconds(2));
  EXPECT_EQ(pulse.TakeWaited(), absl::ZeroDuration()) << "it was taken";
  EXPECT_EQ(pulse.Read().activity, Activity::kStep);
}

}  // namespace
}  // namespace hearth::trainer
