#include "kernels/thin_gemm/thin_gemm.h"

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/core/cpu_workspace.h"
#include "kernels/core/rng.h"
#include "kernels/norm/norm.h"
#include "kernels/thin_gemm/thin_tiling.h"

namespace hearth::kernels {
namespace {

struct GpuRow {
  const char* name;
  ThinGpu gpu;
};
constexpr GpuRow kGpus[] = {{"H200", {132, 232448, true}}, {"RTX 5090", {170, 101376, false}}};

// Products of models: width of y, depth.
constexpr ThinShape kShapes[] = {
    {0, 1152, 768, false},  {0, 768, 768, false},   {0, 2048, 768, true},  {0, 768, 2048, false},
    {0, 1152, 896, false},  {0, 896, 896, false},   {0, 4864, 896, true},  {0, 896, 4864, false},
    {0, 2048, 1536, false}, {0, 1536, 1536, false}, {0, 8960, 1536, true}, {0, 1536, 8960, false},
};

// Empty, or what is wrong.
std::string Check(const ThinTiling& t, const ThinShape& shape, const ThinGpu& gpu) {
  const int64_t resident = (t.blocks() + gpu.multiprocessors - 1) / gpu.multiprocessors;
  const int64_t columns = shape.swiglu ? t.tile.rows / 2 : t.tile.rows;
  if (t.tile.groups != (gpu.groups && shape.tokens > 32)) {
    return "the kernel";
  }
  // Boxes of w begin where the swizzle of shared memory does.
  if (t.tile.groups && columns % 8 != 0) {
    return "the rows";
  }
  if (t.tile.tokens < shape.tokens || t.tiles * columns < shape.width) {
    return "it leaves out a part of y";
  }
  if (resident > t.tile.most_resident() ||
      resident * (t.block_bytes() + 1024) > gpu.shared_bytes + 1024) {
    return absl::StrCat(resident, " blocks of ", t.block_bytes(), " bytes do not run at once");
  }
  if (t.first(0) != 0 || t.first(t.splits) != (shape.depth + kThinDepth - 1) / kThinDepth) {
    return "the slices are not all of K";
  }
  for (int rank = 0; rank < t.splits; ++rank) {
    const int64_t count = t.first(rank + 1) - t.first(rank);
    if (count < 1 || count > t.longest()) {
      return absl::StrCat("block ", rank, " has ", count, " stages");
    }
  }
  return t.stages >= 1 && t.stages <= t.longest() && t.stages <= t.tile.most_stages() ? ""
                                                                                      : "the ring";
}

TEST(ThinTiling, OfModels_RunsAllBlocksAtOnce) {
  for (const GpuRow& row : kGpus) {
    for (ThinShape shape : kShapes) {
      for (const int64_t tokens : {1, 3, 8, 16, 17, 33, 64}) {
        shape.tokens = tokens;
        shape.norm = tokens % 2 == 0;
        const std::optional<ThinTiling> tiling = TileThinGemm(shape, row.gpu);
        const std::string what = absl::StrCat(row.name, ": ", tokens, " x ", shape.width, " x ",
                                              shape.depth, shape.swiglu ? " with SwiGLU" : "");
        ASSERT_TRUE(tiling.has_value()) << what;
        EXPECT_EQ(Check(*tiling, shape, row.gpu), "") << what;
      }
    }
  }
}

// Which row of a batch a token is must not decide its bits, nor how many others there are.
TEST(ThinTiling, OfFewTokens_DividesKAlike) {
  for (const ThinShape& shape : kShapes) {
    ThinShape one = shape;
    ThinShape sixteen = shape;
    one.tokens = 1;
    sixteen.tokens = 16;
    const std::optional<ThinTiling> a = TileThinGemm(one, kGpus[0].gpu);
    const std::optional<ThinTiling> b = TileThinGemm(sixteen, kGpus[0].gpu);
    ASSERT_TRUE(a.has_value() && b.has_value());
    EXPECT_EQ(a->splits, b->splits);
    EXPECT_EQ(a->tile.rows, b->tile.rows);
  }
}

struct SplitsRow {
  ThinShape shape;
  int rows;
  int splits;
  int stages;
};
// On an H200: by warps enough blocks that no multiprocessor is idle, and no more; by groups the
// divisions that were the fastest there, or within 6 % of them.
constexpr SplitsRow kSplits[] = {
    {{1, 1152, 768, false}, 64, 4, 3},   {{16, 2048, 768, true}, 64, 2, 6},
    {{1, 8960, 1536, true}, 64, 1, 7},   {{1, 1536, 8960, false}, 64, 8, 8},
    {{64, 1152, 768, false}, 64, 4, 3},  {{64, 768, 768, false}, 64, 4, 3},
    {{64, 2048, 768, true}, 32, 1, 9},   {{64, 768, 2048, false}, 32, 4, 8},
    {{64, 2048, 1536, false}, 64, 4, 6}, {{64, 1536, 1536, false}, 64, 4, 6},
    {{64, 8960, 1536, true}, 80, 1, 6},  {{64, 1536, 8960, false}, 64, 8, 6},
};

TEST(ThinTiling, OnAnH200_DividesAsMeasured) {
  for (const SplitsRow& row : kSplits) {
    const std::optional<ThinTiling> tiling = TileThinGemm(row.shape, kGpus[0].gpu);
    ASSERT_TRUE(tiling.has_value());
    const std::string what =
        absl::StrCat(row.shape.tokens, " x ", row.shape.width, " x ", row.shape.depth);
    EXPECT_EQ(tiling->tile.rows, row.rows) << what;
    EXPECT_EQ(tiling->splits, row.splits) << what;
    EXPECT_EQ(tiling->stages, row.stages) << what;
  }
}

TEST(ThinTiling, OfWhatDoesNotFit_IsNone) {
  const ThinGpu gpu = kGpus[0].gpu;
  EXPECT_FALSE(TileThinGemm({65, 768, 768, false}, gpu).has_value());
  EXPECT_FALSE(TileThinGemm({0, 768, 768, false}, gpu).has_value());
  EXPECT_FALSE(TileThinGemm({1, 772, 768, false}, gpu).has_value());
  EXPECT_FALSE(TileThinGemm({1, 768, 772, false}, gpu).has_value());
  // A vocabulary: the blocks would come in turns.
  EXPECT_FALSE(TileThinGemm({1, 50304, 768, false}, gpu).has_value());
  // Asked for: more blocks than stages, and a tile that is none.
  EXPECT_FALSE(TileThinGemm({1, 768, 128, false}, gpu, 0, 4).has_value());
  EXPECT_FALSE(TileThinGemm({1, 768, 768, false}, gpu, 96, 0).has_value());
  EXPECT_TRUE(TileThinGemm({64, 768, 768, false}, gpu, 128, 0).has_value());
  // SwiGLU by groups has boxes of gate and of up, 20 rows of which are no eights: warps do it.
  EXPECT_FALSE(TileThinGemm({64, 768, 768, true}, gpu, 40, 0).has_value());
}

std::vector<float> Normal(uint32_t stream, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  FillNormal({20240517, RngPurpose::kTest, stream, 0, 0}, 0, 0.0, 0.5, values.data(), count);
  return values;
}

constexpr int64_t kRows = 3;
constexpr int64_t kDepth = 24;
constexpr int64_t kFfn = 8;

TEST(ThinGemm, OnTheCpu_SameBitsAsTheGatedProduct) {
  const std::vector<float> x = Normal(0, kRows * kDepth);
  const std::vector<float> w = Normal(1, 2 * kFfn * kDepth);
  std::vector<float> y(kRows * kFfn), want = y, gate_up(kRows * 2 * kFfn);
  ThinGemmArgs args;
  args.x = View(x.data(), {kRows, kDepth});
  args.w = View(w.data(), {2 * kFfn, kDepth});
  args.y = View(y.data(), {kRows, kFfn});
  args.swiglu = true;
  args.round = DType::kBF16;
  CpuWorkspace scratch(ThinGemmWorkspaceBytes(args));
  ASSERT_TRUE(ThinGemm(scratch.With(Exec()), args).ok());
  GatedGemmForwardArgs gated;
  gated.product.a = args.x;
  gated.product.b = args.w;
  gated.product.c = View(gate_up.data(), {kRows, 2 * kFfn});
  gated.product.transpose_b = true;
  gated.product.round_c = DType::kBF16;
  gated.activation.gate_up = gated.product.c;
  gated.activation.y = View(want.data(), {kRows, kFfn});
  gated.activation.round_y = DType::kBF16;
  ASSERT_TRUE(GatedGemmForward(Exec(), gated).ok());
  EXPECT_EQ(y, want);
  // The workspace is asked for.
  EXPECT_FALSE(ThinGemm(Exec(), args).ok());
}

TEST(ThinGemm, OnTheCpu_NormAndAddendAreThoseOfTheirOps) {
  const std::vector<float> x = Normal(0, kRows * kDepth);
  const std::vector<float> w = Normal(1, kFfn * kDepth);
  const std::vector<float> weight = Normal(2, kDepth);
  const std::vector<float> bias = Normal(3, kFfn);
  const std::vector<float> addend = Normal(4, kRows * kFfn);
  std::vector<float> y = addend, normed(kRows * kDepth), want(kRows * kFfn);
  ThinGemmArgs args;
  args.x = View(x.data(), {kRows, kDepth});
  args.input_norm = {View(weight.data(), {kDepth}), 1e-5};
  args.w = View(w.data(), {kFfn, kDepth});
  args.bias = View(bias.data(), {kFfn});
  args.addend = args.y = View(y.data(), {kRows, kFfn});
  CpuWorkspace scratch(ThinGemmWorkspaceBytes(args));
  ASSERT_TRUE(ThinGemm(scratch.With(Exec()), args).ok());
  RmsNormForwardArgs norm;
  norm.x = args.x;
  norm.weight = args.input_norm.weight;
  norm.y = View(normed.data(), {kRows, kDepth});
  ASSERT_TRUE(RmsNormForward(Exec(), norm).ok());
  GemmArgs product;
  product.a = norm.y;
  product.b = args.w;
  product.transpose_b = true;
  product.bias = args.bias;
  product.beta = 1.0;
  product.addend = View(addend.data(), {kRows, kFfn});
  product.c = View(want.data(), {kRows, kFfn});
  ASSERT_TRUE(Gemm(Exec(), product).ok());
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_NEAR(y[i], want[i], 1e-5 * (1 + std::fabs(want[i])));
  }
  // Passes on the CPU normalise apart, which is faster, and other products cannot do it.
  product.input_norm = args.input_norm;
  EXPECT_FALSE(TakesInputNorm(Exec(), product));
  product.alpha = 2.0;
  EXPECT_EQ(Gemm(Exec(), product).code(), absl::StatusCode::kInvalidArgument);
}

TEST(ThinGemm, ArgumentsThatDoNotFit_AreRefused) {
  std::vector<float> x(kRows * kDepth), w(2 * kFfn * kDepth), y(kRows * 2 * kFfn), bias(2 * kFfn);
  ThinGemmArgs good;
  good.x = View(x.data(), {kRows, kDepth});
  good.w = View(w.data(), {2 * kFfn, kDepth});
  good.y = View(y.data(), {kRows, 2 * kFfn});
  good.bias = View(bias.data(), {2 * kFfn});
  ASSERT_TRUE(CanImplement(good).ok());
  const auto refused = [&good](auto change) {
    ThinGemmArgs args = good;
    change(args);
    return CanImplement(args).code() == absl::StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused([](ThinGemmArgs& a) { a.w = View(a.w.as<float>(), {kDepth, 2 * kFfn}); }));
  EXPECT_TRUE(refused([](ThinGemmArgs& a) { a.y = View(a.y.as<float>(), {kRows, kFfn}); }));
  EXPECT_TRUE(refused([](ThinGemmArgs& a) { a.gate_up = a.y; }));
  EXPECT_TRUE(refused([](ThinGemmArgs& a) { a.swiglu = true; }));
  EXPECT_TRUE(refused([](ThinGemmArgs& a) { a.splits = 3; }));
  EXPECT_TRUE(refused([](ThinGemmArgs& a) { a.addend = a.x; }));
  EXPECT_TRUE(refused([](ThinGemmArgs& a) { a.input_norm.weight = a.bias; }));
  EXPECT_TRUE(refused([](ThinGemmArgs& a) { a.bias = View(a.bias.as<float>(), {kFfn}); }));
}

}  // namespace
}  // namespace hearth::kernels
