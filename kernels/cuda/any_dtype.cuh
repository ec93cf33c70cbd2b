// Eight consecutive elements of any floating format as floats, by a switch that is the same for all
// threads: for copies and conversions, where one kernel serves every pair of formats.
#pragma once

#include <cuda_fp16.h>

#include "kernels/cuda/util.cuh"

namespace hearth::kernels::cuda {

inline bool IsAnyDType(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16 ||
         dtype == DType::kE4M3 || dtype == DType::kE5M2;
}

__device__ __forceinline__ float FromFp8(uint8_t code, bool e4m3) {
  return __half2float(__nv_cvt_fp8_to_halfraw(code, e4m3 ? __NV_E4M3 : __NV_E5M2));
}

// Element i of an array of `dtype`, one of IsAnyDType's.
__device__ __forceinline__ float LoadAny(const void* from, DType dtype, int64_t i) {
  switch (dtype) {
    case DType::kF32:
      return static_cast<const float*>(from)[i];
    case DType::kBF16:
      return ToFloat(static_cast<const Bf16*>(from)[i]);
    case DType::kF16:
      return __half2float(static_cast<const __half*>(from)[i]);
    default:
      return FromFp8(static_cast<const uint8_t*>(from)[i], dtype == DType::kE4M3);
  }
}

// Rounds to nearest even; FP8 saturates.
__device__ __forceinline__ void StoreAny(void* to, DType dtype, int64_t i, float x) {
  switch (dtype) {
    case DType::kF32:
      static_cast<float*>(to)[i] = x;
      return;
    case DType::kBF16:
      static_cast<Bf16*>(to)[i] = FromFloat<Bf16>(x);
      return;
    case DType::kF16:
      static_cast<__half*>(to)[i] = __float2half_rn(x);
      return;
    default:
      static_cast<uint8_t*>(to)[i] = ToFp8(x, dtype == DType::kE4M3);
  }
}

__device__ __forceinline__ float RoundAny(float x, DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return Rounded<Bf16>(x);
    case DType::kF16:
      return __half2float(__float2half_rn(x));
    case DType::kE4M3:
    case DType::kE5M2:
      return FromFp8(ToFp8(x, dtype == DType::kE4M3), dtype == DType::kE4M3);
    default:
      return x;
  }
}

// The same for elements i .. i + 7, i a multiple of 8, of an array aligned to 16 bytes.
__device__ __forceinline__ void LoadAny8(const void* from, DType dtype, int64_t i, float (&x)[8]) {
  switch (dtype) {
    case DType::kF32:
      Unpack(LoadRaw8(static_cast<const float*>(from) + i), x);
      return;
    case DType::kBF16:
      Unpack(LoadRaw8(static_cast<const Bf16*>(from) + i), x);
      return;
    case DType::kF16: {
      const Pack<__half, 8> pack = LoadPack<8>(static_cast<const __half*>(from) + i);
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        x[k] = __half2float(pack.at[k]);
      }
      return;
    }
    default: {
      const Pack<uint8_t, 8> pack = LoadPack<8>(static_cast<const uint8_t*>(from) + i);
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        x[k] = FromFp8(pack.at[k], dtype == DType::kE4M3);
      }
    }
  }
}
__device__ __forceinline__ void StoreAny8(void* to, DType dtype, int64_t i, const float (&x)[8]) {
  switch (dtype) {
    case DType::kF32:
      StoreRaw8(static_cast<float*>(to) + i, PackRaw8<float>(x));
      return;
    case DType::kBF16:
      StoreRaw8(static_cast<Bf16*>(to) + i, PackRaw8<Bf16>(x));
      return;
    case DType::kF16: {
      Pack<__half, 8> pack;
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        pack.at[k] = __float2half_rn(x[k]);
      }
      StorePack(static_cast<__half*>(to) + i, pack);
      return;
    }
    default: {
      Pack<uint8_t, 8> pack;
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        pack.at[k] = ToFp8(x[k], dtype == DType::kE4M3);
      }
      StorePack(static_cast<uint8_t*>(to) + i, pack);
    }
  }
}

}  // namespace hearth::kernels::cuda
