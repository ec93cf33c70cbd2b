#include "kernels/sample_tokens/sample_tokens.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/core/cpu_workspace.h"
#include "kernels/sample_tokens/distance.h"

namespace hearth::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// One row of logits and its state.
struct Row {
  explicit Row(std::vector<float> values) : logits(std::move(values)) {
    seen.assign((logits.size() + 31) / 32, 0);
  }
  absl::Status Sample(const SamplingRule& rule, int32_t end_token = -1) {
    SampleTokensArgs args;
    args.logits = View(logits.data(), {1, static_cast<int64_t>(logits.size())});
    args.streams = View(&stream, {1});
    args.seen = View(seen.data(), {static_cast<int64_t>(seen.size())});
    args.tokens = View(&token, {1});
    args.positions = View(&position, {1});
    args.remaining = View(&remaining, {1});
    args.drawn = View(&drawn, {1});
    args.log_prob = View(&log_prob, {1});
    args.rule = rule;
    args.end_token = end_token;
    const CpuWorkspace scratch(SampleTokensWorkspaceBytes(args, 1));
    return SampleTokens(scratch.With(), args);
  }

  std::vector<float> logits;
  std::vector<int32_t> seen;
  int32_t stream = 0;
  int32_t token = 0;
  int32_t position = 0;
  int32_t remaining = 1 << 30;
  int32_t drawn = -7;
  float log_prob = 0;
};

// How often each token is drawn.
std::vector<int> Counts(Row row, const SamplingRule& rule, int draws) {
  std::vector<int> counts(row.logits.size());
  for (int i = 0; i < draws; ++i) {
    row.position = i;
    EXPECT_TRUE(row.Sample(rule).ok());
    std::fill(row.seen.begin(), row.seen.end(), 0);
    ++counts[static_cast<size_t>(row.drawn)];
  }
  return counts;
}

std::set<size_t> Drawn(const std::vector<int>& counts) {
  std::set<size_t> tokens;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] > 0) {
      tokens.insert(i);
    }
  }
  return tokens;
}

// Logits of these probabilities.
std::vector<float> LogitsOf(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) {
    logits.push_back(static_cast<float>(std::log(p)));
  }
  return logits;
}

const std::vector<double> kFive = {0.1, 0.4, 0.05, 0.3, 0.15};

TEST(SampleTokens, Plain_DrawsInProportionToProbability) {
  constexpr int kDraws = 20000;
  const std::vector<int> counts = Counts(Row(LogitsOf(kFive)), SamplingRule(), kDraws);
  for (size_t i = 0; i < kFive.size(); ++i) {
    const double sigma = std::sqrt(kFive[i] * (1 - kFive[i]) * kDraws);
    EXPECT_NEAR(counts[i], kFive[i] * kDraws, 4 * sigma) << i;
  }
}

TEST(SampleTokens, Temperature_IsAPowerOfTheProbabilities) {
  constexpr int kDraws = 20000;
  SamplingRule rule;
  rule.temperature = 2;
  const std::vector<int> counts = Counts(Row(LogitsOf(kFive)), rule, kDraws);
  double whole = 0;
  for (const double p : kFive) {
    whole += std::sqrt(p);
  }
  for (size_t i = 0; i < kFive.size(); ++i) {
    const double p = std::sqrt(kFive[i]) / whole;
    EXPECT_NEAR(counts[i], p * kDraws, 4 * std::sqrt(p * (1 - p) * kDraws)) << i;
  }
}

TEST(SampleTokens, TemperatureZero_DrawsTheFirstOfTheLargest) {
  SamplingRule rule;
  rule.temperature = 0;
  Row row({1, 5, -2, 5});
  ASSERT_TRUE(row.Sample(rule).ok());
  EXPECT_EQ(row.drawn, 1);
  EXPECT_NEAR(row.log_prob, -std::log(2 + std::exp(-4.0) + std::exp(-7.0)), 1e-6);
}

TEST(SampleTokens, TopK_KeepsThoseAsLikelyAsTheKth) {
  SamplingRule rule;
  rule.top_k = 2;
  EXPECT_EQ(Drawn(Counts(Row(LogitsOf(kFive)), rule, 500)), (std::set<size_t>{1, 3}));
  EXPECT_EQ(Drawn(Counts(Row({2, 1, 1, 0, 1}), rule, 500)), (std::set<size_t>{0, 1, 2, 4}));
}

TEST(SampleTokens, TopP_KeepsWhatLessThanThatIsLikelierThan) {
  SamplingRule rule;
  rule.top_p = 0.75;  // 0.4 + 0.3 are less: the next is kept too
  EXPECT_EQ(Drawn(Counts(Row(LogitsOf(kFive)), rule, 2000)), (std::set<size_t>{1, 3, 4}));
  rule.top_p = 0.65;
  EXPECT_EQ(Drawn(Counts(Row(LogitsOf(kFive)), rule, 2000)), (std::set<size_t>{1, 3}));
  rule.top_p = 1e-12;
  EXPECT_EQ(Drawn(Counts(Row(LogitsOf(kFive)), rule, 200)), (std::set<size_t>{1}));
}

TEST(SampleTokens, TopP_CountsOfWhatTopKLeft) {
  SamplingRule rule;
  rule.top_k = 2;
  rule.top_p = 0.55;  // of 0.4 / 0.7 and 0.3 / 0.7: the first alone has it
  EXPECT_EQ(Drawn(Counts(Row(LogitsOf(kFive)), rule, 500)), (std::set<size_t>{1}));
}

TEST(SampleTokens, MinP_KeepsAShareOfTheLargest) {
  SamplingRule rule;
  rule.min_p = 0.3;  // 0.12 and more
  EXPECT_EQ(Drawn(Counts(Row(LogitsOf(kFive)), rule, 2000)), (std::set<size_t>{1, 3, 4}));
  rule.min_p = 1;
  EXPECT_EQ(Drawn(Counts(Row(LogitsOf(kFive)), rule, 200)), (std::set<size_t>{1}));
}

TEST(SampleTokens, RepetitionPenalty_DividesPositiveAndMultipliesNegativeLogits) {
  SamplingRule rule;
  rule.temperature = 0;
  rule.repetition_penalty = 2;
  Row positive({3, 4});
  positive.seen[0] = 2;
  ASSERT_TRUE(positive.Sample(rule).ok());
  EXPECT_EQ(positive.drawn, 0);
  Row negative({-3, -2});
  negative.seen[0] = 2;
  ASSERT_TRUE(negative.Sample(rule).ok());
  EXPECT_EQ(negative.drawn, 0);
  EXPECT_EQ(negative.seen[0], 3);  // and the drawn token is seen from now on
}

TEST(SampleTokens, State_MovesOnUntilTheEndToken) {
  SamplingRule rule;
  rule.temperature = 0;
  Row row({0, 1, 2});
  row.position = 9;
  row.remaining = 2;
  ASSERT_TRUE(row.Sample(rule).ok());
  EXPECT_EQ(row.token, 2);
  EXPECT_EQ(row.position, 10);
  EXPECT_EQ(row.remaining, 1);
  ASSERT_TRUE(row.Sample(rule).ok());
  EXPECT_EQ(row.remaining, 0);
  EXPECT_EQ(row.position, 10);  // where the cache still has room
  ASSERT_TRUE(row.Sample(rule).ok());
  EXPECT_EQ(row.drawn, -1);
  EXPECT_EQ(row.log_prob, 0);
  Row ends({0, 1, 2});
  ASSERT_TRUE(ends.Sample(rule, 2).ok());
  EXPECT_EQ(ends.remaining, 0);
}

TEST(SampleTokens, SeedStreamAndPosition_DecideTheDraw) {
  const std::vector<float> flat(4096, 0.0F);
  const auto draw = [&](uint64_t seed, int32_t stream, int32_t position) {
    Row row(flat);
    row.stream = stream;
    row.position = position;
    SamplingRule rule;
    rule.seed = seed;
    EXPECT_TRUE(row.Sample(rule).ok());
    return row.drawn;
  };
  EXPECT_EQ(draw(1, 2, 3), draw(1, 2, 3));
  EXPECT_NE(draw(1, 2, 3), draw(2, 2, 3));
  EXPECT_NE(draw(1, 2, 3), draw(1, 3, 3));
  EXPECT_NE(draw(1, 2, 3), draw(1, 2, 4));
}

TEST(SampleTokens, HostileLogits_GiveATokenOfTheVocabulary) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  Row all_nan({nan, nan, nan});
  ASSERT_TRUE(all_nan.Sample(SamplingRule()).ok());
  EXPECT_EQ(all_nan.drawn, 0);
  Row some({nan, 1, -kInfinity});
  ASSERT_TRUE(some.Sample(SamplingRule()).ok());
  EXPECT_EQ(some.drawn, 1);
  Row infinite({0, kInfinity, 5});
  ASSERT_TRUE(infinite.Sample(SamplingRule()).ok());
  EXPECT_EQ(infinite.drawn, 1);
  Row more({0, kInfinity, kInfinity});
  for (more.position = 0; more.position < 8;) {
    ASSERT_TRUE(more.Sample(SamplingRule()).ok());
    EXPECT_EQ(more.drawn, 1);  // the first
  }
  Row none({-kInfinity, nan, -kInfinity});
  ASSERT_TRUE(none.Sample(SamplingRule()).ok());
  EXPECT_EQ(none.drawn, 0);
}

TEST(WeightOf, IsTheExponential_AndNothingFarAway) {
  for (const double temperature : {1.0, 0.01, 0.7, 1.3, 50.0}) {
    const WeightScale scale = WeightScaleOf(temperature);
    EXPECT_EQ(WeightOf(0.0F, scale), 1U << 29);
    for (int i = 1; i < 5400; ++i) {
      const auto d = static_cast<float>(0.0037 * i * temperature);
      const double want = std::exp2(29) * std::exp(-static_cast<double>(d) / temperature);
      EXPECT_NEAR(WeightOf(d, scale), want, 1.0 + 1e-7 * want) << d << " " << temperature;
    }
    const auto t = static_cast<float>(temperature);
    EXPECT_EQ(WeightOf(20.0F * t, scale), 1U);
    for (const float d : {20.2F * t, 21.0F * t, 88.0F * t, 1e30F, kInfinity,
                          std::numeric_limits<float>::quiet_NaN()}) {
      EXPECT_EQ(WeightOf(d, scale), 0U) << d << " " << temperature;
    }
  }
}

TEST(WeightOf, BeforeRounding_IsNoShareFarAway) {
  // A GPU sums these for log_prob where the temperature is 1: 2^20 of them must not show.
  const WeightScale scale = WeightScaleOf(1.0);
  for (const float d : {1e30F, kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_LT(WeightBeforeRounding(d, scale) * std::exp2(20.0F), 1e-10F * kLargestWeight) << d;
  }
  EXPECT_NEAR(WeightBeforeRounding(30.0F, scale), std::exp2(29.0) * std::exp(-30.0), 1e-10);
}

TEST(WeightOf, ExtremeTemperatures_StayInRange) {
  for (const double temperature : {1e-6, 1e6}) {
    const WeightScale scale = WeightScaleOf(temperature);
    EXPECT_EQ(WeightOf(0.0F, scale), 1U << 29) << temperature;
    const auto one = static_cast<float>(temperature);
    EXPECT_NEAR(WeightOf(one, scale), std::exp2(29.0) * std::exp(-1.0), 60.0) << temperature;
    EXPECT_EQ(WeightOf(3e38F, scale), 0U) << temperature;
  }
}

TEST(CheckSamplingRule, OutOfRange_NamesTheSetting) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const struct {
    const char* name;
    void (*set)(SamplingRule&, double);
    std::vector<double> wrong;
  } rows[] = {
      {"temperature", [](SamplingRule& r, double v) { r.temperature = v; }, {-1, nan, 1e9, 1e-9}},
      {"top_p", [](SamplingRule& r, double v) { r.top_p = v; }, {0, -1, 1.5, nan}},
      {"min_p", [](SamplingRule& r, double v) { r.min_p = v; }, {-0.1, 1.1, nan}},
      {"top_k", [](SamplingRule& r, double v) { r.top_k = static_cast<int64_t>(v); }, {-1}},
      {"repetition_penalty",
       [](SamplingRule& r, double v) { r.repetition_penalty = v; },
       {0, -1, nan, 1e6}},
  };
  for (const auto& row : rows) {
    for (const double value : row.wrong) {
      SamplingRule rule;
      row.set(rule, value);
      const absl::Status status = CheckSamplingRule(rule);
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << row.name << " " << value;
      EXPECT_NE(std::string(status.message()).find(row.name), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace hearth::kernels
