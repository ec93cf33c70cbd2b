// The norms for rows that are not whole packs or too long for registers, value by value, and the
// second stage of their weight gradients.
#pragma once

#include "kernels/norm/norm.cuh"

namespace hearth::kernels::cuda {

// One row a block, any size and alignment.
template <typename A, bool kCentred>
__global__ void __launch_bounds__(kNormThreads)
    NormForwardValuesKernel(const NormForwardParams<A> p) {
  __shared__ float scratch[32];
  __shared__ uint32_t amax_scratch[32];
  const int cols = p.shape.cols;
  const int64_t row = blockIdx.x;
  const int64_t begin = row * cols;
  const A* s = (p.residual != nullptr ? p.sum : p.x) + begin;
  TakeTurn();
  float sum = 0.0F;
  float squares = 0.0F;
  for (int col = threadIdx.x; col < cols; col += kNormThreads) {
    float v = ToFloat(p.x[begin + col]);
    if (p.residual != nullptr) {
      const A rounded = FromFloat<A>(v + ToFloat(p.residual[begin + col]));
      p.sum[begin + col] = rounded;
      v = ToFloat(rounded);
    }
    sum += v;
    squares += v * v;
  }
  const float count = static_cast<float>(cols);
  float mean = 0.0F;
  if constexpr (kCentred) {
    // A second pass over s, which this thread wrote itself: squares around the mean do not cancel.
    mean = BlockSum(sum, scratch) / count;
    squares = 0.0F;
    for (int col = threadIdx.x; col < cols; col += kNormThreads) {
      const float centred = ToFloat(s[col]) - mean;
      squares += centred * centred;
    }
  }
  const float rstd = 1.0F / sqrtf(BlockSum(squares, scratch) / count + p.eps);
  if (threadIdx.x == 0 && p.rstd != nullptr) {
    p.rstd[row] = rstd;
    if constexpr (kCentred) {
      p.mean[row] = mean;
    }
  }
  const float scale = QuantScale(p.quant);
  uint32_t amax = 0;
  for (int col = threadIdx.x; col < cols; col += kNormThreads) {
    const float bias = kCentred && p.bias != nullptr ? ToFloat(p.bias[col]) : 0.0F;
    const A y = FromFloat<A>((ToFloat(s[col]) - mean) * rstd * ToFloat(p.weight[col]) + bias);
    if (p.y != nullptr) {
      p.y[begin + col] = y;
    }
    amax = RaiseMagnitude(amax, ToFloat(y));
    if (p.quant.scale != nullptr) {
      StoreQuantValue(p.quant, p.shape.rows, cols, row, col, ToFloat(y), scale);
    }
  }
  if (p.quant.amax != nullptr) {
    RaiseAmaxOfBlock(p.quant.amax, amax, amax_scratch);
  }
}

// Rows blockIdx.x, blockIdx.x + gridDim.x, ..; a thread's columns are its own in `partial` too.
template <typename A, bool kCentred>
__global__ void __launch_bounds__(kNormThreads)
    NormBackwardValuesKernel(const NormBackwardParams<A> p) {
  __shared__ float scratch[32];
  __shared__ uint32_t amax_scratch[32];
  const int cols = p.shape.cols;
  const int64_t offset = static_cast<int64_t>(blockIdx.x) * cols;
  float* weight_partial = p.weight_partial != nullptr ? p.weight_partial + offset : nullptr;
  float* bias_partial = p.bias_partial != nullptr ? p.bias_partial + offset : nullptr;
  const float scale = QuantScale(p.quant);
  const float count = static_cast<float>(cols);
  uint32_t amax = 0;
  for (int64_t row = blockIdx.x; row < p.shape.rows; row += gridDim.x) {
    const bool first = row == blockIdx.x;
    const int64_t begin = row * cols;
    const float rstd = p.rstd[row];
    const float mean = kCentred ? p.mean[row] : 0.0F;
    float dot = 0.0F;
    float total = 0.0F;
    for (int col = threadIdx.x; col < cols; col += kNormThreads) {
      const float normalized = (ToFloat(p.s[begin + col]) - mean) * rstd;
      const float d = ToFloat(p.dy[begin + col]);
      dot += d * ToFloat(p.weight[col]) * normalized;
      total += d * ToFloat(p.weight[col]);
      // The first row overwrites: what is in the workspace is undefined.
      if (weight_partial != nullptr) {
        weight_partial[col] = (first ? 0.0F : weight_partial[col]) + d * normalized;
      }
      if (bias_partial != nullptr) {
        bias_partial[col] = (first ? 0.0F : bias_partial[col]) + d;
      }
    }
    dot = BlockSum(dot, scratch) / count;
    total = kCentred ? BlockSum(total, scratch) / count : 0.0F;
    for (int col = threadIdx.x; col < cols; col += kNormThreads) {
      const float normalized = (ToFloat(p.s[begin + col]) - mean) * rstd;
      const float d_normalized = ToFloat(p.dy[begin + col]) * ToFloat(p.weight[col]);
      const float add = p.d_sum != nullptr ? ToFloat(p.d_sum[begin + col]) : 0.0F;
      const A dx = FromFloat<A>((d_normalized - total - normalized * dot) * rstd + add);
      p.dx[begin + col] = dx;
      amax = RaiseMagnitude(amax, ToFloat(dx));
      if (p.quant.scale != nullptr) {
        StoreQuantValue(p.quant, p.shape.rows, cols, row, col, ToFloat(dx), scale);
      }
    }
  }
  if (p.quant.amax != nullptr) {
    RaiseAmaxOfBlock(p.quant.amax, amax, amax_scratch);
  }
}

// Partial sums of gradients of one width, and where they are added: one for each row of blocks.
template <typename G>
struct PartialSums {
  const float* partial[2];  // [count, cols]
  G* out[2];
  int count;
  int cols;
};

// out[col] += sum over `count` partials, in a fixed order. Blocks of 32 x 32 threads. What it takes
// is the time of a few accesses to memory, so all of them are under way at once.
template <typename G>
__global__ void __launch_bounds__(1024) AddPartialsKernel(const PartialSums<G> p) {
  constexpr int kBatch = 16;
  // A word more a row: the reads by columns then hit different banks.
  __shared__ float sums[32][33];
  const float* partial = p.partial[blockIdx.y];
  G* out = p.out[blockIdx.y];
  const int col = blockIdx.x * 32 + threadIdx.x;
  const int mine = blockIdx.x * 32 + threadIdx.y;
  // Read before the sums, so that its latency passes beside theirs.
  float before = 0.0F;
  if (threadIdx.x == 0 && mine < p.cols) {
    before = ToFloat(out[mine]);
  }
  float sum = 0.0F;
  for (int i = threadIdx.y; i < p.count; i += 32 * kBatch) {
    float v[kBatch];
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      v[k] = i + 32 * k < p.count && col < p.cols
                 ? partial[static_cast<int64_t>(i + 32 * k) * p.cols + col]
                 : 0.0F;
    }
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      sum += v[k];
    }
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  // A warp sums one column.
  const float total = WarpSum(sums[threadIdx.x][threadIdx.y]);
  if (threadIdx.x == 0 && mine < p.cols) {
    out[mine] = FromFloat<G>(before + total);
  }
}

}  // namespace hearth::kernels::cuda
