#include "worker/trainer/guard/guard.h"

#include <limits>

#include "gtest/gtest.h"

namespace hearth::trainer {
namespace {

StepFacts Facts(double loss) {
  return {loss, 1.0, 0};
}

TEST(Guard, Judge_NonFinite_IsRefused) {
  Guard guard(0, 8);
  EXPECT_EQ(guard.Judge(Facts(1)), Verdict::kGood);
  EXPECT_EQ(guard.Judge(Facts(std::numeric_limits<double>::quiet_NaN())), Verdict::kNonFinite);
  EXPECT_EQ(guard.Judge({1.0, std::numeric_limits<double>::infinity(), 0}), Verdict::kNonFinite);
  EXPECT_EQ(guard.Judge({1.0, 1.0, 1}), Verdict::kNonFinite);
}

TEST(Guard, Judge_LossFarAboveFullWindow_IsSpike) {
  Guard guard(3, 8);
  for (int i = 0; i < 7; ++i) {
    guard.Record(2.0 + 0.1 * (i % 2));
  }
  EXPECT_EQ(guard.Judge(Facts(50)), Verdict::kGood) << "the window is not full yet";
  guard.Record(2.1);
  EXPECT_EQ(guard.Judge(Facts(50)), Verdict::kSpike);
  EXPECT_EQ(guard.Judge(Facts(2.1)), Verdict::kGood);
  EXPECT_EQ(guard.Judge(Facts(0.5)), Verdict::kGood) << "a falling loss is no spike";
}

TEST(Guard, Judge_SigmaZero_NeverSpikes) {
  Guard guard(0, 8);
  for (int i = 0; i < 20; ++i) {
    guard.Record(1);
  }
  EXPECT_EQ(guard.Judge(Facts(1e9)), Verdict::kGood);
}

TEST(Guard, RestoreLosses_DecidesAlike) {
  Guard guard(2, 8);
  for (int i = 0; i < 13; ++i) {
    guard.Record(3.0 - 0.01 * i);
  }
  Guard other(2, 8);
  other.RestoreLosses(guard.Losses());
  EXPECT_EQ(other.Losses(), guard.Losses());
  for (double loss = 2.5; loss < 3.5; loss += 0.01) {
    EXPECT_EQ(other.Judge(Facts(loss)), guard.Judge(Facts(loss)));
  }
}

}  // namespace
}  // namespace hearth::trainer
