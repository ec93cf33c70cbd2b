#include "kernels/linear_cross_entropy/linear_cross_entropy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/core/cpu_workspace.h"
#include "kernels/core/formats.h"
#include "kernels/core/rng.h"
#include "kernels/gemm/gemm.h"
#include "kernels/linear_cross_entropy/cuda_layout.h"

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
  std::vector<int32_t> top = std::vector<int32_t>(kTokens, 7);
  double loss_sum = 0.0;
  double weight_sum = 0.0;

  Problem() {
    FillNormal({1, RngPurpose::kTest, 0, 0, 0}, 0, 0.0, 1.0, hidden.data(), kTokens * kHidden);
    FillNormal({1, RngPurpose::kTest, 0, 0, 1}, 0, 0.0, 1.0, weight.data(), kPadded * kHidden);
  }

  absl::Status Execute(int64_t chunk, bool accumulate = true) {
    LinearCrossEntropyArgs args = Args(chunk);
    args.accumulate = accumulate;
    args.d_hidden = View(d_hidden.data(), {kTokens, kHidden});
    args.d_weight = View(d_weight.data(), {kPadded, kHidden});
    return Run(args);
  }
  // Forward alone.
  absl::Status Evaluate(int64_t chunk) {
    LinearCrossEntropyArgs args = Args(chunk);
    args.top = View(top.data(), {kTokens});
    return Run(args);
  }

  LinearCrossEntropyArgs Args(int64_t chunk) {
    LinearCrossEntropyArgs args;
    args.hidden = View(hidden.data(), {kTokens, kHidden});
    args.weight = View(weight.data(), {kPadded, kHidden});
    args.targets = View(targets.data(), {kTokens});
    args.loss_weight = View(loss_weight.data(), {kTokens});
    args.vocab = kVocab;
    args.nll = View(nll.data(), {kTokens});
    args.loss_sum = &loss_sum;
    args.weight_sum = &weight_sum;
    args.chunk = chunk;
    return args;
  }
  static absl::Status Run(const LinearCrossEntropyArgs& args) {
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

// The target that greedy decoding would take, of equal ones the one with the lower index.
TEST(LinearCrossEntropy, Top_IsTheLargestLogitAndTheFirstOfEqualOnes) {
  for (const int64_t chunk : {0, 2}) {
    for (int32_t target = 0; target < kVocab; ++target) {
      Problem run;
      run.targets.assign(kTokens, target);
      // Token 0: logits 1, 3, 3, 2; the others as they come. Padding would win every time.
      run.hidden[0] = run.hidden[1] = 0.0;
      run.hidden[2] = 1.0;
      for (int64_t v = 0; v < kPadded; ++v) {
        run.weight[static_cast<size_t>(v * kHidden + 2)] =
            std::vector<double>{1, 3, 3, 2, 9, 9, 9, 9}[static_cast<size_t>(v)];
      }
      run.top.assign(kTokens, 7);
      ASSERT_TRUE(run.Evaluate(chunk).ok());
      EXPECT_EQ(run.top[0], target == 1 ? 1 : 0);
      EXPECT_EQ(run.top[2], 0) << "weight 0";
      for (const size_t token : {1U, 3U, 4U}) {
        const double own = ReferenceNll(run, token);
        int better = 0;
        for (int32_t other = 0; other < kVocab; ++other) {
          run.targets[token] = other;
          better += ReferenceNll(run, token) < own ? 1 : 0;
        }
        run.targets[token] = target;
        EXPECT_EQ(run.top[token], better == 0 ? 1 : 0) << token;
      }
    }
  }
  Problem nan;
  nan.hidden[0] = std::numeric_limits<double>::quiet_NaN();
  ASSERT_TRUE(nan.Evaluate(0).ok());
  EXPECT_EQ(nan.top[0], 0);
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

TEST(LinearCrossEntropy, Sources_EachGetsTheSumsOfItsSamples) {
  Problem run;
  // Five samples of one token each; that of source 2 is nobody's.
  std::vector<int32_t> source = {1, 0, 1, 2, 1};
  std::vector<double> sums = {0.25, 0.0, 0.0, 0.0};
  LinearCrossEntropyArgs args = run.Args(2);
  args.source = View(source.data(), {kTokens});
  args.source_sums = sums.data();
  args.sources = 2;
  ASSERT_TRUE(Problem::Run(args).ok());
  EXPECT_DOUBLE_EQ(sums[0], 0.25 + 2.0 * run.nll[1]) << "added to";
  EXPECT_EQ(sums[1], 2.0);
  EXPECT_DOUBLE_EQ(sums[2], run.nll[0] + run.nll[4]) << "token 2 has no weight";
  EXPECT_EQ(sums[3], 2.0);
  EXPECT_NEAR(run.loss_sum, sums[0] - 0.25 + sums[2] + 0.5 * run.nll[3], 1e-14);

  args.source = View(source.data(), {2});
  EXPECT_EQ(Problem::Run(args).code(), absl::StatusCode::kInvalidArgument) << "no whole samples";
  args.source = View(source.data(), {kTokens});
  args.source_sums = nullptr;
  EXPECT_EQ(Problem::Run(args).code(), absl::StatusCode::kInvalidArgument);
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

TEST(LinearCrossEntropy, NotAccumulating_OverwritesEveryRow) {
  Problem added;
  Problem overwritten;
  std::fill(overwritten.d_weight.begin(), overwritten.d_weight.end(), 7.0);
  ASSERT_TRUE(added.Execute(2).ok());
  ASSERT_TRUE(overwritten.Execute(2, false).ok());
  EXPECT_EQ(added.d_weight, overwritten.d_weight);
}

// The FP8 head against the same arithmetic in double: decoded operands, E5M2 gradients.
class QuantisedHead : public testing::Test {
 protected:
  static constexpr int64_t kRows = 32;
  static constexpr int64_t kC = 16;
  static constexpr int64_t kV = 27;
  static constexpr int64_t kVp = 32;
  static constexpr double kDLoss = 0.125;

  QuantisedHead() {
    FillNormal({1, RngPurpose::kTest, 0, 0, 2}, 0, 0.0, 60.0, hidden_.data(), kRows * kC);
    FillNormal({1, RngPurpose::kTest, 0, 0, 3}, 0, 0.0, 60.0, weight_.data(), kVp * kC);
    Quantise(hidden_, kRows, x_rows_, x_columns_);
    Quantise(weight_, kVp, w_rows_, w_columns_);
    for (size_t i = 0; i < kRows; ++i) {
      targets_[i] = static_cast<int32_t>(i * 5 % kV);
      loss_weight_[i] = i % 4 == 1 ? 0.0F : (i % 2 == 0 ? 1.0F : 0.5F);
    }
    args_.hidden = TensorView(static_cast<void*>(nullptr), DType::kF32, {kRows, kC});
    args_.weight = TensorView(static_cast<void*>(nullptr), DType::kF32, {kVp, kC});
    args_.targets = View(targets_.data(), {kRows});
    args_.loss_weight = View(loss_weight_.data(), {kRows});
    args_.vocab = kV;
    args_.d_loss = kDLoss;
    args_.d_hidden = View(d_hidden_.data(), {kRows, kC});
    args_.d_weight = View(d_weight_.data(), {kVp, kC});
    args_.accumulate = false;
    args_.loss_sum = &loss_sum_;
    args_.weight_sum = &weight_sum_;
    args_.chunk = 16;
    args_.quant.hidden_rows = TensorView(x_rows_.data(), DType::kE4M3, {kRows, kC});
    args_.quant.hidden_columns = TensorView(x_columns_.data(), DType::kE4M3, {kC, kRows});
    args_.quant.weight_rows = TensorView(w_rows_.data(), DType::kE4M3, {kVp, kC});
    args_.quant.weight_columns = TensorView(w_columns_.data(), DType::kE4M3, {kC, kVp});
    args_.quant.hidden_scale = &hidden_scale_;
    args_.quant.weight_scale = &weight_scale_;
  }

  // Rounds `values` to E4M3 in place.
  static void Quantise(std::vector<float>& values,
                       int64_t rows,
                       std::vector<uint8_t>& by_rows,
                       std::vector<uint8_t>& by_columns) {
    by_rows.resize(values.size());
    by_columns.resize(values.size());
    for (size_t r = 0; r < static_cast<size_t>(rows); ++r) {
      for (size_t c = 0; c < kC; ++c) {
        const uint8_t code = EncodeE4m3(values[r * kC + c]);
        by_rows[r * kC + c] = code;
        by_columns[c * static_cast<size_t>(rows) + r] = code;
        values[r * kC + c] = DecodeE4m3(code);
      }
    }
  }

  absl::Status Execute() {
    const CpuWorkspace scratch(LinearCrossEntropyWorkspaceBytes(Exec(), args_));
    Exec exec = scratch.With();
    exec.threads = 2;
    return LinearCrossEntropy(exec, args_);
  }

  // Runs the op and compares it with decoded products.
  void ExpectDecodedProducts() {
    ASSERT_TRUE(Execute().ok());
    std::vector<double> d_weight(kVp * kC);
    double loss = 0.0;
    std::vector<double> d;
    for (size_t n = 0; n < kRows; ++n) {
      loss += Token(n, d);
      for (size_t c = 0; c < kC; ++c) {
        double d_hidden = 0.0;
        for (size_t v = 0; v < kV; ++v) {
          d_hidden += d[v] * double{weight_[v * kC + c]} * double{weight_scale_};
          d_weight[v * kC + c] += d[v] * double{hidden_[n * kC + c]} * double{hidden_scale_};
        }
        EXPECT_NEAR(d_hidden_[n * kC + c], d_hidden, 2e-6) << n;
      }
    }
    for (size_t i = 0; i < d_weight.size(); ++i) {
      EXPECT_NEAR(d_weight_[i], d_weight[i], 2e-6) << i;
    }
    EXPECT_NEAR(loss_sum_, loss, 1e-5 * loss);
  }

  // d_logits of a token as the op quantises them, and its loss.
  double Token(size_t token, std::vector<double>& d) const {
    std::vector<double> p(kV);
    double total = 0.0;
    for (size_t v = 0; v < kV; ++v) {
      double logit = 0.0;
      for (size_t c = 0; c < kC; ++c) {
        logit += double{hidden_[token * kC + c]} * double{weight_[v * kC + c]};
      }
      p[v] = std::exp(logit * double{hidden_scale_} * double{weight_scale_});
      total += p[v];
    }
    const size_t target = static_cast<size_t>(targets_[token]);
    const double w = double{loss_weight_[token]};
    d.assign(kV, 0.0);
    for (size_t v = 0; v < kV; ++v) {
      const double gradient = kDLoss * w * (p[v] / total - (v == target ? 1.0 : 0.0));
      const DType dtype = args_.quant.d_logits;
      const double scale = double{MaxFinite(dtype)} / kDLoss;
      d[v] = double{RoundToFormat(static_cast<float>(gradient * scale), dtype)} / scale;
    }
    return w == 0.0 ? 0.0 : -w * std::log(p[target] / total);
  }

  std::vector<float> hidden_ = std::vector<float>(kRows * kC);
  std::vector<float> weight_ = std::vector<float>(kVp * kC);
  std::vector<uint8_t> x_rows_, x_columns_, w_rows_, w_columns_;
  std::vector<int32_t> targets_ = std::vector<int32_t>(kRows);
  std::vector<float> loss_weight_ = std::vector<float>(kRows);
  std::vector<float> d_hidden_ = std::vector<float>(kRows * kC, 9.0F);
  std::vector<float> d_weight_ = std::vector<float>(kVp * kC, 9.0F);
  float hidden_scale_ = 0.01F;
  float weight_scale_ = 0.02F;
  double loss_sum_ = 0.0;
  double weight_sum_ = 0.0;
  LinearCrossEntropyArgs args_;
};

TEST_F(QuantisedHead, Cpu_EqualsDecodedProductsWithE5m2Gradients) {
  ExpectDecodedProducts();
}

TEST_F(QuantisedHead, Cpu_EqualsDecodedProductsWithE4m3Gradients) {
  args_.quant.d_logits = DType::kE4M3;
  ExpectDecodedProducts();
}

TEST_F(QuantisedHead, BadCalls_AreRefused) {
  args_.chunk = 24;
  EXPECT_EQ(Execute().code(), absl::StatusCode::kInvalidArgument);
  args_.chunk = 16;
  const TensorView columns = args_.quant.weight_columns;
  args_.quant.weight_columns = TensorView();
  EXPECT_EQ(Execute().code(), absl::StatusCode::kInvalidArgument);
  args_.quant.weight_columns = columns;
  args_.quant.d_logits = DType::kBF16;
  EXPECT_EQ(Execute().code(), absl::StatusCode::kInvalidArgument);
  // Two operands in E5M2 have no product.
  args_.quant.d_logits = DType::kE5M2;
  args_.quant.hidden_rows.dtype = args_.quant.hidden_columns.dtype = DType::kE5M2;
  EXPECT_EQ(Execute().code(), absl::StatusCode::kInvalidArgument);
}

// CUDA's chunks cover the tokens in equal parts of at most 1 GiB of logits.
TEST(LinearCrossEntropy, CudaChunks_AreEvenAndBounded) {
  LinearCrossEntropyArgs args;
  const auto chunk = [&](int64_t tokens, int64_t padded) {
    args.hidden = TensorView(static_cast<void*>(nullptr), DType::kBF16, {tokens, 768});
    args.weight = TensorView(static_cast<void*>(nullptr), DType::kBF16, {padded, 768});
    return cuda::HeadLayoutOf(args).chunk;
  };
  EXPECT_EQ(chunk(36864, 49152), 9216);
  EXPECT_EQ(chunk(36864, 151936), 3456);
  EXPECT_EQ(chunk(100, 49152), 100);
  args.chunk = 64;
  EXPECT_EQ(chunk(100, 49152), 64);
}

// The products of an FP8 head in chunks, as CUDA calls them.
std::vector<GemmArgs> HeadProducts(const formats::HeadLayout& layout,
                                   int64_t tokens,
                                   int64_t channels) {
  static const float kScale = 1.0F;
  const auto product = [](int64_t m, int64_t n, int64_t k) {
    GemmArgs args;
    args.a = TensorView(static_cast<void*>(nullptr), DType::kE4M3, {m, k});
    args.b = TensorView(static_cast<void*>(nullptr), DType::kE4M3, {n, k});
    args.transpose_b = true;
    args.scale_a = args.scale_b = &kScale;
    return args;
  };
  std::vector<GemmArgs> products;
  for (int64_t begin = 0; begin < tokens; begin += layout.chunk) {
    const int64_t count = std::min(layout.chunk, tokens - begin);
    products.push_back(product(count, layout.padded, channels));
    products.push_back(product(layout.padded, channels, count));
    products.push_back(product(count, channels, layout.padded));
  }
  return products;
}

// On GPUs where plain FP8 runs at half the rate of block-scaled units every product of the head has
// to get its unit scales, however large the vocabulary is.
TEST(LinearCrossEntropy, CudaWorkspace_LeavesUnitScalesToEachProduct) {
  struct Row {
    int64_t padded;
    int64_t channels;
    int64_t chunk;
    size_t scale_bytes;  // of the product with most
  };
  constexpr int64_t kManyTokens = 36864;
  for (const Row& row :
       {Row{131072, 1024, 4096, size_t{16} << 20}, Row{262144, 2048, 2048, size_t{16} << 20},
        Row{65536, 768, 7424, size_t{7424} * 65536 / 32}}) {
    SCOPED_TRACE(row.padded);
    formats::HeadShape shape;
    shape.tokens = kManyTokens;
    shape.padded = row.padded;
    shape.fp8_gradient = true;
    const formats::HeadLayout layout = formats::HeadLayoutOf(shape);
    EXPECT_EQ(layout.chunk, row.chunk);
    EXPECT_EQ(layout.bytes - layout.gemm, cuda::kGemmWorkspaceBytes);
    size_t scale_bytes = 0;
    for (const GemmArgs& args : HeadProducts(layout, kManyTokens, row.channels)) {
      EXPECT_TRUE(cuda::SuitsUnitScales(args, cuda::kGemmWorkspaceBytes)) << ExtentsOf(args).k;
      scale_bytes = std::max(scale_bytes, cuda::UnitScaleBytes(args));
    }
    EXPECT_EQ(scale_bytes, row.scale_bytes);
  }
}

}  // namespace
}  // namespace hearth::kernels
