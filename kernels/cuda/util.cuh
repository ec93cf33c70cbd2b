// What the CUDA kernels share: 16-byte access, reductions in a fixed order, narrow formats.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/core/exec.h"
#include "kernels/cuda/cuda_status.h"

namespace hearth::kernels {

template <>
constexpr bool IsStoredAs<__nv_bfloat16>(DType dtype) {
  return dtype == DType::kBF16;
}

}  // namespace hearth::kernels

namespace hearth::kernels::cuda {

inline cudaStream_t StreamOf(const Exec& exec) {
  return static_cast<cudaStream_t>(exec.stream);
}

constexpr int64_t CeilDiv(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}
constexpr size_t AlignUp(size_t bytes, size_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

// Whether 16-byte access may start at `p`; true for null.
inline bool Aligned16(const void* p) {
  return reinterpret_cast<uintptr_t>(p) % 16 == 0;
}

using Bf16 = __nv_bfloat16;

__device__ __forceinline__ float ToFloat(float x) {
  return x;
}
__device__ __forceinline__ float ToFloat(Bf16 x) {
  return __bfloat162float(x);
}
template <typename T>
__device__ __forceinline__ T FromFloat(float x);
template <>
__device__ __forceinline__ float FromFloat<float>(float x) {
  return x;
}
template <>
__device__ __forceinline__ Bf16 FromFloat<Bf16>(float x) {
  return __float2bfloat16_rn(x);
}
// x rounded to T and widened again.
template <typename T>
__device__ __forceinline__ float Rounded(float x) {
  return ToFloat(FromFloat<T>(x));
}

// `N` consecutive elements in registers. N * sizeof(T) is 4, 8 or a multiple of 16; addresses are
// aligned to min(N * sizeof(T), 16).
template <typename T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack {
  T at[N];
};
template <typename T>
constexpr int kPackWidth = 16 / sizeof(T);

template <int N, typename T>
__device__ __forceinline__ Pack<T, N> LoadPack(const T* from) {
  return *reinterpret_cast<const Pack<T, N>*>(from);
}
template <int N, typename T>
__device__ __forceinline__ void StorePack(T* to, const Pack<T, N>& pack) {
  *reinterpret_cast<Pack<T, N>*>(to) = pack;
}
// N elements as floats.
template <int N, typename T>
__device__ __forceinline__ void LoadFloats(const T* from, float (&out)[N]) {
  const Pack<T, N> pack = LoadPack<N>(from);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    out[i] = ToFloat(pack.at[i]);
  }
}
template <int N, typename T>
__device__ __forceinline__ void StoreFloats(T* to, const float (&in)[N]) {
  Pack<T, N> pack;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    pack.at[i] = FromFloat<T>(in[i]);
  }
  StorePack<N>(to, pack);
}

// Eight values as they lie in memory, for those that stay in registers for a while or are loaded
// under a condition: the compiler gives each bf16 of a Pack a register of its own then.
template <typename T>
struct alignas(16) Raw8 {
  uint32_t words[sizeof(T) * 2];
};
template <typename T>
__device__ __forceinline__ Raw8<T> LoadRaw8(const T* from) {
  return *reinterpret_cast<const Raw8<T>*>(from);
}
template <typename T>
__device__ __forceinline__ void StoreRaw8(T* to, const Raw8<T>& raw) {
  *reinterpret_cast<Raw8<T>*>(to) = raw;
}
template <typename T>
__device__ __forceinline__ void Unpack(const Raw8<T>& raw, float (&out)[8]) {
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    if constexpr (sizeof(T) == 2) {
      const uint32_t word = raw.words[k / 2];
      out[k] = __uint_as_float(k % 2 == 0 ? word << 16 : word & 0xFFFF0000);
    } else {
      out[k] = __uint_as_float(raw.words[k]);
    }
  }
}
// With `load`, a function from const uint4* to uint4: which caches the values go through.
template <typename T, typename Load>
__device__ __forceinline__ Raw8<T> LoadRaw8With(const T* from, Load load) {
  Raw8<T> raw;
#pragma unroll
  for (int n = 0; n < static_cast<int>(sizeof(T)) / 2; ++n) {
    const uint4 part = load(reinterpret_cast<const uint4*>(from) + n);
    raw.words[n * 4] = part.x;
    raw.words[n * 4 + 1] = part.y;
    raw.words[n * 4 + 2] = part.z;
    raw.words[n * 4 + 3] = part.w;
  }
  return raw;
}
// Values that nobody reads again soon: they leave the caches first.
template <typename T>
__device__ __forceinline__ Raw8<T> LoadRaw8Once(const T* from) {
  return LoadRaw8With(from, [](const uint4* at) { return __ldcs(at); });
}
// Value k, known when compiled.
template <typename T>
__device__ __forceinline__ float ValueOf(const Raw8<T>& raw, int k) {
  if constexpr (sizeof(T) == 2) {
    const uint32_t word = raw.words[k / 2];
    return __uint_as_float(k % 2 == 0 ? word << 16 : word & 0xFFFF0000);
  } else {
    return __uint_as_float(raw.words[k]);
  }
}
// Values k and k + 1, k even, rounded to T.
template <typename T>
__device__ __forceinline__ void SetPair(Raw8<T>& raw, int k, float a, float b) {
  if constexpr (sizeof(T) == 2) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(a, b);
    raw.words[k / 2] = *reinterpret_cast<const uint32_t*>(&pair);
  } else {
    raw.words[k] = __float_as_uint(a);
    raw.words[k + 1] = __float_as_uint(b);
  }
}
// `in` rounded to T.
template <typename T>
__device__ __forceinline__ Raw8<T> PackRaw8(const float (&in)[8]) {
  Raw8<T> raw;
#pragma unroll
  for (int k = 0; k < static_cast<int>(sizeof(T)) * 2; ++k) {
    if constexpr (sizeof(T) == 2) {
      const __nv_bfloat162 pair = __floats2bfloat162_rn(in[2 * k], in[2 * k + 1]);
      raw.words[k] = *reinterpret_cast<const uint32_t*>(&pair);
    } else {
      raw.words[k] = __float_as_uint(in[k]);
    }
  }
  return raw;
}

// All lanes get the result; butterfly, so the order of the sum is fixed.
__device__ __forceinline__ float WarpSum(float x) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    x += __shfl_xor_sync(0xFFFFFFFF, x, offset);
  }
  return x;
}
__device__ __forceinline__ double WarpSum(double x) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    x += __shfl_xor_sync(0xFFFFFFFF, x, offset);
  }
  return x;
}
// Larger of two, NaN if either is: one instruction, which C++ has no name for.
__device__ __forceinline__ float MaxNan(float a, float b) {
  float larger;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
  return larger;
}
__device__ __forceinline__ float WarpMax(float x) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    x = MaxNan(x, __shfl_xor_sync(0xFFFFFFFF, x, offset));
  }
  return x;
}
// As WarpMax, of magnitudes: their bits, those of NaN too, order as unsigned integers do.
__device__ __forceinline__ float WarpMaxMagnitude(float x) {
  return __uint_as_float(__reduce_max_sync(0xFFFFFFFF, __float_as_uint(x)));
}
// Over a block of at most 1024 threads, a multiple of 32; every thread gets the result. `in_warp`
// reduces over a warp, and `none` changes nothing in it. `scratch` is shared memory of 32 elements;
// the call synchronises before it and after it, so that it can be used again at once.
template <typename T, typename InWarp>
__device__ __forceinline__ T BlockReduce(T x, T* scratch, T none, InWarp in_warp) {
  x = in_warp(x);
  const int warp = threadIdx.x / 32;
  __syncthreads();
  if (threadIdx.x % 32 == 0) {
    scratch[warp] = x;
  }
  __syncthreads();
  const int warps = blockDim.x / 32;
  return in_warp(threadIdx.x % 32 < warps ? scratch[threadIdx.x % 32] : none);
}
template <typename T>
__device__ __forceinline__ T BlockSum(T x, T* scratch) {
  return BlockReduce(x, scratch, T{0}, [](T value) { return WarpSum(value); });
}
__device__ __forceinline__ float BlockMax(float x, float* scratch) {
  return BlockReduce(x, scratch, -INFINITY, [](float value) { return WarpMax(value); });
}
// Which of a table's first `count` entries block blockIdx.x works on; `first_block` grows from
// entry to entry, from 0.
template <typename Entry>
__device__ __forceinline__ const Entry& EntryOfBlock(const Entry* entries, int count) {
  int low = 0;
  for (int high = count; high - low > 1;) {
    const int middle = (low + high) / 2;
    (entries[middle].first_block <= blockIdx.x ? low : high) = middle;
  }
  return entries[low];
}

// *amax = max(*amax, value) for value >= 0 or NaN: their bits order as unsigned integers do, so the
// result does not depend on the order of calls.
__device__ __forceinline__ void RaiseAmax(float* amax, float value) {
  const unsigned int bits = __float_as_uint(value) & 0x7FFFFFFF;
  // Most blocks have nothing to add.
  if (bits > *reinterpret_cast<volatile unsigned int*>(amax)) {
    atomicMax(reinterpret_cast<unsigned int*>(amax), bits);
  }
}

// FP8 by cvt.rn.satfinite: nearest even, saturating, NaN stays NaN. DT is kE4M3 or kE5M2.
template <DType DT>
__device__ __forceinline__ uint8_t ToFp8(float x) {
  return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, DT == DType::kE4M3 ? __NV_E4M3 : __NV_E5M2);
}
__device__ __forceinline__ uint8_t ToFp8(float x, bool e4m3) {
  return e4m3 ? ToFp8<DType::kE4M3>(x) : ToFp8<DType::kE5M2>(x);
}

}  // namespace hearth::kernels::cuda
