#include "kernels/weight_blocks/weight_blocks.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/core/rng.h"

namespace hearth::kernels {
namespace {

using formats::WeightCodec;

constexpr WeightCodec kCodecs[] = {WeightCodec::kQ80, WeightCodec::kQ40, WeightCodec::kNvfp4};
constexpr int64_t kCount = 4096;

class Weights {
 public:
  explicit Weights(WeightCodec codec)
      : codec_(codec), bytes_(static_cast<size_t>(formats::RowOf(codec).Bytes(kCount))) {}

  void Encode(const std::vector<float>& x, int64_t step, bool keep, int threads = 1) {
    EncodeWeightsArgs args;
    args.codec = codec_;
    args.x = View(x.data(), {kCount});
    args.blocks = Blocks();
    args.keep = keep;
    args.seed = 9;
    args.step = step;
    args.index = 4;
    Exec exec;
    exec.threads = threads;
    const absl::Status encoded = EncodeWeights(exec, args);
    ASSERT_TRUE(encoded.ok()) << encoded;
  }
  std::vector<float> Values() const {
    std::vector<float> y(kCount);
    DecodeWeightsArgs args;
    args.codec = codec_;
    args.blocks = Blocks();
    args.y = View(y.data(), {kCount});
    const absl::Status decoded = DecodeWeights(Exec(), args);
    EXPECT_TRUE(decoded.ok()) << decoded;
    return y;
  }
  TensorView Blocks() const {
    return {
        static_cast<const void*>(bytes_.data()), DType::kU8, {static_cast<int64_t>(bytes_.size())}};
  }
  const std::vector<uint8_t>& bytes() const { return bytes_; }

 private:
  WeightCodec codec_;
  std::vector<uint8_t> bytes_;
};

std::vector<float> Normal() {
  std::vector<float> x(kCount);
  FillNormal({3, RngPurpose::kTest, 0, 0, 0}, 0, 0.0, 0.02, x.data(), kCount);
  return x;
}

double MeanOf(const std::vector<float>& x, const std::vector<float>& from) {
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    sum += double{x[i]} - double{from[i]};
  }
  return sum / static_cast<double>(x.size());
}

TEST(WeightBlocks, Values_ThatDoNotChange_KeepTheirBytes) {
  for (const WeightCodec codec : kCodecs) {
    Weights weights(codec);
    weights.Encode(Normal(), 1, false);
    const std::vector<uint8_t> before = weights.bytes();
    for (int step = 1; step <= 5; ++step) {
      weights.Encode(weights.Values(), step, true);
    }
    EXPECT_EQ(weights.bytes(), before) << formats::RowOf(codec).name;
  }
}

// Updates far below a step of the grid add up over many steps, without noise that grows with their
// number as it does where scales are made again each time.
TEST(WeightBlocks, SmallUpdates_AddUp) {
  constexpr int kSteps = 400;
  constexpr double kUpdate = 1e-5;  // 1/20 of an int8 step, 1/600 of a q4_0 step
  for (const WeightCodec codec : kCodecs) {
    Weights weights(codec);
    weights.Encode(Normal(), 1, false);
    const std::vector<float> before = weights.Values();
    for (int step = 1; step <= kSteps; ++step) {
      std::vector<float> x = weights.Values();
      for (float& value : x) {
        value += static_cast<float>(kUpdate);
      }
      weights.Encode(x, step, true);
    }
    // The variance of an element is about kSteps * kUpdate * d, d <= 2 * 0.08 / 3.5 at most.
    const double deviation = std::sqrt(kSteps * kUpdate * 0.05 / kCount);
    EXPECT_NEAR(MeanOf(weights.Values(), before), kSteps * kUpdate, 5 * deviation)
        << formats::RowOf(codec).name;
  }
}

TEST(WeightBlocks, Bits_DependNeitherOnThreads_NorOnHowATensorIsCut) {
  for (const WeightCodec codec : kCodecs) {
    Weights one(codec);
    one.Encode(Normal(), 1, false);
    std::vector<float> x = one.Values();
    for (float& value : x) {
      value *= 1.003F;
    }
    Weights two = one;
    Weights cut = one;
    one.Encode(x, 7, true);
    two.Encode(x, 7, true, 3);
    EXPECT_EQ(one.bytes(), two.bytes());
    EXPECT_NE(one.bytes(), cut.bytes());
    const formats::WeightCodecRow& row = formats::RowOf(codec);
    for (int64_t first = 0; first < kCount; first += 1024) {
      EncodeWeightsArgs args;
      args.codec = codec;
      args.x = Slice(View(x.data(), {kCount}), first, 1024);
      args.blocks = Slice(cut.Blocks(), row.Bytes(first), row.Bytes(1024));
      args.keep = true;
      args.seed = 9;
      args.step = 7;
      args.index = 4;
      args.first_element = static_cast<uint64_t>(first);
      ASSERT_TRUE(EncodeWeights(Exec(), args).ok());
    }
    EXPECT_EQ(one.bytes(), cut.bytes()) << row.name;
  }
}

TEST(WeightBlocks, WrongArguments_AreRefused) {
  std::vector<float> x(48);
  std::vector<uint8_t> blocks(64);
  EncodeWeightsArgs args;
  args.x = View(x.data(), {48});
  args.blocks = TensorView(static_cast<void*>(blocks.data()), DType::kU8, {51});
  EXPECT_TRUE(absl::IsInvalidArgument(CanImplement(args))) << "48 is no number of blocks";
  args.x = View(x.data(), {32});
  EXPECT_TRUE(absl::IsInvalidArgument(CanImplement(args))) << "blocks have other bytes";
  args.blocks.shape[0] = 34;
  EXPECT_TRUE(CanImplement(args).ok());
  args.first_element = 2;
  EXPECT_TRUE(absl::IsInvalidArgument(CanImplement(args)));
  args.first_element = 0;
  args.codec = WeightCodec::kNone;
  EXPECT_TRUE(absl::IsInvalidArgument(CanImplement(args)));
}

}  // namespace
}  // namespace hearth::kernels
