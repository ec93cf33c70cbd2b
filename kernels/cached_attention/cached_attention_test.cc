#include "kernels/cached_attention/cached_attention.h"

#include <cmath>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/attention/attention.h"
#include "kernels/core/cpu_workspace.h"
#include "kernels/core/rng.h"

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
