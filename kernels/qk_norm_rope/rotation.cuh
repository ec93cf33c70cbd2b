// What the kernels of this op share: rotation angles, packs of a head, groups of lanes.
//
// Element i of the first half of a head pairs with i + D/2. On the main path (D a multiple of 16,
// at most 256; everything aligned) a lane holds 8 consecutive pairs and a power of two of lanes,
// the group, holds a head; lanes of a group beyond D/16 only take part in the sums.
#pragma once

#include <cmath>

#include "kernels/cuda/util.cuh"
#include "kernels/qk_norm_rope/qk_norm_rope.h"

namespace hearth::kernels::cuda {

inline constexpr int kMaxHeadDim = 256;

// turns[i]: 2^64 times the turns that pair i makes from one position to the next, modulo one turn.
// Integer products modulo 2^64 are then exact at every position.
struct Rotation {
  bool enabled;
  const int32_t* positions;
  uint64_t turns[kMaxHeadDim / 2];
};

inline Rotation RotationOf(const RopeConfig& config,
                           const QkHeads& dims,
                           const TensorView& positions) {
  Rotation rotation = {};
  rotation.enabled = config.enabled;
  rotation.positions = positions.as<int32_t>();
  if (config.enabled) {
    double inv_freq[kMaxHeadDim / 2];
    RopeInverseFrequencies(config, dims.head_dim, inv_freq);
    for (int64_t i = 0; i < dims.head_dim / 2; ++i) {
      const double turns = inv_freq[i] / 6.283185307179586476925;
      rotation.turns[i] = static_cast<uint64_t>(std::ldexp(turns - std::floor(turns), 64));
    }
  }
  return rotation;
}

// Absolute error below 1e-6 for bf16, 3e-7 for float, at every position.
template <typename A>
__device__ __forceinline__ void CosSin(uint64_t turns, int64_t position, float& c, float& s) {
  const uint64_t turn = turns * static_cast<uint64_t>(position);
  // The fraction of one turn, in [-1/2, 1/2) times 2^32.
  const float fraction = static_cast<float>(static_cast<int32_t>(turn >> 32));
  if constexpr (sizeof(A) == 2) {
    const float angle = fraction * (0x1p-31F * 3.14159265358979F);
    c = __cosf(angle);
    s = __sinf(angle);
  } else {
    sincospif(fraction * 0x1p-31F, &s, &c);
  }
}

// 8 pairs of a head.
struct Pairs {
  float lo[8];
  float hi[8];
};

template <typename A>
struct RawPairs {
  Pack<A, 8> lo;
  Pack<A, 8> hi;

  __device__ __forceinline__ void Load(const A* head, int i, int half) {
    lo = LoadPack<8>(head + i);
    hi = LoadPack<8>(head + i + half);
  }
  __device__ __forceinline__ void Store(A* head, int i, int half) const {
    StorePack<8>(head + i, lo);
    StorePack<8>(head + i + half, hi);
  }
  __device__ __forceinline__ void Clear() {
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      lo.at[k] = FromFloat<A>(0.0F);
      hi.at[k] = FromFloat<A>(0.0F);
    }
  }
  __device__ __forceinline__ Pairs Floats() const {
    Pairs p;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      p.lo[k] = ToFloat(lo.at[k]);
      p.hi[k] = ToFloat(hi.at[k]);
    }
    return p;
  }
  __device__ __forceinline__ void Round(const Pairs& p) {
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      lo.at[k] = FromFloat<A>(p.lo[k]);
      hi.at[k] = FromFloat<A>(p.hi[k]);
    }
  }
};

// (a, b) -> (a cos - b sin, b cos + a sin); sin negated rotates back.
__device__ __forceinline__ void RotatePair(float c, float s, float& a, float& b) {
  // Written out, so that every kernel rounds alike.
  const float rotated = fmaf(a, c, -__fmul_rn(b, s));
  b = fmaf(b, c, __fmul_rn(a, s));
  a = rotated;
}

// The sum over aligned groups of `lanes` lanes, a power of two; the whole warp takes part.
__device__ __forceinline__ float GroupSum(float x, int lanes) {
  for (int offset = 1; offset < lanes; offset *= 2) {
    x += __shfl_xor_sync(0xFFFFFFFF, x, offset);
  }
  return x;
}

// Lanes of a head on the main path.
inline int GroupLanes(int64_t head_dim) {
  int lanes = 1;
  while (lanes * 16 < head_dim) {
    lanes *= 2;
  }
  return lanes;
}

}  // namespace hearth::kernels::cuda
