// The rotation of a token's queries and key inside the kernels of cached attention. Bits are those
// of QkNormRopeForward: the same angles, products and rounding (qk_norm_rope/rotation.cuh).
#pragma once

#include "kernels/cuda/util.cuh"
#include "kernels/qk_norm_rope/rotation.cuh"

namespace hearth::kernels::cuda::cached {

// Heads of one token as they are after the rotation, or as they lie in memory without one.
class TokenHeads {
 public:
  // `angles`: shared memory, a cosine and a sine for each pair of a head; used with a rotation.
  __device__ __forceinline__ TokenHeads(const Rotation& rotation, int head_dim, float2* angles)
      : rotation_(rotation), half_(head_dim / 2), angles_(angles) {}

  // Before the others; every thread of the block calls it. It reads nothing of the row.
  template <typename A>
  __device__ __forceinline__ void Prepare(int position) const {
    if (!rotation_.enabled) {
      return;
    }
    for (int i = threadIdx.x; i < half_; i += static_cast<int>(blockDim.x)) {
      CosSin<A>(rotation_.turns[i], position, angles_[i].x, angles_[i].y);
    }
    __syncthreads();
  }

  // Element d of the head at `head`.
  template <typename A>
  __device__ __forceinline__ float Value(const A* head, int d) const {
    if (!rotation_.enabled) {
      return ToFloat(head[d]);
    }
    const int i = d < half_ ? d : d - half_;
    float a = ToFloat(head[i]);
    float b = ToFloat(head[i + half_]);
    RotatePair(angles_[i].x, angles_[i].y, a, b);
    return Rounded<A>(d < half_ ? a : b);
  }
  // Elements d and d + 1, d even, of a head whose size is a multiple of four, aligned to 4 bytes.
  __device__ __forceinline__ uint32_t Word(const Bf16* head, int d) const {
    if (!rotation_.enabled) {
      return WordAt(head + d);
    }
    const bool first = d < half_;
    const int i = first ? d : d - half_;
    const uint32_t lo = WordAt(head + i);
    const uint32_t hi = WordAt(head + i + half_);
    const float4 angles = *reinterpret_cast<const float4*>(angles_ + i);
    float a[2] = {__uint_as_float(lo << 16), __uint_as_float(lo & 0xFFFF0000)};
    float b[2] = {__uint_as_float(hi << 16), __uint_as_float(hi & 0xFFFF0000)};
    RotatePair(angles.x, angles.y, a[0], b[0]);
    RotatePair(angles.z, angles.w, a[1], b[1]);
    const __nv_bfloat162 pair =
        first ? __floats2bfloat162_rn(a[0], a[1]) : __floats2bfloat162_rn(b[0], b[1]);
    return *reinterpret_cast<const uint32_t*>(&pair);
  }

 private:
  static __device__ __forceinline__ uint32_t WordAt(const Bf16* from) {
    return *reinterpret_cast<const uint32_t*>(from);
  }

  const Rotation& rotation_;
  int half_;
  float2* angles_;
};

}  // namespace hearth::kernels::cuda::cached
