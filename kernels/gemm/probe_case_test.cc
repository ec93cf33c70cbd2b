#include "kernels/gemm/probe_case.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "kernels/core/block_quant.h"
#include "kernels/gemm/native_error.h"
#include "kernels/quantize/quantize.h"

namespace hearth::kernels {
namespace {

struct alignas(64) CacheLine {
  unsigned char bytes[64];
};

// What the CPU makes of a product's operands, its output always fp32.
double ErrorOnCpu(const ProbeCase& which, const ProbeProduct& truth, const ProbeProduct& given) {
  std::vector<float> c = given.c;
  std::vector<CacheLine> scales(1);
  std::memcpy(scales.data(), ProbeScales(given).data(), 2 * kScaleInverseStride * sizeof(float));
  GemmArgs args = ProbeArgs(which, given, reinterpret_cast<const float*>(scales.data()));
  args.c = TensorView(c.data(), DType::kF32, {given.m, given.n});
  const size_t bytes = GemmWorkspaceBytes(Exec(), args);
  std::vector<CacheLine> memory(bytes / sizeof(CacheLine) + 1);
  Exec exec;
  exec.workspace = {memory.data(), bytes};
  const absl::Status done = Gemm(exec, args);
  EXPECT_TRUE(done.ok()) << which.name << ": " << done.message();
  return ProbeError(truth, std::vector<double>(c.begin(), c.end()));
}

TEST(ProbeCase, ReferencesAreTheProductsOfTheCpu) {
  int compared = 0;
  std::set<std::string> names;
  for (const ProbeCase& which : ProbeCases()) {
    SCOPED_TRACE(which.name);
    EXPECT_TRUE(names.insert(which.name).second);
    EXPECT_TRUE(!which.gradient || which.c == DType::kF32);
    if (which.a == DType::kBF16) {
      continue;  // the CPU has no such storage
    }
    const ProbeProduct product = MakeProbeProduct(which);
    EXPECT_LT(ErrorOnCpu(which, product, product), 1e-5);
    ++compared;
  }
  EXPECT_EQ(compared, 11);
}

TEST(ProbeCase, EachFormatIsTriedIntoBf16AndOntoFp32) {
  for (const formats::UnitProducts products :
       {formats::UnitProducts{&RowOf(BlockLayout::kNvfp4)},
        formats::UnitProducts{&RowOf(BlockLayout::kMxfp8)}, formats::UnitProducts{}}) {
    bool into_bf16 = false;
    bool onto_fp32 = false;
    for (const ProbeCase& which : ProbeCases()) {
      into_bf16 |= which.units == products && which.c == DType::kBF16 && !which.gradient;
      onto_fp32 |= which.units == products && which.c == DType::kF32 && which.gradient;
    }
    EXPECT_TRUE(into_bf16 && onto_fp32) << products.name();
  }
}

TEST(ProbeCase, WhatALibraryCouldForgetIsFound) {
  for (const ProbeCase& which : ProbeCases()) {
    if (!which.gradient) {
      continue;
    }
    SCOPED_TRACE(which.name);
    const ProbeProduct truth = MakeProbeProduct(which);
    ProbeProduct wrong = truth;
    wrong.beta = 0.0;
    EXPECT_GT(ErrorOnCpu(which, truth, wrong), which.bound) << "beta";
    wrong = truth;
    wrong.alpha = 1.0;
    EXPECT_GT(ErrorOnCpu(which, truth, wrong), which.bound) << "alpha";
    for (ProbeOperand ProbeProduct::*operand : {&ProbeProduct::a, &ProbeProduct::b}) {
      wrong = truth;
      (wrong.*operand).scale = 1.0F;
      EXPECT_GT(ErrorOnCpu(which, truth, wrong), which.bound) << "a tensor's scale";
    }
  }
}

// A GPU that reads one code of the scales as its neighbour.
TEST(ProbeCase, EachCodeOfTheBlockScalesCounts) {
  for (const ProbeCase& which : ProbeCases()) {
    if (!which.gradient || which.blocks == nullptr) {
      continue;
    }
    SCOPED_TRACE(which.name);
    const ProbeProduct truth = MakeProbeProduct(which);
    const std::set<uint8_t> codes(truth.a.scales.begin(), truth.a.scales.end());
    EXPECT_GT(codes.size(), which.blocks->scale_dtype == DType::kE4M3 ? 126U : 60U);
    for (const uint8_t code : codes) {
      if (code % 5 != 1 && code != 126) {
        continue;
      }
      ProbeProduct wrong = truth;
      for (uint8_t& scale : wrong.a.scales) {
        scale = static_cast<uint8_t>(scale == code ? code - 1 : scale);
      }
      EXPECT_GT(ErrorOnCpu(which, truth, wrong), which.bound) << int{code};
    }
  }
}

TEST(ProbeCase, NaNIsAnInfiniteError) {
  ProbeProduct product = MakeProbeProduct(ProbeCases()[0]);
  std::vector<double> got = product.want;
  EXPECT_EQ(ProbeError(product, got), 0.0);
  got[7] = std::numeric_limits<double>::quiet_NaN();
  got[8] += product.spread[8];
  EXPECT_EQ(ProbeError(product, got), std::numeric_limits<double>::infinity());
}

TEST(NativeGemmErrorTest, MarkStaysThroughAnnotation) {
  const absl::Status cause = absl::UnimplementedError("gemm m128: cuBLASLt has no algorithm");
  EXPECT_FALSE(IsNativeGemmError(cause));
  const absl::Status marked = NativeGemmError(cause);
  EXPECT_TRUE(IsNativeGemmError(marked));
  EXPECT_EQ(marked.code(), cause.code());
  EXPECT_TRUE(IsNativeGemmError(Annotate(marked, "precision.trial: nvfp4")));
  EXPECT_FALSE(IsNativeGemmError(absl::OkStatus()));
}

}  // namespace
}  // namespace hearth::kernels
