#include "kernels/gemm/probe_case.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "common/base/table_rows.h"
#include "kernels/core/block_quant.h"
#include "kernels/core/formats.h"
#include "kernels/core/rng.h"
#include "kernels/formats/span.h"
#include "kernels/quantize/quantize.h"

namespace hearth::kernels {
namespace {

using enum ProbeFallback;
using formats::UnitProducts;

constexpr const BlockLayoutRow* kMxfp8 = &RowOf(BlockLayout::kMxfp8);
constexpr const BlockLayoutRow* kNvfp4 = &RowOf(BlockLayout::kNvfp4);

constexpr DType kF32 = DType::kF32;
constexpr DType kBF16 = DType::kBF16;
constexpr DType kE4M3 = DType::kE4M3;
constexpr DType kE5M2 = DType::kE5M2;
constexpr DType kE2M1 = DType::kE2M1;

// The bounds leave room for the rounding of c (bf16: 2^-9 of each element) and, for FP8 on Hopper,
// for its accumulator of 13 fraction bits.
constexpr ProbeCase kCases[] = {
    {"bf16", kNone, {}, 0x1p-7, nullptr, kBF16, kBF16, kBF16, false},
    {"f32", kNone, {}, 1e-5, nullptr, kF32, kF32, kF32, false},
    {"fp8 e4m3 x e4m3", kStop, {}, 0x1p-7, nullptr, kE4M3, kE4M3, kBF16, false, true},
    {"fp8 e5m2 x e4m3", kStop, {}, 0x1p-7, nullptr, kE5M2, kE4M3, kBF16, false},
    {"fp8 gradient", kStop, {}, 0x1p-8, nullptr, kE5M2, kE4M3, kF32, true},
    {"mxfp8", kEmulated, UnitProducts{kMxfp8}, 0x1p-7, kMxfp8, kE4M3, kE4M3, kBF16, false},
    {"mxfp8 gradient", kEmulated, UnitProducts{kMxfp8}, 0x1p-8, kMxfp8, kE4M3, kE4M3, kF32, true},
    {"nvfp4", kEmulated, UnitProducts{kNvfp4}, 0x1p-7, kNvfp4, kE2M1, kE2M1, kBF16, false},
    {"nvfp4 gradient", kEmulated, UnitProducts{kNvfp4}, 0x1p-8, kNvfp4, kE2M1, kE2M1, kF32, true},
    {"fp8 unit scales", kPlainFp8, UnitProducts{}, 0x1p-7, nullptr, kE4M3, kE4M3, kBF16, false},
    {"fp8 unit scales e5m2", kPlainFp8, UnitProducts{}, 0x1p-7, nullptr, kE5M2, kE4M3, kBF16,
     false},
    {"fp8 unit scales gradient", kPlainFp8, UnitProducts{}, 0x1p-8, nullptr, kE5M2, kE4M3, kF32,
     true},
};

RngKey Key(uint32_t tensor, uint32_t what) {
  return {7, RngPurpose::kTest, 0, what, tensor};
}

void FillValues(const RngKey& key,
                DType dtype,
                int64_t count,
                std::vector<uint8_t>& bytes,
                std::vector<double>& values) {
  values.resize(static_cast<size_t>(count));
  bytes.resize(DTypeBytes(dtype, count));
  if (dtype == DType::kE2M1) {
    for (int64_t i = 0; i < count; ++i) {
      const uint8_t code = RngWord(key, static_cast<uint64_t>(i)) & 15;
      values[static_cast<size_t>(i)] = double{DecodeE2m1(code)};
      uint8_t& byte = bytes[static_cast<size_t>(i / 2)];
      byte = static_cast<uint8_t>(i % 2 == 0 ? code : byte | code << 4);
    }
    return;
  }
  std::vector<float> normal(static_cast<size_t>(count));
  FillNormal(key, 0, 0.0, 1.0, normal.data(), count);
  EncodeSpan(normal.data(), count, dtype, bytes.data());
  DecodeSpan(bytes.data(), count, dtype, values.data());
}

// A few powers of two, or all that occur: each row has a range of its own, which together are all
// finite codes of E4M3, or 2^-33 to 2^32. E4M3's 0 is that of a block of zeros.
uint8_t ScaleCode(const ProbeCase& which, int64_t row, uint32_t word) {
  const bool e4m3 = which.blocks->scale_dtype == DType::kE4M3;
  if (!which.gradient) {
    const int power = static_cast<int>(word % 4) - 2;
    return e4m3 ? EncodeE4m3(std::ldexp(1.0F, power)) : static_cast<uint8_t>(127 + power);
  }
  if (!e4m3) {
    return static_cast<uint8_t>(94 + row * 37 % 61 + word % 6);
  }
  return word % 29 == 0 ? uint8_t{0} : static_cast<uint8_t>(1 + row * 37 % 103 + word / 29 % 24);
}

// Also the values, block scales included.
std::vector<double> FillOperand(const ProbeCase& which,
                                uint32_t tensor,
                                DType dtype,
                                int64_t rows,
                                int64_t k,
                                ProbeOperand& out) {
  std::vector<double> values;
  FillValues(Key(tensor, 0), dtype, rows * k, out.bytes, values);
  if (which.blocks == nullptr) {
    return values;
  }
  const BlockLayoutRow& layout = *which.blocks;
  const int64_t blocks = BlocksOf(layout, k);
  out.scales.resize(BlockScaleBytes(layout.layout, rows, k));
  for (int64_t at = 0; at < rows * blocks; ++at) {
    const int64_t row = at / blocks;
    const uint8_t code = ScaleCode(which, row, RngWord(Key(tensor, 1), static_cast<uint64_t>(at)));
    out.scales[static_cast<size_t>(BlockScaleOffset(layout.layout, row, at % blocks, rows, k))] =
        code;
    const double scale =
        double{layout.scale_dtype == DType::kE4M3 ? DecodeE4m3(code) : DecodeE8m0(code)};
    for (int64_t i = at * layout.length; i < (at + 1) * layout.length; ++i) {
      values[static_cast<size_t>(i)] *= scale;
    }
  }
  return values;
}

// Extents, factors and operands; the operands' values too.
struct MadeOperands {
  ProbeProduct product;
  std::vector<double> a;
  std::vector<double> b;
};

MadeOperands MakeOperands(const ProbeCase& which) {
  MadeOperands made;
  ProbeProduct& p = made.product;
  p.m = which.gradient ? 192 : 128;
  p.n = which.gradient ? 320 : 256;
  p.k = which.gradient ? 576 : 512;
  if (which.gradient) {
    p.alpha = 0.75;
    p.beta = 1.0;
    p.a.scale = 0.037F;
    p.b.scale = 1.9F;
  }
  made.a = FillOperand(which, 1, which.a, p.m, p.k, p.a);
  made.b = FillOperand(which, 2, which.b, p.n, p.k, p.b);
  return made;
}

// Adds to p.want and p.spread as if c were zero.
void FillReference(const std::vector<double>& a, const std::vector<double>& b, ProbeProduct& p) {
  const double factor = p.alpha * double{p.a.scale} * double{p.b.scale};
  for (int64_t m = 0; m < p.m; ++m) {
    for (int64_t n = 0; n < p.n; ++n) {
      double sum = 0.0;
      double squares = 0.0;
      for (int64_t k = 0; k < p.k; ++k) {
        const double term =
            a[static_cast<size_t>(m * p.k + k)] * b[static_cast<size_t>(n * p.k + k)];
        sum += term;
        squares += term * term;
      }
      p.want.push_back(factor * sum);
      p.spread.push_back(4.0 * factor * std::sqrt(squares));
    }
  }
}

}  // namespace

absl::Span<const ProbeCase> ProbeCases() {
  return kCases;
}

const ProbeCase* FindProbeCase(std::string_view name) {
  return FindRow(kCases, &ProbeCase::name, name);
}

ProbeProduct MakeProbeOperands(const ProbeCase& which) {
  return MakeOperands(which).product;
}

ProbeProduct MakeProbeProduct(const ProbeCase& which) {
  MadeOperands made = MakeOperands(which);
  ProbeProduct& p = made.product;
  FillReference(made.a, made.b, p);
  p.c.resize(p.want.size());
  if (p.beta == 0.0) {
    return std::move(p);
  }
  // As large as the product, element for element, so that neither hides the other.
  for (size_t i = 0; i < p.c.size(); ++i) {
    p.c[i] = static_cast<float>(RngNormal(Key(3, 0), i) * p.spread[i] / 4.0);
    const double added = p.beta * double{p.c[i]};
    p.want[i] += added;
    p.spread[i] = std::hypot(p.spread[i], 4.0 * added);
  }
  return std::move(p);
}

double ProbeError(const ProbeProduct& product, const std::vector<double>& got) {
  double error = 0.0;
  for (size_t i = 0; i < product.want.size(); ++i) {
    const double off = std::fabs(got[i] - product.want[i]) / product.spread[i];
    error = std::isnan(off) ? std::numeric_limits<double>::infinity() : std::max(error, off);
  }
  return error;
}

std::vector<float> ProbeScales(const ProbeProduct& product) {
  static_assert(kScaleInverseStride * sizeof(float) % kScaleBoundary == 0);
  std::vector<float> scales(2 * kScaleInverseStride, 1.0F);
  scales[0] = product.a.scale;
  scales[kScaleInverseStride] = product.b.scale;
  return scales;
}

GemmArgs ProbeArgs(const ProbeCase& which, const ProbeProduct& product, const float* scales) {
  const auto view = [&](const ProbeOperand& operand, DType dtype, int64_t rows) {
    return TensorView(const_cast<uint8_t*>(operand.bytes.data()), dtype, {rows, product.k});
  };
  GemmArgs args;
  args.a = view(product.a, which.a, product.m);
  args.b = view(product.b, which.b, product.n);
  args.transpose_b = true;
  args.alpha = product.alpha;
  args.beta = product.beta;
  args.fast_accumulation = which.fast;
  if (DTypeBits(which.a) <= 8) {
    args.scale_a = scales;
    args.scale_b = scales + kScaleInverseStride;
  }
  if (which.blocks != nullptr) {
    args.block_layout_a = args.block_layout_b = which.blocks->layout;
    args.block_scales_a = product.a.scales.data();
    args.block_scales_b = product.b.scales.data();
  }
  return args;
}

}  // namespace hearth::kernels
