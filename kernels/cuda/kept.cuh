// Kept inputs (core/kept_input.h) on a GPU: eight elements a thread, a block of 32 to four
// neighbouring lanes.
#pragma once

#include <cuda_fp16.h>

#include "kernels/core/kept_input.h"
#include "kernels/cuda/quant_tile.cuh"
#include "kernels/cuda/util.cuh"
#include "kernels/formats/block_scale.h"

namespace hearth::kernels::cuda {

enum class KeptUse : uint8_t { kNone, kWrite, kRead };

inline constexpr int kKeptLanes = static_cast<int>(kKeptBlock) / 8;

// Eight kept values as they lie in memory: as few registers as possible wait for them.
struct KeptPack {
  uint2 bytes;
  uint32_t scale;  // E8M0
};
// At the addresses of the values, a multiple of 8, and of their block's scale.
__device__ __forceinline__ KeptPack LoadKeptPack(const uint8_t* values, const uint8_t* scale) {
  return {__ldcs(reinterpret_cast<const uint2*>(values)), __ldg(scale)};
}

// From this scale on, values times their scale are exact in bf16. Below it they are rounded to
// multiples of 2^-133, which are values of E4M3 under the same scale again.
inline constexpr uint32_t kKeptExactScale = 3;
__device__ __forceinline__ uint32_t RoundKeptToBf16(uint32_t bytes, uint8_t scale) {
  uint32_t rounded = 0;
#pragma unroll 1
  for (int shift = 0; shift < 32; shift += 8) {
    const __half_raw half =
        __nv_cvt_fp8_to_halfraw(static_cast<__nv_fp8_storage_t>(bytes >> shift & 0xFF), __NV_E4M3);
    const float v = __half2float(__half(half)) * DecodeE8m0(scale);
    rounded |= uint32_t{ToFp8<DType::kE4M3>(Rounded<Bf16>(v) * InverseE8m0(scale))} << shift;
  }
  return rounded;
}

// What the bytes are multiplied by, once for a pack: the products are exact in bf16 then.
__device__ __forceinline__ float UseKeptScale(KeptPack& pack) {
  if (pack.scale >= kKeptExactScale) {
    // For a block that is NaN, infinity: its bytes are zeros, so the products are NaN.
    return __uint_as_float(pack.scale << 23);
  }
  const uint8_t scale = static_cast<uint8_t>(pack.scale);
  pack.bytes.x = RoundKeptToBf16(pack.bytes.x, scale);
  pack.bytes.y = RoundKeptToBf16(pack.bytes.y, scale);
  return DecodeE8m0(scale);
}
// Values k and k + 1, k even and known when compiled.
__device__ __forceinline__ float2 KeptPairOf(const KeptPack& pack, int k, float scale) {
  const uint32_t pair = (k < 4 ? pack.bytes.x : pack.bytes.y) >> (k % 4 * 8) & 0xFFFF;
  const __half2_raw half =
      __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(pair), __NV_E4M3);
  const float2 v = __half22float2(__half2(half));
  return make_float2(v.x * scale, v.y * scale);
}

__device__ __forceinline__ float LoadKept(const KeptInput& kept, int64_t element) {
  return DecodeE4m3(kept.values[element]) * DecodeE8m0(kept.scales[element / kKeptBlock]);
}

// MxBlockScale of E4M3 by selections in place of branches.
__device__ __forceinline__ uint32_t KeptScaleOf(uint32_t largest) {
  const uint32_t bits = __float_as_uint(MulRn(__uint_as_float(largest), MaxFiniteInverse(true)));
  // Up to 2^-127 the code is 0; from there on the exponent, rounded up.
  const uint32_t code = bits <= 0x00400000U ? 0U : (bits + 0x007FFFFFU) >> 23;
  return FiniteMagnitude(largest) ? code : kE8m0Nan;
}

// At the addresses of the values and of their block's scale. All lanes of a block come here
// together, each with its eight; with kWholeWarp, all lanes of the warp.
template <typename A, bool kWholeWarp>
__device__ __forceinline__ void StoreKept8(uint8_t* values, uint8_t* block, const Raw8<A>& raw) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  // Only the lanes of one block exchange: others of the warp may not be here.
  const uint32_t together =
      kWholeWarp ? 0xFFFFFFFFU : ((1U << kKeptLanes) - 1) << (lane / kKeptLanes * kKeptLanes);
  uint32_t largest = MagnitudeOf<A>(RaiseMagnitude(0U, raw));
#pragma unroll
  for (int step = 1; step < kKeptLanes; step *= 2) {
    largest = max(largest, __shfl_xor_sync(together, largest, step));
  }
  const uint32_t scale = KeptScaleOf(largest);
  float v[8];
  Unpack(raw, v);
  // The inverse: a finite block's scale is at most 2^120.
  uint2 bytes = QuantizePack<__NV_E4M3>(v, __uint_as_float((254U - scale) << 23));
  if (scale == kE8m0Nan) {
    bytes = make_uint2(0, 0);
  }
  *reinterpret_cast<uint2*>(values) = bytes;
  if (lane % kKeptLanes == 0) {
    *block = static_cast<uint8_t>(scale);
  }
}

}  // namespace hearth::kernels::cuda
