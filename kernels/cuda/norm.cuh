// RMSNorm and LayerNorm (kCentred) are the same kernels: a row is held in the registers of 1, 2, 4
// or 8 warps, 8 values a pack, so that memory is read once; a block of 8 warps owns a range of
// rows, whose transposed FP8 copy goes through shared memory. norm_values.cuh has the kernels for
// other rows, norm_launch.cuh chooses.
#pragma once

#include "kernels/cuda/quant_tile.cuh"

namespace hearth::kernels::cuda {

inline constexpr int kNormThreads = 256;
inline constexpr int kNormWarps = kNormThreads / 32;
inline constexpr int kNormMaxPacks = 4;  // of a row, a thread
inline constexpr int kNormTileRows = 32;

// How rows lie in registers and blocks; the same for all blocks of a launch.
struct NormShape {
  int64_t rows = 0;
  int cols = 0;
  int warps = 1;      // a row; a power of two
  int packs = 0;      // a thread; 0: the kernels of norm_values.cuh
  int tile_rows = 0;  // of a block at a time, a multiple of the rows that its warps hold at once
};

template <typename A>
struct NormForwardParams {
  NormShape shape;
  const A* x;
  const A* residual;
  const A* weight;
  const A* bias;
  A* sum;
  A* y;
  float* mean;
  float* rstd;
  QuantView quant;
  float eps;
};

template <typename A>
struct NormBackwardParams {
  NormShape shape;
  const A* dy;
  const A* s;
  const A* weight;
  const A* d_sum;
  const float* mean;
  const float* rstd;
  A* dx;
  QuantView quant;
  float* weight_partial;  // [gridDim.x, cols], or null
  float* bias_partial;
};

// Where a thread's V packs are: a warp has V * 256 consecutive columns of a row, a thread every
// 256th pack of 8, so that their distances are constants.
inline constexpr int kNormStep = 256;

template <int V>
struct NormThread {
  int slots;  // rows that a block holds at once
  int slot;
  int col;  // of the first pack

  __device__ __forceinline__ explicit NormThread(const NormShape& shape) {
    const int warp = threadIdx.x / 32;
    slots = kNormWarps / shape.warps;
    slot = warp / shape.warps;
    col = warp % shape.warps * V * kNormStep + threadIdx.x % 32 * 8;
  }
};

// Sum over the warps of a row, in a fixed order. Every thread of the block calls it.
__device__ __forceinline__ float RowSum(float v, int warps, float* scratch) {
  v = WarpSum(v);
  if (warps > 1) {
    const int warp = threadIdx.x / 32;
    __syncthreads();
    if (threadIdx.x % 32 == 0) {
      scratch[warp] = v;
    }
    __syncthreads();
    const int first = warp / warps * warps;
    v = 0.0F;
    for (int i = 0; i < warps; ++i) {
      v += scratch[first + i];
    }
  }
  return v;
}

// Packs of a row that exist; the others are zero.
template <int V, typename A>
__device__ __forceinline__ void LoadRow(
    const A* from, bool inside, int col, int cols, Raw8<A> (&packs)[V]) {
#pragma unroll
  for (int i = 0; i < V; ++i) {
    packs[i] = {};
    if (inside && col + i * kNormStep < cols) {
      packs[i] = LoadRaw8(from + col + i * kNormStep);
    }
  }
}

// v, which is pack (row, col) rounded to the plain format, to the quantised outputs; `r` is the row
// within the tile.
__device__ __forceinline__ void QuantizeNormPack(const QuantView& quant,
                                                 const QuantTile<kNormTileRows>& tile,
                                                 int64_t at,
                                                 int r,
                                                 int col,
                                                 float scale,
                                                 const float (&v)[8],
                                                 uint32_t& amax) {
  if (quant.amax != nullptr) {
    amax = RaiseMagnitude(amax, v);
  }
  if (quant.scale != nullptr) {
    const uint2 bytes = QuantizePack(v, scale, quant.dtype == DType::kE4M3);
    if (quant.rows != nullptr) {
      StoreQuantRow(quant, at, bytes);
    }
    if (quant.columns != nullptr) {
      tile.Put(r, col, bytes);
    }
  }
}

extern __shared__ __align__(16) uint32_t norm_shared[];

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

template <typename A, int V, bool kCentred>
__global__ void __launch_bounds__(kNormThreads) NormForwardKernel(const NormForwardParams<A> p) {
  __shared__ float scratch[kNormWarps];
  __shared__ uint32_t amax_scratch[32];
  const NormShape& shape = p.shape;
  const NormThread<V> me(shape);
  const QuantTile<kNormTileRows> tile(norm_shared, shape.cols);
  const float scale = QuantScale(p.quant);
  const float count = static_cast<float>(shape.cols);
  const int64_t row0 = static_cast<int64_t>(blockIdx.x) * shape.tile_rows;
  uint32_t amax = 0;
  for (int r = me.slot; r < shape.tile_rows; r += me.slots) {
    const int64_t row = row0 + r;
    const bool inside = row < shape.rows;
    const int64_t begin = row * shape.cols;
    Raw8<A> s[V];
    LoadRow(p.x + begin, inside, me.col, shape.cols, s);
    if (p.residual != nullptr) {
      Raw8<A> add[V];
      LoadRow(p.residual + begin, inside, me.col, shape.cols, add);
#pragma unroll
      for (int i = 0; i < V; ++i) {
        s[i] = AddPacks<A>(s[i], add[i]);
        if (inside && me.col + i * kNormStep < shape.cols) {
          StoreRaw8(p.sum + begin + me.col + i * kNormStep, s[i]);
        }
      }
    }
    float mean = 0.0F;
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
      mean = RowSum(sum, shape.warps, scratch) / count;
    }
    float squares = 0.0F;
#pragma unroll
    for (int i = 0; i < V; ++i) {
      if (me.col + i * kNormStep < shape.cols) {
        float v[8];
        Unpack(s[i], v);
#pragma unroll
        for (int k = 0; k < 8; ++k) {
          squares += (v[k] - mean) * (v[k] - mean);
        }
      }
    }
    const float rstd = 1.0F / sqrtf(RowSum(squares, shape.warps, scratch) / count + p.eps);
    if (inside && me.col == 0 && p.rstd != nullptr) {
      p.rstd[row] = rstd;
      if constexpr (kCentred) {
        p.mean[row] = mean;
      }
    }
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const int col = me.col + i * kNormStep;
      if (inside && col < shape.cols) {
        float v[8];
        float weight[8];
        Unpack(s[i], v);
        Unpack(LoadRaw8(p.weight + col), weight);
#pragma unroll
        for (int k = 0; k < 8; ++k) {
          v[k] = (v[k] - mean) * rstd * weight[k];
        }
        if (kCentred && p.bias != nullptr) {
          float bias[8];
          Unpack(LoadRaw8(p.bias + col), bias);
#pragma unroll
          for (int k = 0; k < 8; ++k) {
            v[k] += bias[k];
          }
        }
        const Raw8<A> y = PackRaw8<A>(v);
        if (p.y != nullptr) {
          StoreRaw8(p.y + begin + col, y);
        }
        Unpack(y, v);
        QuantizeNormPack(p.quant, tile, begin + col, r, col, scale, v, amax);
      }
    }
  }
  if (p.quant.columns != nullptr) {
    __syncthreads();
    const int rows = static_cast<int>(min(shape.rows - row0, int64_t{shape.tile_rows}));
    tile.WriteColumns(p.quant.columns, shape.rows, row0, 0, rows, shape.cols);
  }
  if (p.quant.amax != nullptr) {
    RaiseAmaxOfBlock(p.quant.amax, amax, amax_scratch);
  }
}

// partial[blockIdx.x, col] = sum of the block's threads that hold `col`, in the order of slots.
template <int V>
__device__ __forceinline__ void StorePartial(const float (&sums)[V][8],
                                             const NormThread<V>& me,
                                             int cols,
                                             float* partial) {
  float* shared = reinterpret_cast<float*>(norm_shared);
  for (int turn = 0; turn < me.slots; ++turn) {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const int col = me.col + i * kNormStep;
      if (me.slot == turn && col < cols) {
        float total[8] = {};
        if (turn > 0) {
          LoadFloats(shared + col, total);
        }
#pragma unroll
        for (int k = 0; k < 8; ++k) {
          total[k] += sums[i][k];
        }
        StoreFloats(shared + col, total);
      }
    }
  }
  __syncthreads();
  for (int col = threadIdx.x; col < cols; col += kNormThreads) {
    partial[static_cast<int64_t>(blockIdx.x) * cols + col] = shared[col];
  }
}

template <typename A, int V, bool kCentred>
__global__ void __launch_bounds__(kNormThreads, 2)
    NormBackwardKernel(const NormBackwardParams<A> p) {
  __shared__ float scratch[kNormWarps];
  __shared__ uint32_t amax_scratch[32];
  const NormShape& shape = p.shape;
  const NormThread<V> me(shape);
  const QuantTile<kNormTileRows> tile(norm_shared, shape.cols);
  const float scale = QuantScale(p.quant);
  const float count = static_cast<float>(shape.cols);
  float weight_sums[V][8] = {};
  float bias_sums[V][8] = {};
  uint32_t amax = 0;
  const int64_t step = static_cast<int64_t>(gridDim.x) * shape.tile_rows;
  for (int64_t row0 = static_cast<int64_t>(blockIdx.x) * shape.tile_rows; row0 < shape.rows;
       row0 += step) {
    for (int r = me.slot; r < shape.tile_rows; r += me.slots) {
      const int64_t row = row0 + r;
      const bool inside = row < shape.rows;
      const int64_t begin = row * shape.cols;
      Raw8<A> dy[V];
      Raw8<A> s[V];
      Raw8<A> d_sum[V];
      LoadRow(p.dy + begin, inside, me.col, shape.cols, dy);
      LoadRow(p.s + begin, inside, me.col, shape.cols, s);
      LoadRow(p.d_sum + begin, inside && p.d_sum != nullptr, me.col, shape.cols, d_sum);
      const float rstd = inside ? p.rstd[row] : 0.0F;
      const float mean = kCentred && inside ? p.mean[row] : 0.0F;
      float dot = 0.0F;
      float total = 0.0F;
#pragma unroll
      for (int i = 0; i < V; ++i) {
        const int col = me.col + i * kNormStep;
        if (col < shape.cols) {
          float d[8];
          float normalized[8];
          float weight[8];
          Unpack(dy[i], d);
          Unpack(s[i], normalized);
          Unpack(LoadRaw8(p.weight + col), weight);
#pragma unroll
          for (int k = 0; k < 8; ++k) {
            normalized[k] = (normalized[k] - mean) * rstd;
            dot += d[k] * weight[k] * normalized[k];
            weight_sums[i][k] += d[k] * normalized[k];
            if constexpr (kCentred) {
              total += d[k] * weight[k];
              bias_sums[i][k] += d[k];
            }
          }
        }
      }
      dot = RowSum(dot, shape.warps, scratch) / count;
      if constexpr (kCentred) {
        total = RowSum(total, shape.warps, scratch) / count;
      }
#pragma unroll
      for (int i = 0; i < V; ++i) {
        const int col = me.col + i * kNormStep;
        if (inside && col < shape.cols) {
          float d[8];
          float normalized[8];
          float weight[8];
          float v[8];
          Unpack(dy[i], d);
          Unpack(s[i], normalized);
          Unpack(LoadRaw8(p.weight + col), weight);
          Unpack(d_sum[i], v);
#pragma unroll
          for (int k = 0; k < 8; ++k) {
            normalized[k] = (normalized[k] - mean) * rstd;
            v[k] += (d[k] * weight[k] - total - normalized[k] * dot) * rstd;
          }
          const Raw8<A> dx = PackRaw8<A>(v);
          StoreRaw8(p.dx + begin + col, dx);
          Unpack(dx, v);
          QuantizeNormPack(p.quant, tile, begin + col, r, col, scale, v, amax);
        }
      }
    }
    if (p.quant.columns != nullptr) {
      __syncthreads();
      const int rows = static_cast<int>(min(shape.rows - row0, int64_t{shape.tile_rows}));
      tile.WriteColumns(p.quant.columns, shape.rows, row0, 0, rows, shape.cols);
      __syncthreads();
    }
  }
  if (p.weight_partial != nullptr) {
    StorePartial(weight_sums, me, shape.cols, p.weight_partial);
  }
  if (kCentred && p.bias_partial != nullptr) {
    StorePartial(bias_sums, me, shape.cols, p.bias_partial);
  }
  if (p.quant.amax != nullptr) {
    RaiseAmaxOfBlock(p.quant.amax, amax, amax_scratch);
  }
}

}  // namespace hearth::kernels::cuda
