#include "worker/trainer/pulse/pulse.h"

#include <string>

#include "gtest/gtest.h"

namespace hearth::trainer {
namespace {

TEST(PulseTest, Begin_Activity_IsReadAndIsProgress) {
  Pulse pulse;
  const uint64_t before = pulse.Read().marks;
  pulse.Begin(Activity::kStep, "a step");
  const Pulse::Reading reading = pulse.Read();
  EXPECT_EQ(reading.activity, Activity::kStep);
  EXPECT_EQ(std::string(reading.what), "a step");
  EXPECT_GT(reading.marks, before);
  EXPECT_EQ(pulse.Read().marks, reading.marks) << "reading is no progress";
}

TEST(PulseTest, Scope_Nested_ReturnsToTheOneBefore) {
  Pulse pulse;
  pulse.Begin(Activity::kStep, "a step");
  {
    const Pulse::Scope outer(pulse, Activity::kEvaluation, "evaluating");
    {
      const Pulse::Scope inner(pulse, Activity::kPeers, "all-reduce");
      EXPECT_EQ(pulse.Read().activity, Activity::kPeers);
    }
    EXPECT_EQ(pulse.Read().activity, Activity::kEvaluation);
  }
  EXPECT_EQ(pulse.Read().activity, Activity::kStep);
  EXPECT_EQ(std::string(pulse.Read().what), "a step");
}

TEST(PulseTest, StepDone_ManySteps_LearnsTheNinthTenthOfTheLast32) {
  Pulse pulse;
  EXPECT_EQ(pulse.Read().learned, absl::ZeroDuration());
  pulse.StepDone(1, absl::Seconds(100));
  EXPECT_EQ(pulse.Read().learned, absl::Seconds(100));
  for (int step = 2; step <= 41; ++step) {
    pulse.StepDone(step, absl::Milliseconds(step));
  }
  const Pulse::Reading reading = pulse.Read();
  EXPECT_EQ(reading.step, 41);
  // The 28th of the 32 steps of 10 to 41 ms.
  EXPECT_EQ(reading.learned, absl::Milliseconds(37));
}

TEST(PulseTest, Restart_AfterSteps_ForgetsHowLongTheyTook) {
  Pulse pulse;
  pulse.StepDone(40, absl::Seconds(1));
  pulse.Restart(12);
  EXPECT_EQ(pulse.Read().learned, absl::ZeroDuration());
  EXPECT_EQ(pulse.Read().step, 12);
}

}  // namespace
}  // namespace hearth::trainer
