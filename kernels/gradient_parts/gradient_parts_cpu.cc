#include <algorithm>

#include "common/formats/reduce_formats.h"
#include "kernels/core/cpu.h"
#include "kernels/formats/block_scale.h"
#include "kernels/formats/span.h"
#include "kernels/gradient_parts/gradient_parts.h"

namespace hearth::kernels {
namespace {

using formats::kReduceBlock;
using Scale = BlockScale<DType::kE8M0>;

constexpr int64_t kBlocksAtOnce = 64;

bool IsFinite(float value) {
  return FiniteMagnitude(FloatBits(value) & 0x7FFFFFFFU);
}

template <typename T>
void EncodeBlock(const T* x, uint8_t* codes, uint8_t* scale) {
  float values[kReduceBlock];
  uint32_t largest = 0;
  for (int i = 0; i < kReduceBlock; ++i) {
    values[i] = static_cast<float>(x[i]);
    const uint32_t magnitude = FloatBits(values[i]) & 0x7FFFFFFFU;
    largest = FiniteMagnitude(magnitude) ? std::max(largest, magnitude) : largest;
  }
  *scale = Scale::Make(largest, MaxFiniteInverse(true));
  const float factor = Scale::Inverse(*scale);
  for (int i = 0; i < kReduceBlock; ++i) {
    codes[i] = IsFinite(values[i]) ? EncodeE4m3(values[i] * factor) : kE4m3Nan;
  }
}

template <typename T>
void SumBlock(const SumPartsArgs& args, int64_t block, T* y) {
  const int64_t length = args.y.numel();
  const int64_t parts = args.codes.numel() / length;
  float sum[kReduceBlock] = {};
  float values[kReduceBlock];
  for (int64_t part = 0; part < parts; ++part) {
    const int64_t at = part * length + block * kReduceBlock;
    DecodeSpan(args.codes.as<uint8_t>() + at, kReduceBlock, DType::kE4M3, values);
    const float scale = Scale::Decode(args.scales.as<uint8_t>()[at / kReduceBlock]);
    for (int i = 0; i < kReduceBlock; ++i) {
      sum[i] = part == 0 ? values[i] * scale : sum[i] + values[i] * scale;
    }
  }
  for (int i = 0; i < kReduceBlock; ++i) {
    y[i] = static_cast<T>(RoundBf16(sum[i]));
  }
}

}  // namespace

namespace cpu {

absl::Status EncodeParts(const Exec& exec, const EncodePartsArgs& args) {
  return DispatchFloating(args.x.dtype, [&]<typename T>() {
    const int64_t filled = args.x.numel() / kReduceBlock;
    const auto encode = [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        uint8_t* const codes = args.codes.as<uint8_t>() + block * kReduceBlock;
        uint8_t* const scale = args.scales.as<uint8_t>() + block;
        if (block < filled) {
          EncodeBlock(args.x.as<T>() + block * kReduceBlock, codes, scale);
        } else {
          std::fill_n(codes, kReduceBlock, uint8_t{0});
          *scale = Scale::Make(0, MaxFiniteInverse(true));
        }
      }
    };
    ParallelFor(exec, args.codes.numel() / kReduceBlock, kBlocksAtOnce, encode);
    return absl::OkStatus();
  });
}

absl::Status SumParts(const Exec& exec, const SumPartsArgs& args) {
  return DispatchFloating(args.y.dtype, [&]<typename T>() {
    const auto sum = [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        SumBlock(args, block, args.y.as<T>() + block * kReduceBlock);
      }
    };
    ParallelFor(exec, args.y.numel() / kReduceBlock, kBlocksAtOnce, sum);
    return absl::OkStatus();
  });
}

}  // namespace cpu

}  // namespace hearth::kernels
