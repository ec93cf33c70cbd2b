#include "common/formats/reduce_formats.h"
#include "kernels/cuda/util.cuh"
#include "kernels/formats/block_scale.h"
#include "kernels/gradient_parts/gradient_parts.h"

namespace hearth::kernels::cuda {
namespace {

using formats::kReduceBlock;
using Scale = BlockScale<DType::kE8M0>;

constexpr int kThreads = 256;
constexpr int kWarp = 32;
constexpr int kPerLane = kReduceBlock / kWarp;  // elements of a block that a lane codes
constexpr int kPerThread = 8;                   // elements of a sum

__device__ __forceinline__ uint32_t Magnitude(float x) {
  return __float_as_uint(x) & 0x7FFFFFFFU;
}

// A warp codes a block.
template <typename A>
__global__ void __launch_bounds__(kThreads) EncodePartsKernel(const A* __restrict__ x,
                                                              int64_t filled,
                                                              int64_t blocks,
                                                              uint8_t* __restrict__ codes,
                                                              uint8_t* __restrict__ scales) {
  const int64_t block = static_cast<int64_t>(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp;
  if (block >= blocks) {
    return;
  }
  const int lane = threadIdx.x % kWarp;
  const int64_t at = block * kReduceBlock + lane * kPerLane;
  float v[kPerLane] = {};
  if (block < filled) {
    LoadFloats(x + at, v);
  }
  uint32_t largest = 0;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    largest = FiniteMagnitude(Magnitude(v[i])) ? max(largest, Magnitude(v[i])) : largest;
  }
  largest = __reduce_max_sync(0xFFFFFFFFU, largest);
  const uint8_t scale = Scale::Make(largest, MaxFiniteInverse(true));
  const float factor = Scale::Inverse(scale);
  Pack<uint8_t, kPerLane> out;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    out.at[i] =
        FiniteMagnitude(Magnitude(v[i])) ? ToFp8<DType::kE4M3>(MulRn(v[i], factor)) : kE4m3Nan;
  }
  StorePack<kPerLane>(codes + at, out);
  if (lane == 0) {
    scales[block] = scale;
  }
}

template <typename A>
__global__ void __launch_bounds__(kThreads) SumPartsKernel(const uint8_t* __restrict__ codes,
                                                           const uint8_t* __restrict__ scales,
                                                           int64_t parts,
                                                           int64_t length,
                                                           A* __restrict__ y) {
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kPerThread;
  if (i >= length) {
    return;
  }
  float sum[kPerThread] = {};
  for (int64_t part = 0; part < parts; ++part) {
    const int64_t at = part * length + i;
    const uint2 words = *reinterpret_cast<const uint2*>(codes + at);
    const float scale = Scale::Decode(scales[at / kReduceBlock]);
#pragma unroll
    for (int k = 0; k < kPerThread; k += 2) {
      const uint32_t word = k < 4 ? words.x : words.y;
      const __half2_raw pair = __nv_cvt_fp8x2_to_halfraw2(
          static_cast<__nv_fp8x2_storage_t>(word >> (k % 4 * 8)), __NV_E4M3);
      const float2 values = __half22float2(__half2(pair));
      // The products are exact. No fused sum, as on the CPU.
      sum[k] = part == 0 ? MulRn(values.x, scale) : AddRn(sum[k], MulRn(values.x, scale));
      sum[k + 1] = part == 0 ? MulRn(values.y, scale) : AddRn(sum[k + 1], MulRn(values.y, scale));
    }
  }
#pragma unroll
  for (int k = 0; k < kPerThread; ++k) {
    sum[k] = Rounded<Bf16>(sum[k]);
  }
  StoreFloats(y + i, sum);
}

template <typename A>
absl::Status LaunchEncode(const Exec& exec, const EncodePartsArgs& args) {
  const int64_t blocks = args.codes.numel() / kReduceBlock;
  if (blocks == 0) {
    return absl::OkStatus();
  }
  const auto grid = static_cast<unsigned>(CeilDiv(blocks, int64_t{kThreads} / kWarp));
  EncodePartsKernel<A>
      <<<grid, kThreads, 0, StreamOf(exec)>>>(args.x.as<A>(), args.x.numel() / kReduceBlock, blocks,
                                              args.codes.as<uint8_t>(), args.scales.as<uint8_t>());
  return HEARTH_CUDA_LAUNCHED("encode_parts");
}

template <typename A>
absl::Status LaunchSum(const Exec& exec, const SumPartsArgs& args) {
  const int64_t length = args.y.numel();
  if (length == 0) {
    return absl::OkStatus();
  }
  const auto grid = static_cast<unsigned>(CeilDiv(length, int64_t{kThreads} * kPerThread));
  SumPartsKernel<A>
      <<<grid, kThreads, 0, StreamOf(exec)>>>(args.codes.as<uint8_t>(), args.scales.as<uint8_t>(),
                                              args.codes.numel() / length, length, args.y.as<A>());
  return HEARTH_CUDA_LAUNCHED("sum_parts");
}

}  // namespace

absl::Status EncodeParts(const Exec& exec, const EncodePartsArgs& args) {
  return args.x.dtype == DType::kBF16 ? LaunchEncode<Bf16>(exec, args)
                                      : LaunchEncode<float>(exec, args);
}

absl::Status SumParts(const Exec& exec, const SumPartsArgs& args) {
  return args.y.dtype == DType::kBF16 ? LaunchSum<Bf16>(exec, args) : LaunchSum<float>(exec, args);
}

}  // namespace hearth::kernels::cuda
