#include "kernels/cached_attention/cached_attention.h"

#include <cmath>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/attention/attention.h"
#include "kernels/core/cpu_workspace.h"
#include "kernels/core/rng.h"
#include "kernels/qk_norm_rope/qk_norm_rope.h"

namespace hearth::kernels {
namespace {

// A sequence token by token against the same sequence at once.
void ExpectSameAsAttention(const AttentionDims& dims) {
  const int64_t width = (dims.heads + 2 * dims.kv_heads) * dims.head_dim;
  const int64_t out_width = dims.heads * dims.head_dim;
  std::vector<float> qkv(static_cast<size_t>(dims.batch * dims.sequence * width));
  FillNormal({20240517, RngPurpose::kTest, 0, 0, 0}, 0, 0.0, 1.0, qkv.data(),
             static_cast<int64_t>(qkv.size()));
  std::vector<float> whole(static_cast<size_t>(dims.batch * dims.sequence * out_width));
  AttentionForwardArgs attention;
  attention.dims = dims;
  attention.qkv = View(qkv.data(), {dims.batch * dims.sequence, width});
  attention.out = View(whole.data(), {dims.batch * dims.sequence, out_width});
  Exec exec;
  CpuWorkspace attention_scratch(AttentionForwardWorkspaceBytes(exec, attention));
  ASSERT_TRUE(AttentionForward(attention_scratch.With(exec), attention).ok());

  CachedAttentionArgs cached;
  cached.dims = {dims.batch, dims.sequence + 3, dims.heads, dims.kv_heads, dims.head_dim};
  std::vector<float> keys(static_cast<size_t>(cached.dims.elements()), NAN);
  std::vector<float> values = keys;
  std::vector<float> row(static_cast<size_t>(dims.batch * width));
  std::vector<float> out(static_cast<size_t>(dims.batch * out_width));
  std::vector<int32_t> positions(static_cast<size_t>(dims.batch));
  cached.qkv = View(row.data(), {dims.batch, width});
  cached.positions = View(positions.data(), {dims.batch});
  cached.keys = View(keys.data(), {cached.dims.elements()});
  cached.values = View(values.data(), {cached.dims.elements()});
  cached.out = View(out.data(), {dims.batch, out_width});
  CpuWorkspace scratch(CachedAttentionWorkspaceBytes(exec, cached));
  for (int64_t t = 0; t < dims.sequence; ++t) {
    for (int64_t b = 0; b < dims.batch; ++b) {
      std::copy_n(&qkv[static_cast<size_t>((b * dims.sequence + t) * width)], width,
                  &row[static_cast<size_t>(b * width)]);
      positions[static_cast<size_t>(b)] = static_cast<int32_t>(t);
    }
    ASSERT_TRUE(CachedAttention(scratch.With(exec), cached).ok());
    for (int64_t b = 0; b < dims.batch; ++b) {
      for (int64_t i = 0; i < out_width; ++i) {
        const float want = whole[static_cast<size_t>((b * dims.sequence + t) * out_width + i)];
        EXPECT_NEAR(out[static_cast<size_t>(b * out_width + i)], want,
                    1e-6 + 1e-5 * std::fabs(want))
            << "token " << t << " of sequence " << b << ", element " << i;
      }
    }
  }
}

TEST(CachedAttention, TokenByToken_IsAttention) {
  ExpectSameAsAttention({2, 19, 4, 4, 8});
  ExpectSameAsAttention({1, 70, 6, 2, 5});
  ExpectSameAsAttention({3, 33, 5, 1, 16});
}

// One sequence with room for one key of one value.
struct OneKey {
  float value = 0;
  float out = 0;
  float qkv[3] = {1, 1, 1};
  int32_t position = 0;

  CachedAttentionArgs Args() {
    CachedAttentionArgs args;
    args.dims = {1, 1, 1, 1, 1};
    args.qkv = View(qkv, {1, 3});
    args.positions = View(&position, {1});
    args.keys = args.values = View(&value, {1});
    args.out = View(&out, {1, 1});
    return args;
  }
};

TEST(CachedAttention, PositionOutsideTheCache_IsRefused) {
  OneKey one;
  for (const int32_t position : {-1, 1}) {
    one.position = position;
    const CachedAttentionArgs args = one.Args();
    const Exec exec;
    CpuWorkspace scratch(CachedAttentionWorkspaceBytes(exec, args));
    EXPECT_EQ(CachedAttention(scratch.With(exec), args).code(), absl::StatusCode::kOutOfRange);
  }
}

TEST(CachedAttention, SplitsOutOfRange_AreRefused) {
  OneKey one;
  CachedAttentionArgs args = one.Args();
  for (const auto& [splits, ok] : {std::pair(-1, false), {0, true}, {64, true}, {65, false}}) {
    args.splits = splits;
    EXPECT_EQ(CanImplement(args).ok(), ok) << splits;
  }
}

TEST(CachedAttention, OddHeadWithRope_IsRefused) {
  OneKey one;
  CachedAttentionArgs args = one.Args();
  EXPECT_TRUE(CanImplement(args).ok());
  args.rope.enabled = true;
  EXPECT_EQ(CanImplement(args).code(), absl::StatusCode::kInvalidArgument);
}

// Attention of three sequences at different positions, with values of their own.
struct ThreeTokens {
  static constexpr CacheDims kDims = {3, 40, 6, 2, 16};
  std::vector<float> qkv = std::vector<float>(3 * kDims.width());
  std::vector<float> keys = std::vector<float>(kDims.elements());
  std::vector<float> values = std::vector<float>(kDims.elements());
  std::vector<float> out = std::vector<float>(3 * 6 * 16);
  std::vector<int32_t> positions = {0, 39, 17};

  ThreeTokens() {
    uint32_t tensor = 0;
    for (std::vector<float>* all : {&qkv, &keys, &values}) {
      FillNormal({7, RngPurpose::kTest, ++tensor, 0, 0}, 0, 0.0, 1.0, all->data(),
                 static_cast<int64_t>(all->size()));
    }
  }
  CachedAttentionArgs Args() {
    CachedAttentionArgs args;
    args.dims = kDims;
    args.qkv = View(qkv.data(), {3, kDims.width()});
    args.positions = View(positions.data(), {3});
    args.keys = View(keys.data(), {kDims.elements()});
    args.values = View(values.data(), {kDims.elements()});
    args.out = View(out.data(), {3, 6 * 16});
    return args;
  }
};

TEST(CachedAttention, Rope_IsTheRotationAndThenAttention) {
  for (const RopeScalingType scaling :
       {RopeScalingType::kNone, RopeScalingType::kLinear, RopeScalingType::kLlama3}) {
    for (const DType round : {DType::kF32, DType::kBF16}) {
      RopeConfig rope;
      rope.theta = 500.0;
      rope.scaling.type = scaling;
      rope.scaling.factor = scaling == RopeScalingType::kNone ? 1.0 : 4.0;
      rope.scaling.original_max_position = 16;
      ThreeTokens together;
      const std::vector<float> given = together.qkv;
      CachedAttentionArgs args = together.Args();
      args.rope = rope;
      args.round = round;
      Exec exec;
      exec.threads = 2;
      CpuWorkspace scratch(CachedAttentionWorkspaceBytes(exec, args));
      ASSERT_TRUE(CachedAttention(scratch.With(exec), args).ok());
      EXPECT_EQ(together.qkv, given);

      ThreeTokens apart;
      args = apart.Args();
      args.round = round;
      QkNormRopeForwardArgs rotation;
      rotation.dims = {6, 2, 16};
      rotation.rope = rope;
      rotation.qkv = rotation.out = args.qkv;
      rotation.positions = args.positions;
      rotation.round_out = round;
      CpuWorkspace table(QkNormRopeForwardWorkspaceBytes(rotation));
      ASSERT_TRUE(QkNormRopeForward(table.With(exec), rotation).ok());
      EXPECT_NE(apart.qkv, given);
      ASSERT_TRUE(CachedAttention(scratch.With(exec), args).ok());
      EXPECT_EQ(together.out, apart.out);
      EXPECT_EQ(together.keys, apart.keys);
      EXPECT_EQ(together.values, apart.values);
    }
  }
}

TEST(CachedAttention, RotatesHeadsThatAreNotNormed) {
  QkNormRopeForwardArgs rotation;
  EXPECT_TRUE(CachedAttentionRotates(rotation));
  float weight[2] = {1, 1};
  rotation.q_weight = rotation.k_weight = View(weight, {2});
  EXPECT_FALSE(CachedAttentionRotates(rotation));
}

TEST(CacheSplits, FillTheDevice_AndNoMore) {
  const struct {
    CacheDims dims;
    int64_t splits;
  } rows[] = {
      {{512, 1024, 12, 3, 64}, 1}, {{64, 1024, 12, 3, 64}, 2},  {{32, 1024, 12, 3, 64}, 4},
      {{64, 512, 12, 2, 128}, 1},  {{64, 1024, 12, 2, 128}, 2}, {{64, 440, 12, 3, 64}, 1},
      {{64, 300, 12, 2, 128}, 1},  {{1, 1024, 12, 3, 64}, 16},  // 64 keys each
      {{1, 320, 12, 2, 128}, 5},   {{1, 63, 12, 2, 128}, 1},    {{1, 1 << 20, 12, 2, 128}, 64},
  };
  for (const auto& row : rows) {
    EXPECT_EQ(cuda::CacheSplits(row.dims, 132), row.splits)
        << row.dims.batch << " x " << row.dims.capacity;
  }
  CachedAttentionArgs args;
  args.dims = rows[0].dims;
  EXPECT_EQ(cuda::SplitsOf(args, 132), 1);
  args.splits = 7;
  EXPECT_EQ(cuda::SplitsOf(args, 132), 7);
  EXPECT_EQ(cuda::SplitWorkspaceBytes({64, 1024, 12, 3, 64}, 1), 0);
}

}  // namespace
}  // namespace hearth::kernels
