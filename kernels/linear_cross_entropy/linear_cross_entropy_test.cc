#include "kernels/linear_cross_entropy/linear_cross_entropy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/core/rng.h"

namespace hearth::kernels {
namespace {

constexpr int64_t kTokens = 5;
constexpr int64_t kHidden = 3;
constexpr int64_t kVocab = 4;
constexpr int64_t kPadded = 8;

struct Problem {
  std::vector<double> hidden = std::vector<double>(kTokens * kHidden);
  std::vector<double> weight = std::vector<double>(kPadded * kHidden);
  std::vector<int32_t> targets = {0, 3, -100, 1, 2};
  std::vector<float> loss_weight = {1.0F, 2.0F, 0.0F, 0.5F, 1.0F};
  std::vector<double> d_hidden = std::vector<double>(kTokens * kHidden, 9.0);
  std::vector<double> d_weight = std::vector<double>(kPadded * kHidden, 0.0);
  std::vector<double> nll = std::vector<double>(kTokens, 9.0);
  double loss_sum = 0.0;
  double weight_sum = 0.0;

  Problem() {
    FillNormal({1, RngPurpose::kTest, 0, 0, 0}, 0, 0.0, 1.0, hidden.data(), kTokens * kHidden);
    FillNormal({1, RngPurpose::kTest, 0, 0, 1}, 0, 0.0, 1.0, weight.data(), kPadded * kHidden);
  }

  absl::Status Execute(int64_t chunk) {
    LinearCrossEntropyArgs args;
    args.hidden = View(hidden.data(), {kTokens, kHidden});
    args.weight = View(weight.data(), {kPadded, kHidden});
    args.targets = View(targets.data(), {kTokens});
    args.loss_weight = View(loss_weight.data(), {kTokens});
    args.vocab = kVocab;
    args.d_hidden = View(d_hidden.data(), {kTokens, kHidden});
    args.d_weight = View(d_weight.data(), {kPadded, kHidden});
    args.nll = View(nll.data(), {kTokens});
    args.loss_sum = &loss_sum;
    args.weight_sum = &weight_sum;
    args.chunk = chunk;
    alignas(64) static unsigned char memory[4096];
    Exec exec;
    exec.workspace = {memory, LinearCrossEntropyWorkspaceBytes(args)};
    return LinearCrossEntropy(exec, args);
  }
};

double ReferenceNll(const Problem& run, size_t token) {
  double total = 0.0;
  double target = 0.0;
  for (size_t v = 0; v < kVocab; ++v) {
    double logit = 0.0;
    for (size_t i = 0; i < kHidden; ++i) {
      logit += run.hidden[token * kHidden + i] * run.weight[v * kHidden + i];
    }
    total += std::exp(logit);
    target = v == static_cast<size_t>(run.targets[token]) ? logit : target;
  }
  return std::log(total) - target;
}

TEST(LinearCrossEntropy, PaddedVocabulary_LossIgnoresPaddingAndIgnoredTokens) {
  Problem run;
  // A padding row that would win every softmax if it took part.
  for (size_t i = kVocab * kHidden; i < kPadded * kHidden; ++i) {
    run.weight[i] = 100.0;
  }
  ASSERT_TRUE(run.Execute(2).ok());
  double expected = 0.0;
  for (size_t token : {0U, 1U, 3U, 4U}) {
    EXPECT_NEAR(run.nll[token], ReferenceNll(run, token), 1e-12);
    expected += double{run.loss_weight[token]} * ReferenceNll(run, token);
  }
  EXPECT_NEAR(run.loss_sum, expected, 1e-12);
  EXPECT_EQ(run.weight_sum, 4.5);
  EXPECT_EQ(run.nll[2], 0.0);
  for (size_t i = 0; i < kHidden; ++i) {
    EXPECT_EQ(run.d_hidden[2 * kHidden + i], 0.0);
  }
  for (size_t i = kVocab * kHidden; i < kPadded * kHidden; ++i) {
    EXPECT_EQ(run.d_weight[i], 0.0);
  }
}

TEST(LinearCrossEntropy, ChunkSizes_SameLossAndGradients) {
  Problem whole;
  Problem chunked;
  ASSERT_TRUE(whole.Execute(0).ok());
  ASSERT_TRUE(chunked.Execute(2).ok());
  EXPECT_NEAR(whole.loss_sum, chunked.loss_sum, 1e-14);
  for (size_t i = 0; i < whole.d_weight.size(); ++i) {
    EXPECT_NEAR(whole.d_weight[i], chunked.d_weight[i], 1e-14);
  }
  EXPECT_EQ(whole.nll, chunked.nll);
}

TEST(LinearCrossEntropy, NanInHidden_ReachesTheLoss) {
  Problem run;
  run.hidden[0] = std::numeric_limits<double>::quiet_NaN();
  ASSERT_TRUE(run.Execute(0).ok());
  EXPECT_TRUE(std::isnan(run.loss_sum));
}

TEST(LinearCrossEntropy, TargetOutsideVocabulary_IsOutOfRange) {
  Problem run;
  run.targets[4] = kVocab;
  const absl::Status status = run.Execute(0);
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_NE(status.message().find("targets[4] = 4"), absl::string_view::npos);
}

}  // namespace
}  // namespace hearth::kernels
