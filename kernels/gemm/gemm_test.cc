#include "kernels/gemm/gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/core/block_quant.h"
#include "kernels/core/cpu_workspace.h"
#include "kernels/core/formats.h"
#include "kernels/core/rng.h"
#include "kernels/formats/span.h"
#include "kernels/gemm/gemm_key.h"
#include "kernels/round/round.h"

namespace hearth::kernels {
namespace {

constexpr int64_t kM = 19;
constexpr int64_t kN = 32;
constexpr int64_t kK = 48;
constexpr int64_t kLda = 64;
constexpr int64_t kLdb = 80;
constexpr int64_t kLdc = 37;
alignas(kScaleBoundary) constexpr float kScaleA = 0.037F;
alignas(kScaleBoundary) constexpr float kScaleB = 1.9F;

std::vector<uint8_t> Codes(uint32_t tensor, DType dtype, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  FillNormal({3, RngPurpose::kTest, 0, 0, tensor}, 0, 0.0, 4.0, values.data(), count);
  std::vector<uint8_t> codes(static_cast<size_t>(count));
  EncodeSpan(values.data(), count, dtype, codes.data());
  return codes;
}

double Decode(DType dtype, uint8_t code) {
  return double{dtype == DType::kE4M3 ? DecodeE4m3(code) : DecodeE5m2(code)};
}

struct Problem {
  explicit Problem(DType type_a, DType type_b)
      : a(Codes(0, type_a, kM * kLda)), b(Codes(1, type_b, kN * kLdb)), c(kM * kLdc, 3.0F) {
    args.a = TensorView(a.data(), type_a, {kM, kK});
    args.b = TensorView(b.data(), type_b, {kN, kK});
    args.c = TensorView(c.data(), DType::kF32, {kM, kN});
    args.transpose_b = true;
    args.scale_a = &kScaleA;
    args.scale_b = &kScaleB;
    args.lda = kLda;
    args.ldb = kLdb;
    args.ldc = kLdc;
  }
  absl::Status Execute() {
    const size_t bytes = GemmWorkspaceBytes(Exec(), args);
    memory.resize(bytes / sizeof(float) + 32);
    void* begin = memory.data();
    size_t space = memory.size() * sizeof(float);
    Exec exec;
    exec.workspace = {std::align(64, bytes, begin, space), bytes};
    return Gemm(exec, args);
  }

  std::vector<uint8_t> a;
  std::vector<uint8_t> b;
  std::vector<float> c;
  std::vector<float> memory;
  GemmArgs args;
};

TEST(Gemm, Fp8Operands_EqualTheProductOfDecodedValues) {
  for (const auto& [type_a, type_b] :
       {std::pair(DType::kE4M3, DType::kE4M3), std::pair(DType::kE5M2, DType::kE4M3),
        std::pair(DType::kE4M3, DType::kE5M2)}) {
    Problem run(type_a, type_b);
    run.args.alpha = 0.5;
    run.args.beta = -2.0;
    ASSERT_TRUE(run.Execute().ok());
    for (int64_t m = 0; m < kM; ++m) {
      for (int64_t n = 0; n < kN; ++n) {
        double sum = 0.0;
        double magnitude = 0.0;
        for (int64_t k = 0; k < kK; ++k) {
          const double product = Decode(type_a, run.a[static_cast<size_t>(m * kLda + k)]) *
                                 Decode(type_b, run.b[static_cast<size_t>(n * kLdb + k)]);
          sum += product;
          magnitude += std::fabs(product);
        }
        const double scale = 0.5 * double{kScaleA} * double{kScaleB};
        EXPECT_NEAR(run.c[static_cast<size_t>(m * kLdc + n)], scale * sum - 6.0,
                    1e-6 * (scale * magnitude + 6.0));
      }
      for (int64_t n = kN; n < kLdc; ++n) {
        EXPECT_EQ(run.c[static_cast<size_t>(m * kLdc + n)], 3.0F);
      }
    }
  }
}

TEST(Gemm, Fp8Operands_BadCallsAreRefused) {
  Problem both_e5m2(DType::kE5M2, DType::kE5M2);
  EXPECT_EQ(both_e5m2.Execute().code(), absl::StatusCode::kInvalidArgument);
  Problem no_scale(DType::kE4M3, DType::kE4M3);
  no_scale.args.scale_b = nullptr;
  EXPECT_EQ(no_scale.Execute().code(), absl::StatusCode::kInvalidArgument);
  Problem odd(DType::kE4M3, DType::kE4M3);
  odd.args.lda = 50;
  EXPECT_EQ(odd.Execute().code(), absl::StatusCode::kInvalidArgument);
  Problem bf16(DType::kE4M3, DType::kE4M3);
  bf16.args.c.dtype = DType::kBF16;
  EXPECT_EQ(bf16.Execute().code(), absl::StatusCode::kUnimplemented);
}

// cuBLASLt refuses such products on every GPU, without a word about the scales; in blocks the
// tensors' scales go into alpha.
TEST(Gemm, Fp8Operands_ScalesOffTheirBoundaryAreRefusedOnEveryDevice) {
  alignas(kScaleBoundary) const float scales[] = {1.0F, 1.0F, 1.0F, 1.0F, 1.0F};
  Problem beside(DType::kE4M3, DType::kE4M3);
  beside.args.scale_a = &scales[0];
  beside.args.scale_b = &scales[1];
  const absl::Status refused = beside.Execute();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refused.message(),
            "gemm: FP8 scales lie on boundaries of 16 bytes: scale_a is 0 behind one, scale_b 4");
  std::swap(beside.args.scale_a, beside.args.scale_b);
  EXPECT_EQ(beside.Execute().code(), absl::StatusCode::kInvalidArgument);
  beside.args.scale_a = &scales[4];
  EXPECT_TRUE(beside.Execute().ok());
}

TEST(Gemm, ProductText_NamesAllThatALibraryMayRefuse) {
  Problem run(DType::kE5M2, DType::kE4M3);
  run.args.fast_accumulation = true;
  alignas(256) const float scales[8] = {};
  run.args.scale_a = &scales[0];
  run.args.scale_b = &scales[1];
  const std::string text = ProductText(run.args, false, 4096);
  for (const char* part :
       {"gemm m19_n32_k48_e5m2_e4m3_f32_nt_ld64.80.37_bias0_beta0_fast1_align", "_det0",
        "scale_a 0 bytes behind a multiple of 256, scale_b 4 bytes behind a multiple of 256",
        "alpha and beta on the host", "workspace 4096 bytes"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in " << text;
  }
  const uint8_t blocks[512] = {};
  run.args.block_scales_a = run.args.block_scales_b = blocks;
  run.args.block_layout_a = run.args.block_layout_b = BlockLayout::kMxfp8;
  run.args.scalars = scales;
  const std::string block_text = ProductText(run.args, false, 0);
  for (const char* part : {"blocks of mxfp8 and mxfp8, block_scales_a ", "on the device"}) {
    EXPECT_NE(block_text.find(part), std::string::npos) << part << " is not in " << block_text;
  }
}

// A narrow operand beside one in bf16, which may be transposed: the product of both widened.
TEST(Gemm, MixedOperands_AreTheProductOfTheWidenedOnes) {
  constexpr int64_t kRows = 16;
  constexpr int64_t kSum = 32;
  std::vector<float> wide(kRows * kSum);
  std::vector<float> other(kRows * kSum);
  FillNormal({3, RngPurpose::kTest, 0, 0, 4}, 0, 0.0, 1.0, wide.data(), kRows * kSum);
  FillNormal({3, RngPurpose::kTest, 0, 0, 5}, 0, 0.0, 1.0, other.data(), kRows * kSum);
  std::vector<uint16_t> bf16(wide.size());
  std::vector<uint8_t> fp8(other.size());
  const TensorView packed(bf16.data(), DType::kBF16, {kRows, kSum});
  const TensorView narrow(fp8.data(), DType::kE4M3, {kRows, kSum});
  ASSERT_TRUE(RoundTo(Exec(), {View(wide.data(), {kRows, kSum}), packed, DType::kBF16}).ok());
  ASSERT_TRUE(RoundTo(Exec(), {View(other.data(), {kRows, kSum}), narrow, DType::kE4M3}).ok());
  ASSERT_TRUE(Widen(Exec(), {packed, View(wide.data(), {kRows, kSum})}).ok());
  ASSERT_TRUE(Widen(Exec(), {narrow, View(other.data(), {kRows, kSum})}).ok());
  const float scale = 0.5F;
  for (const bool transposed : {false, true}) {
    // The same numbers as [sum, rows], where they are read transposed.
    const std::vector<int64_t> shape =
        transposed ? std::vector<int64_t>{kSum, kRows} : std::vector<int64_t>{kRows, kSum};
    std::vector<float> want(kRows * kRows);
    std::vector<float> got(kRows * kRows);
    GemmArgs args;
    args.a = View(wide.data(), {shape[0], shape[1]});
    args.b = View(other.data(), {kRows, kSum});
    args.c = View(want.data(), {kRows, kRows});
    args.transpose_a = transposed;
    args.transpose_b = true;
    args.alpha = scale;
    ASSERT_TRUE(Gemm(Exec(), args).ok());
    args.alpha = 1.0;
    args.a = TensorView(bf16.data(), DType::kBF16, {shape[0], shape[1]});
    args.b = narrow;
    args.c = View(got.data(), {kRows, kRows});
    args.scale_b = &scale;
    EXPECT_TRUE(IsMixed(args));
    EXPECT_EQ(GemmPathOf(Exec(), args), GemmPath::kEmulated);
    EXPECT_GT(GemmWorkspaceBytes(args), GemmWorkspaceBytes(Exec(), args));
    const CpuWorkspace scratch(GemmWorkspaceBytes(Exec(), args));
    const absl::Status done = Gemm(scratch.With(), args);
    ASSERT_TRUE(done.ok()) << done;
    EXPECT_EQ(got, want) << transposed;
    args.scale_a = &scale;
    EXPECT_FALSE(CanImplement(args).ok()) << "bf16 has no scale";
    args.scale_a = nullptr;
    args.scale_b = nullptr;
    EXPECT_FALSE(CanImplement(args).ok()) << "fp8 has one";
  }
}

TEST(Gemm, LeadingDimensions_SameAsContiguous) {
  std::vector<float> a(kK * kLda), b(kK * kLdb), wide(kM * kLdc, 7.0F), narrow(kM * kN);
  FillNormal({3, RngPurpose::kTest, 0, 0, 2}, 0, 0.0, 1.0, a.data(), kK * kLda);
  FillNormal({3, RngPurpose::kTest, 0, 0, 3}, 0, 0.0, 1.0, b.data(), kK * kLdb);
  std::vector<float> packed_a, packed_b;
  for (int64_t k = 0; k < kK; ++k) {
    packed_a.insert(packed_a.end(), a.begin() + k * kLda, a.begin() + k * kLda + kM);
    packed_b.insert(packed_b.end(), b.begin() + k * kLdb, b.begin() + k * kLdb + kN);
  }
  GemmArgs args;
  args.transpose_a = true;
  args.a = View(packed_a.data(), {kK, kM});
  args.b = View(packed_b.data(), {kK, kN});
  args.c = View(narrow.data(), {kM, kN});
  ASSERT_TRUE(Gemm(Exec(), args).ok());
  args.a = View(a.data(), {kK, kM});
  args.b = View(b.data(), {kK, kN});
  args.c = View(wide.data(), {kM, kN});
  args.lda = kLda;
  args.ldb = kLdb;
  args.ldc = kLdc;
  ASSERT_TRUE(Gemm(Exec(), args).ok());
  for (int64_t m = 0; m < kM; ++m) {
    for (int64_t n = 0; n < kLdc; ++n) {
      const float want = n < kN ? narrow[static_cast<size_t>(m * kN + n)] : 7.0F;
      EXPECT_FLOAT_EQ(wide[static_cast<size_t>(m * kLdc + n)], want);
    }
  }
}

// Operands with block scales that are all 1.
struct BlockProblem {
  BlockProblem(DType type_a, DType type_b)
      : values(static_cast<size_t>(kM + kN) * 64 + 16),
        scales(2 * BlockScaleBytes(BlockLayout::kNvfp4, kN, 64),
               type_a == DType::kE2M1 ? 0x38 : 127),
        c(kM * kN) {
    uint8_t* begin = values.data() + (16 - reinterpret_cast<uintptr_t>(values.data()) % 16) % 16;
    args.a = TensorView(begin, type_a, {kM, 64});
    args.b = TensorView(begin + kM * 64, type_b, {kN, 64});
    args.c = TensorView(c.data(), DType::kF32, {kM, kN});
    args.transpose_b = true;
    args.scale_a = &kScaleA;
    args.scale_b = &kScaleB;
    args.block_scales_a = args.block_scales_b = scales.data();
    const auto layout = [](DType type) {
      return type == DType::kE2M1 ? BlockLayout::kNvfp4 : BlockLayout::kMxfp8;
    };
    args.block_layout_a = layout(type_a);
    args.block_layout_b = layout(type_b);
  }
  std::vector<uint8_t> values;
  std::vector<uint8_t> scales;
  std::vector<float> c;
  GemmArgs args;
};

TEST(GemmBlockScaled, CanImplement_ChecksWhatGoesTogether) {
  EXPECT_TRUE(CanImplement(BlockProblem(DType::kE2M1, DType::kE2M1).args).ok());
  EXPECT_TRUE(CanImplement(BlockProblem(DType::kE5M2, DType::kE4M3).args).ok());
  // Each operand has a layout of its own, and a scale of the tensor where that has one.
  BlockProblem mixed(DType::kE4M3, DType::kE2M1);
  mixed.args.scale_a = nullptr;
  EXPECT_TRUE(CanImplement(mixed.args).ok());
  BlockProblem unscaled(DType::kE4M3, DType::kE4M3);
  unscaled.args.scale_a = unscaled.args.scale_b = nullptr;
  EXPECT_TRUE(CanImplement(unscaled.args).ok());
  const auto refused = [](DType a, DType b, const auto& change) {
    BlockProblem problem(a, b);
    change(problem.args);
    return CanImplement(problem.args).code() == absl::StatusCode::kInvalidArgument;
  };
  const auto nothing = [](GemmArgs&) {};
  EXPECT_TRUE(refused(DType::kE4M3, DType::kE2M1, [](GemmArgs& g) { g.scale_b = nullptr; }));
  EXPECT_TRUE(refused(DType::kE4M3, DType::kE4M3,
                      [](GemmArgs& g) { g.block_layout_a = BlockLayout::kNvfp4; }));
  EXPECT_TRUE(refused(DType::kE4M3, DType::kE4M3,
                      [](GemmArgs& g) { g.block_layout_b = BlockLayout::kNvfp4; }));
  EXPECT_TRUE(refused(DType::kE5M2, DType::kE5M2, nothing));
  EXPECT_TRUE(refused(DType::kE2M1, DType::kE2M1, [](GemmArgs& g) { g.scale_a = nullptr; }));
  EXPECT_TRUE(refused(DType::kE2M1, DType::kE2M1, [](GemmArgs& g) { g.block_scales_b = nullptr; }));
  EXPECT_TRUE(refused(DType::kE2M1, DType::kE2M1,
                      [](GemmArgs& g) { g.block_scales_a = g.block_scales_b = nullptr; }));
  EXPECT_TRUE(refused(DType::kE2M1, DType::kE2M1, [](GemmArgs& g) { g.transpose_b = false; }));
  EXPECT_TRUE(refused(DType::kE2M1, DType::kE2M1, [](GemmArgs& g) { g.ldb = 128; }));
}

TEST(GemmBlockScaled, PathOnTheCpu_IsEmulatedAndNamed) {
  const BlockProblem problem(DType::kE2M1, DType::kE2M1);
  EXPECT_EQ(GemmPathOf(Exec(), problem.args), GemmPath::kEmulated);
  EXPECT_STREQ(GemmPathName(GemmPath::kEmulated), "emulated");
  EXPECT_STREQ(GemmPathName(GemmPath::kNative), "native");
  const Problem plain(DType::kE4M3, DType::kE4M3);
  EXPECT_EQ(GemmPathOf(Exec(), plain.args), GemmPath::kPlain);
  // Both operands as bf16, and more than nothing.
  EXPECT_GE(cuda::EmulationBytes(problem.args), static_cast<size_t>((kM + kN) * 64 * 2 + 512));
  EXPECT_EQ(cuda::EmulationBytes(plain.args), 0U);
}

}  // namespace
}  // namespace hearth::kernels
