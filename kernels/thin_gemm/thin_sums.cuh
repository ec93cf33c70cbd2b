// What the kernels of thin_gemm.h have in common: what they are given, the fused norm of x,
// the sums that a block leaves in its shared memory, and how sums become columns of y.
#pragma once

#include <cuda.h>

#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/shared_address.cuh"
#include "kernels/cuda/util.cuh"
#include "kernels/swiglu/arithmetic.cuh"
#include "kernels/thin_gemm/thin_tiling.h"

namespace hearth::kernels::cuda::thin {

struct Maps {
  CUtensorMap w;  // boxes of a block's rows, or of half of them
  CUtensorMap x;  // boxes of all tokens
};

struct Params {
  const Bf16* bias;         // or null
  const Bf16* addend;       // [tokens, width], or null
  const Bf16* norm_weight;  // [depth], with a norm
  float norm_eps;
  Bf16* y;        // [tokens, width]
  Bf16* gate_up;  // [tokens, 2 width], or null
  int32_t tokens;
  int32_t width;
  int32_t depth;
  int32_t slices;
  int32_t splits;
  int32_t stages;
  // Rows of w from the first half of a block's rows to its second half: in SwiGLU these are gate
  // and up of the same columns.
  int32_t half_stride;
};

// A block's part of the product, and its shared memory from an aligned address on, at the same
// offset in all blocks. `cols`: of y, that a block has.
struct BlockPart {
  unsigned char* memory;
  int rank;       // in the cluster
  int first_col;  // of y
  int first;      // stages of K
  int end;

  __device__ __forceinline__ BlockPart(const Params& p, unsigned char* raw, int cols)
      : memory(raw + (kThinAlignment - SharedAddress(raw) % kThinAlignment) % kThinAlignment),
        rank(static_cast<int>(blockIdx.x) % p.splits),
        first_col(static_cast<int>(blockIdx.x) / p.splits * cols),
        first(p.slices * rank / p.splits),
        end(p.slices * (rank + 1) / p.splits) {}

  // The bias of the block's columns to the L2 cache; all threads.
  __device__ __forceinline__ void PrefetchBias(const Params& p, int cols) const {
    const int at = static_cast<int>(threadIdx.x) * 4;
    if (p.bias != nullptr && at < cols && first_col + at < p.width) {
      PrefetchToL2(p.bias + first_col + at);
    }
  }
};

// Neighbouring sums of a token.
template <int N>
using Sums = Pack<float, N>;
using Quad = Sums<4>;

template <int N>
__device__ __forceinline__ Sums<N> Add(const Sums<N>& a, const Sums<N>& b) {
  Sums<N> sum;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    sum.at[i] = a.at[i] + b.at[i];
  }
  return sum;
}
template <int N>
__device__ __forceinline__ Sums<N> Scaled(const Sums<N>& in, float factor) {
  Sums<N> out;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    out.at[i] = in.at[i] * factor;
  }
  return out;
}
template <int N>
__device__ __forceinline__ Sums<N> RoundedToBf16(const Sums<N>& in) {
  Sums<N> out;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    out.at[i] = Rounded<Bf16>(in.at[i]);
  }
  return out;
}

// The fused norm of x. A row's rstd is one factor for all of its products, so that it comes
// after the sums: blocks multiply round(x * weight), and add up squares of x as they read it.
class InputNormWeights {
 public:
  // `memory`: the block's slices of the weights, [slices * kThinDepth].
  __device__ __forceinline__ explicit InputNormWeights(unsigned char* memory)
      : weights_(reinterpret_cast<Bf16*>(memory)) {}

  // All threads, from slice `first` to `end` of K; the block meets before the others are called.
  __device__ __forceinline__ void Load(const Params& p, int first, int end) const {
    const int eights = (end - first) * (kThinDepth / 8);
    for (int i = threadIdx.x; i < eights; i += static_cast<int>(blockDim.x)) {
      const int k = first * kThinDepth + i * 8;
      // The depth is a multiple of eight.
      StoreRaw8(weights_ + i * 8, k < p.depth ? LoadRaw8(p.norm_weight + k) : Raw8<Bf16>{});
    }
  }
  // Those of element `at` of the block's slices and the next.
  __device__ __forceinline__ __nv_bfloat162 Pair(int at) const {
    return *reinterpret_cast<const __nv_bfloat162*>(weights_ + at);
  }
  // Two neighbouring values of x times their weights. Adds their squares to `squares`.
  static __device__ __forceinline__ uint32_t Weigh(uint32_t x,
                                                   __nv_bfloat162 weights,
                                                   float& squares) {
    const float lo = __uint_as_float(x << 16);
    const float hi = __uint_as_float(x & 0xFFFF0000);
    squares = fmaf(hi, hi, fmaf(lo, lo, squares));
    const __nv_bfloat162 product = __hmul2(*reinterpret_cast<const __nv_bfloat162*>(&x), weights);
    return *reinterpret_cast<const uint32_t*>(&product);
  }

 private:
  Bf16* weights_;
};

// The factor of a row's products, of its sum of squares.
__device__ __forceinline__ float RstdOf(const Params& p, float squares) {
  return 1.0F / sqrtf(squares / static_cast<float>(p.depth) + p.norm_eps);
}

// The block's sums, where the ring was: [tokens][rows, kPitch].
template <int kRows, int kPitch>
class FoundSums {
 public:
  __device__ __forceinline__ explicit FoundSums(float* memory) : memory_(memory) {}

  __device__ __forceinline__ float* At(int token, int row) const {
    return memory_ + token * kPitch + row;
  }

  // The sum over the blocks of the cluster, whose sums come four at a time: more registers than
  // that are not there.
  __device__ __forceinline__ Quad OfCluster(int token, int row, int splits) const {
    float* const own = At(token, row);
    Quad sum = LoadPack<4>(InBlock(own, 0));
#pragma unroll 1
    for (int first = 1; first < splits; first += kRanksAtOnce) {
      Quad parts[kRanksAtOnce];
#pragma unroll
      for (int i = 0; i < kRanksAtOnce; ++i) {
        if (first + i < splits) {
          parts[i] = LoadPack<4>(InBlock(own, first + i));
        }
      }
#pragma unroll
      for (int i = 0; i < kRanksAtOnce; ++i) {
        if (first + i < splits) {
          sum = Add(sum, parts[i]);
        }
      }
    }
    return sum;
  }

 private:
  static constexpr int kRanksAtOnce = 4;

  float* memory_;
};

// A row's factor, of its squares in the cluster's blocks, each with its part at the same place.
__device__ __forceinline__ float RstdOfCluster(const Params& p, float* squares) {
  float part[kThinMostSplits];
  // All loads are under way before the first is used.
#pragma unroll
  for (int rank = 0; rank < kThinMostSplits; ++rank) {
    part[rank] = rank < p.splits ? *InBlock(squares, rank) : 0.0F;
  }
  float sum = part[0];
#pragma unroll
  for (int rank = 1; rank < kThinMostSplits; ++rank) {
    sum += part[rank];
  }
  return RstdOf(p, sum);
}

// kCount columns of y, from `col` on, that a thread finishes.
template <bool kSwiglu, int kCount>
class Columns {
 public:
  static constexpr int kParts = kSwiglu ? 2 : 1;  // rows of w that make a column

  __device__ __forceinline__ Columns(const Params& p, int col)
      : p_(p), col_(col), valid_(col < p.width), bias_{} {
    if (!kSwiglu && valid_ && p.bias != nullptr) {
      LoadFloats<kCount>(p.bias + col, bias_.at);
    }
  }

  // sum_of(part): the sums of w's rows of that part; `factor`: of all of them.
  template <typename SumOf>
  __device__ __forceinline__ void Finish(int token, float factor, const SumOf& sum_of) const {
    if (!valid_) {
      return;
    }
    const int64_t at = static_cast<int64_t>(token) * p_.width + col_;
    // Under way while the sums are.
    Sums<kCount> addend = {};
    if (!kSwiglu && p_.addend != nullptr) {
      LoadFloats<kCount>(p_.addend + at, addend.at);
    }
    const Sums<kCount> sum = Scaled(sum_of(0), factor);
    Sums<kCount> y;
    if constexpr (kSwiglu) {
      const Sums<kCount> gate = RoundedToBf16(sum);
      const Sums<kCount> up = RoundedToBf16(Scaled(sum_of(1), factor));
      if (p_.gate_up != nullptr) {
        Bf16* const to = p_.gate_up + at + static_cast<int64_t>(token) * p_.width;
        StoreFloats<kCount>(to, gate.at);
        StoreFloats<kCount>(to + p_.width, up.at);
      }
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        y.at[i] = SwigluOf<Bf16>(gate.at[i], up.at[i]);
      }
    } else {
      y = Add(Add(sum, bias_), addend);
    }
    StoreFloats<kCount>(p_.y + at, y.at);
  }

 private:
  const Params& p_;
  int col_;
  bool valid_;
  Sums<kCount> bias_;
};

}  // namespace hearth::kernels::cuda::thin
