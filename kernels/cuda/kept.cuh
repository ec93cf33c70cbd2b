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

// `element`: a multiple of 8.
template <typename A>
__device__ __forceinline__ Raw8<A> LoadKept8(const KeptInput& kept, int64_t element) {
  const uint2 bytes = __ldcs(reinterpret_cast<const uint2*>(kept.values + element));
  const float scale = DecodeE8m0(__ldg(kept.scales + element / kKeptBlock));
  Raw8<A> raw;
#pragma unroll
  for (int k = 0; k < 8; k += 2) {
    const uint32_t pair = (k < 4 ? bytes.x : bytes.y) >> (k % 4 * 8) & 0xFFFF;
    const __half2_raw half =
        __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(pair), __NV_E4M3);
    const float2 v = __half22float2(__half2(half));
    // Exact: four bits and a power of two.
    SetPair(raw, k, v.x * scale, v.y * scale);
  }
  return raw;
}

__device__ __forceinline__ float LoadKept(const KeptInput& kept, int64_t element) {
  return DecodeE4m3(kept.values[element]) * DecodeE8m0(kept.scales[element / kKeptBlock]);
}

// All lanes of a block come here together, each with its eight from `element` on.
template <typename A>
__device__ __forceinline__ void StoreKept8(const KeptInput& keep,
                                           int64_t element,
                                           const Raw8<A>& raw) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const uint32_t block = ((1U << kKeptLanes) - 1) << (lane / kKeptLanes * kKeptLanes);
  // Only the lanes of one block exchange: others of the warp may not be here.
  uint32_t largest = MagnitudeOf<A>(RaiseMagnitude(0U, raw));
#pragma unroll
  for (int step = 1; step < kKeptLanes; step *= 2) {
    largest = max(largest, __shfl_xor_sync(block, largest, step));
  }
  const uint8_t scale = MxBlockScale(largest, MaxFiniteInverse(true));
  float v[8];
  Unpack(raw, v);
  const uint2 bytes =
      scale == kE8m0Nan ? make_uint2(0, 0) : QuantizePack<__NV_E4M3>(v, InverseE8m0(scale));
  *reinterpret_cast<uint2*>(keep.values + element) = bytes;
  if (lane % kKeptLanes == 0) {
    keep.scales[element / kKeptBlock] = scale;
  }
}

}  // namespace hearth::kernels::cuda
