// What the norms compute of a row that the warps of norm_rows.cuh hold, the same bits in every
// kernel: sums of products are written out, so that all of them round alike.
#pragma once

#include "kernels/norm/norm_rows.cuh"

namespace hearth::kernels::cuda {

template <typename A>
__device__ __forceinline__ Raw8<A> AddPacks(const Raw8<A>& a, const Raw8<A>& b) {
  float sum[8];
  float add[8];
  Unpack(a, sum);
  Unpack(b, add);
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    sum[k] += add[k];
  }
  return PackRaw8<A>(sum);
}

// Statistics of the row that a thread's warps hold as `s`, zeros beyond its end. Every thread of
// the row calls it. kWhole: every pack lies within the row.
template <typename A, int V, bool kCentred, bool kWhole = false>
__device__ __forceinline__ void NormStatistics(const Raw8<A> (&s)[V],
                                               const NormThread<V>& me,
                                               int cols,
                                               float eps,
                                               RowSums& row_sum,
                                               float& mean,
                                               float& rstd) {
  const float count = static_cast<float>(cols);
  mean = 0.0F;
  if constexpr (kCentred) {
    float sum = 0.0F;
#pragma unroll
    for (int i = 0; i < V; ++i) {
      float v[8];
      Unpack(s[i], v);
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        sum += v[k];
      }
    }
    mean = row_sum(sum) / count;
  }
  // The mean is subtracted before squaring: E[x^2] - mean^2 cancels where the mean is large.
  float squares = 0.0F;
#pragma unroll
  for (int i = 0; i < V; ++i) {
    // Zeros beyond the end must not count: (0 - mean)^2 is not 0.
    if (kWhole || me.col + i * kNormStep < cols) {
      float v[8];
      Unpack(s[i], v);
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        squares = fmaf(v[k] - mean, v[k] - mean, squares);
      }
    }
  }
  rstd = 1.0F / sqrtf(row_sum(squares) / count + eps);
}

// y of eight values from column `col` on.
template <typename A, bool kCentred>
__device__ __forceinline__ Raw8<A> NormalizePack(
    const Raw8<A>& s, float mean, float rstd, const A* weights, const A* biases, int col) {
  float v[8];
  float weight[8];
  Unpack(s, v);
  Unpack(LoadConstant(weights + col), weight);
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    v[k] = (v[k] - mean) * rstd * weight[k];
  }
  if (kCentred && biases != nullptr) {
    float bias[8];
    Unpack(LoadConstant(biases + col), bias);
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      v[k] = __fadd_rn(v[k], bias[k]);
    }
  }
  return PackRaw8<A>(v);
}

// The two means over a row's columns that the gradient of a norm takes from it, of rows that a
// thread's warps hold as `dy` and `s`: of dy * weight * normalized and, centred, of dy * weight.
// For each pack i of the thread's columns add(i, dy, normalized) sums the gradients of weight and
// bias. Every thread of the row calls it.
template <typename A, int V, bool kCentred, bool kWhole = false, typename Add>
__device__ __forceinline__ void NormGradientSums(const Raw8<A> (&dy)[V],
                                                 const Raw8<A> (&s)[V],
                                                 const NormThread<V>& me,
                                                 int cols,
                                                 const A* weights,
                                                 float mean,
                                                 float rstd,
                                                 RowSums& row_sum,
                                                 const Add& add,
                                                 float& dot,
                                                 float& total) {
  dot = 0.0F;
  total = 0.0F;
#pragma unroll
  for (int i = 0; i < V; ++i) {
    const int col = me.col + i * kNormStep;
    if (kWhole || col < cols) {
      float d[8];
      float normalized[8];
      float weight[8];
      Unpack(dy[i], d);
      Unpack(s[i], normalized);
      Unpack(LoadConstant(weights + col), weight);
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        normalized[k] = (normalized[k] - mean) * rstd;
        dot = fmaf(__fmul_rn(d[k], weight[k]), normalized[k], dot);
        if constexpr (kCentred) {
          total = fmaf(d[k], weight[k], total);
        }
      }
      add(i, d, normalized);
    }
  }
  const float count = static_cast<float>(cols);
  dot = row_sum(dot) / count;
  if constexpr (kCentred) {
    total = row_sum(total) / count;
  }
}

// dx of eight values, with what `v` holds of d_sum added; `weights` are theirs.
template <typename A, bool kCentred>
__device__ __forceinline__ Raw8<A> NormGradientPack(const Raw8<A>& dy,
                                                    const Raw8<A>& s,
                                                    const A* weights,
                                                    float mean,
                                                    float rstd,
                                                    float dot,
                                                    float total,
                                                    float (&v)[8]) {
  float d[8];
  float normalized[8];
  float weight[8];
  Unpack(dy, d);
  Unpack(s, normalized);
  Unpack(LoadConstant(weights), weight);
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    normalized[k] = (normalized[k] - mean) * rstd;
    // dx = (dy w - mean(dy w) - normalized mean(dy w normalized)) rstd; RMSNorm has no first mean.
    const float part = kCentred ? fmaf(d[k], weight[k], -total) : __fmul_rn(d[k], weight[k]);
    v[k] = fmaf(fmaf(-normalized[k], dot, part), rstd, v[k]);
  }
  return PackRaw8<A>(v);
}

}  // namespace hearth::kernels::cuda
