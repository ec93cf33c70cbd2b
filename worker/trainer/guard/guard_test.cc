#include "worker/trainer/guard/guard.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"

namespace hearth::trainer {
namespace {

StepFacts Facts(double loss) {
  return {loss, 1.0, 0};
}

TEST(Guard, Judge_NonFinite_IsRefused) {
  Guard guard({0, 0, 8});
  EXPECT_EQ(guard.Judge(Facts(1)), Verdict::kGood);
  EXPECT_EQ(guard.Judge(Facts(std::numeric_limits<double>::quiet_NaN())), Verdict::kNonFinite);
  EXPECT_EQ(guard.Judge({1.0, std::numeric_limits<double>::infinity(), 0}), Verdict::kNonFinite);
  EXPECT_EQ(guard.Judge({1.0, 1.0, 1}), Verdict::kNonFinite);
}

TEST(Guard, Judge_LossFarAboveFullWindow_IsSpike) {
  Guard guard({3, 0, 8});
  for (int i = 0; i < 7; ++i) {
    guard.Record(Facts(2.0 + 0.1 * (i % 2)));
  }
  EXPECT_EQ(guard.Judge(Facts(50)), Verdict::kGood) << "the window is not full yet";
  guard.Record(Facts(2.1));
  EXPECT_EQ(guard.Judge(Facts(50)), Verdict::kSpike);
  EXPECT_EQ(guard.Judge(Facts(2.1)), Verdict::kGood);
  EXPECT_EQ(guard.Judge(Facts(0.5)), Verdict::kGood) << "a falling loss is no spike";
}

TEST(Guard, Judge_SigmaZero_NeverSpikes) {
  Guard guard({0, 0, 8});
  for (int i = 0; i < 20; ++i) {
    guard.Record(Facts(1));
  }
  EXPECT_EQ(guard.Judge(Facts(1e9)), Verdict::kGood);
}

TEST(Guard, RestoreLosses_DecidesAlike) {
  Guard guard({2, 0, 8});
  for (int i = 0; i < 13; ++i) {
    guard.Record(Facts(3.0 - 0.01 * i));
  }
  Guard other({2, 0, 8});
  other.Restore(guard.Losses(), guard.LogNorms());
  EXPECT_EQ(other.Losses(), guard.Losses());
  for (int hundredths = 250; hundredths < 350; ++hundredths) {
    const double loss = 0.01 * hundredths;
    EXPECT_EQ(other.Judge(Facts(loss)), guard.Judge(Facts(loss)));
  }
}

TEST(Guard, Judge_GradientNormFarAboveFullWindow_IsGradSpike) {
  Guard guard({0, 4, 8});
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(guard.Judge({1.0, 100.0, 0}), Verdict::kGood);
    guard.Record({1.0, i % 2 == 0 ? 1.0 : 1.2, 0});
  }
  EXPECT_EQ(guard.Judge({1.0, 1.3, 0}), Verdict::kGood);
  EXPECT_EQ(guard.Judge({1.0, 100.0, 0}), Verdict::kGradSpike);
  EXPECT_EQ(guard.Judge({1e9, 1.0, 0}), Verdict::kGood) << "losses have no limit here";
  // A logarithm of zero must not spoil the window.
  guard.Record({1.0, 0.0, 0});
  EXPECT_TRUE(std::isfinite(guard.LogNorms().back()));
}

TEST(Guard, Limits_LeaveOutTheNewest) {
  Guard all({2, 2, 8, 1});
  Guard behind({2, 2, 8, 1});
  for (int i = 0; i < 12; ++i) {
    all.Record({3.0 - 0.01 * i, 1.0 + 0.01 * i, 0});
    if (i < 11) {
      behind.Record({3.0 - 0.01 * i, 1.0 + 0.01 * i, 0});
    }
  }
  EXPECT_EQ(all.Limits(1).loss, behind.Limits(0).loss);
  EXPECT_EQ(all.Limits(1).grad_norm, behind.Limits(0).grad_norm);
  EXPECT_NE(all.Limits(0).loss, behind.Limits(0).loss);
}

}  // namespace
}  // namespace hearth::trainer
