// Backward kernels of this op, included by qk_norm_rope.cu alone.
#pragma once

#include "kernels/cuda/quant_tile.cuh"
#include "kernels/qk_norm_rope/partition.h"
#include "kernels/qk_norm_rope/rotation.cuh"
#include "kernels/qk_norm_rope/tile.cuh"

namespace hearth::kernels::cuda {

inline constexpr int kRopeAnyThreads = 128;

template <typename A>
struct RopeBackwardParams {
  const A* d_out;
  const A* qkv;  // these four with a norm only; q_weight null: no norm
  const A* q_weight;
  const A* k_weight;
  const float* rstd;
  A* d_qkv;  // may be null or d_out
  QuantView quant;
  float* partial;  // [tiles of kRopeTileRows rows, rotated, dim]: weight gradients
  int64_t rows;
  int64_t width;
  int heads;
  int rotated;
  int total;  // heads that are written
  int dim;
};

// Gradient of the norm's output -> of its input, for one head of a group of lanes. `sums` collects
// the weight gradient. The whole warp takes part; inactive lanes hold zeros.
template <typename A>
__device__ __forceinline__ void NormBackward(
    const Pairs& x, const Pairs& w, float rstd, int dim, int lanes, Pairs& d, Pairs& sums) {
  float dot = 0.0F;
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    dot += d.lo[k] * w.lo[k] * x.lo[k] + d.hi[k] * w.hi[k] * x.hi[k];
  }
  dot = GroupSum(dot, lanes);
  const float slope = dot * rstd * rstd * rstd / static_cast<float>(dim);
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    sums.lo[k] += d.lo[k] * (x.lo[k] * rstd);
    sums.hi[k] += d.hi[k] * (x.hi[k] * rstd);
    d.lo[k] = d.lo[k] * w.lo[k] * rstd - x.lo[k] * slope;
    d.hi[k] = d.hi[k] * w.hi[k] * rstd - x.hi[k] * slope;
  }
}

// The sums of a block's lanes over its rows, to one row of `partial`. `shared` holds a row of dim
// for each warp. Called by the whole block.
__device__ __forceinline__ void StorePartial(
    Pairs& sums, int lanes, int i, int half, int dim, float* shared, float* partial) {
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    for (int offset = lanes; offset < 32; offset *= 2) {
      sums.lo[k] += __shfl_xor_sync(0xFFFFFFFF, sums.lo[k], offset);
      sums.hi[k] += __shfl_xor_sync(0xFFFFFFFF, sums.hi[k], offset);
    }
  }
  __syncthreads();
  const int in_warp = threadIdx.x % 32;
  if (in_warp < lanes && i < half) {
    float* row = shared + threadIdx.x / 32 * dim;
    StoreFloats<8>(row + i, sums.lo);
    StoreFloats<8>(row + i + half, sums.hi);
  }
  __syncthreads();
  for (int col = threadIdx.x; col < dim; col += kRopeThreads) {
    float sum = 0.0F;
#pragma unroll
    for (int warp = 0; warp < kRopeThreads / 32; ++warp) {
      sum += shared[warp * dim + col];
    }
    partial[col] = sum;
  }
}

// With a norm. Block (x, y): rows x * kRopeTileRows and on, heads y * tile_heads and on; a group of
// lanes takes every (kRopeThreads / lanes)-th row of one head after the other. kColumns: through a
// tile, rows a multiple of 16. Dynamic shared memory: the tile's bytes with kColumns, then a row of
// dim floats for each warp.
// tidy: allow(length): one pipeline, whose registers and barriers must be seen together
template <typename A, bool kColumns>
__global__ void __launch_bounds__(kRopeThreads, 2) RopeNormBackwardKernel(
    RopeBackwardParams<A> p, const __grid_constant__ Rotation rotation, int lanes, int tile_heads) {
  extern __shared__ uint4 memory[];
  __shared__ uint32_t scratch[32];
  uint32_t* words = reinterpret_cast<uint32_t*>(memory);
  const QuantTile<kRopeTileRows> tile(words, tile_heads * p.dim);
  float* shared_sums = reinterpret_cast<float*>(
      words + (kColumns ? QuantTile<kRopeTileRows>::Words(tile_heads * p.dim) : 0));
  const int64_t row0 = static_cast<int64_t>(blockIdx.x) * kRopeTileRows;
  const int tile_rows = static_cast<int>(min(p.rows - row0, static_cast<int64_t>(kRopeTileRows)));
  const int first = blockIdx.y * tile_heads;
  const int slots = min(tile_heads, p.total - first);
  const int half = p.dim / 2;
  const int i = threadIdx.x % lanes * 8;
  const int group = threadIdx.x / lanes;
  const int groups = kRopeThreads / lanes;
  const bool e4m3 = p.quant.dtype == DType::kE4M3;
  const float scale = QuantScale(p.quant);
  uint32_t amax = 0;

  for (int slot = 0; slot < slots; ++slot) {
    const int head = first + slot;
    const bool turned = head < p.rotated;
    Pairs weight = {};
    Pairs sums = {};
    if (turned && i < half) {
      RawPairs<A> raw;
      raw.Load(head < p.heads ? p.q_weight : p.k_weight, i, half);
      weight = raw.Floats();
    }
    // The number of turns is the same for the whole block: the sums below need whole warps.
    for (int base = 0; base < kRopeTileRows; base += groups) {
      const int r = base + group;
      const bool live = r < tile_rows && i < half;
      const int64_t at = (row0 + r) * p.width + head * p.dim;
      RawPairs<A> raw;
      RawPairs<A> input;
      float rstd = 0.0F;
      raw.Clear();
      input.Clear();
      if (live) {
        raw.Load(p.d_out + at, i, half);
        if (turned) {
          input.Load(p.qkv + at, i, half);
          rstd = p.rstd[(row0 + r) * p.rotated + head];
        }
      }
      Pairs d = raw.Floats();
      if (rotation.enabled && turned && live) {
        const int64_t position = rotation.positions[row0 + r];
#pragma unroll
        for (int k = 0; k < 8; ++k) {
          float c;
          float s;
          CosSin<A>(rotation.turns[i + k], position, c, s);
          RotatePair(c, -s, d.lo[k], d.hi[k]);
        }
      }
      if (turned) {
        NormBackward<A>(input.Floats(), weight, rstd, p.dim, lanes, d, sums);
      }
      if (!live) {
        continue;
      }
      raw.Round(d);
      if (p.d_qkv != nullptr) {
        raw.Store(p.d_qkv + at, i, half);
      }
      if (p.quant.empty()) {
        continue;
      }
      const Pairs v = raw.Floats();
      amax = RaiseMagnitude(RaiseMagnitude(amax, v.lo), v.hi);
      const uint2 lo = QuantizePack(v.lo, scale, e4m3);
      const uint2 hi = QuantizePack(v.hi, scale, e4m3);
      if (p.quant.rows != nullptr) {
        StoreQuantRow(p.quant, at + i, lo);
        StoreQuantRow(p.quant, at + i + half, hi);
      }
      if constexpr (kColumns) {
        tile.Put(r, slot * p.dim + i, lo);
        tile.Put(r, slot * p.dim + i + half, hi);
      } else if (p.quant.columns != nullptr) {
        const int64_t col = int64_t{head} * p.dim + i;
        ScatterBytes(p.quant.columns, p.rows, row0 + r, col, lo);
        ScatterBytes(p.quant.columns, p.rows, row0 + r, col + half, hi);
      }
    }
    if (turned) {
      StorePartial(sums, lanes, i, half, p.dim, shared_sums,
                   p.partial + (static_cast<int64_t>(blockIdx.x) * p.rotated + head) * p.dim);
    }
  }
  if constexpr (kColumns) {
    __syncthreads();
    tile.WriteColumns(p.quant.columns, p.rows, row0, static_cast<int64_t>(first) * p.dim, tile_rows,
                      slots * p.dim);
  }
  if (p.quant.amax != nullptr) {
    RaiseAmaxOfBlock(p.quant.amax, amax, scratch);
  }
}

// Any head size up to kMaxHeadDim and any alignment: a warp takes kRopeTileRows rows of one head.
// Pairs are (i, i + lo), as in forward.
// tidy: allow(length): one pipeline, whose registers and barriers must be seen together
template <typename A>
__global__ void __launch_bounds__(kRopeAnyThreads)
    RopeBackwardAnyKernel(RopeBackwardParams<A> p, const __grid_constant__ Rotation rotation) {
  constexpr int kPairs = kMaxHeadDim / 2 / 32;  // of a lane
  __shared__ uint32_t scratch[32];
  const int lane = threadIdx.x % 32;
  const int64_t task = static_cast<int64_t>(blockIdx.x) * (kRopeAnyThreads / 32) + threadIdx.x / 32;
  const int64_t tile = task / p.total;
  const int head = static_cast<int>(task % p.total);
  const int lo = (p.dim + 1) / 2;
  const bool turned = head < p.rotated;
  const bool norm = p.q_weight != nullptr && turned;
  const A* weight = head < p.heads ? p.q_weight : p.k_weight;
  const float scale = QuantScale(p.quant);
  float sums[2][kPairs] = {};
  uint32_t amax = 0;
  // All lanes of a warp have the same rows.
  const int64_t end = min((tile + 1) * kRopeTileRows, p.rows);
  for (int64_t row = tile * kRopeTileRows; row < end; ++row) {
    const int64_t at = row * p.width + head * p.dim;
    float d[2][kPairs];
    float dot = 0.0F;
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      const int i = lane + j * 32;
      d[0][j] = i < lo ? ToFloat(p.d_out[at + i]) : 0.0F;
      d[1][j] = i + lo < p.dim ? ToFloat(p.d_out[at + i + lo]) : 0.0F;
      if (rotation.enabled && turned && i < lo) {
        float c;
        float s;
        CosSin<A>(rotation.turns[i], rotation.positions[row], c, s);
        RotatePair(c, -s, d[0][j], d[1][j]);
      }
      if (norm) {
        for (int part = 0; part < 2; ++part) {
          const int col = i + part * lo;
          if (i < lo && col < p.dim) {
            dot += d[part][j] * ToFloat(weight[col]) * ToFloat(p.qkv[at + col]);
          }
        }
      }
    }
    const float rstd = norm ? p.rstd[row * p.rotated + head] : 1.0F;
    const float slope = norm ? WarpSum(dot) * rstd * rstd * rstd / static_cast<float>(p.dim) : 0.0F;
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        const int col = lane + j * 32 + part * lo;
        if (lane + j * 32 >= lo || col >= p.dim) {
          continue;
        }
        float v = d[part][j];
        if (norm) {
          const float x = ToFloat(p.qkv[at + col]);
          sums[part][j] += v * (x * rstd);
          v = v * ToFloat(weight[col]) * rstd - x * slope;
        }
        v = Rounded<A>(v);
        if (p.d_qkv != nullptr) {
          p.d_qkv[at + col] = FromFloat<A>(v);
        }
        amax = RaiseMagnitude(amax, v);
        if (p.quant.has_values()) {
          StoreQuantValue(p.quant, p.rows, p.width, row, head * p.dim + col, v, scale);
        }
      }
    }
  }
  if (norm && tile * kRopeTileRows < p.rows) {
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        const int col = lane + j * 32 + part * lo;
        if (lane + j * 32 < lo && col < p.dim) {
          p.partial[(tile * p.rotated + head) * p.dim + col] = sums[part][j];
        }
      }
    }
  }
  if (p.quant.amax != nullptr) {
    RaiseAmaxOfBlock(p.quant.amax, amax, scratch);
  }
}

// Adds the partial sums to the weight gradients. Block (x, y): columns 32 x and on of q's (y = 0)
// or k's gradient; 32 x 32 threads.
__global__ void __launch_bounds__(1024) RopeWeightKernel(const float* partial,
                                                         int tiles,
                                                         int heads,
                                                         int rotated,
                                                         int dim,
                                                         void* d_q_weight,
                                                         void* d_k_weight,
                                                         bool bf16) {
  __shared__ float shared[32][33];
  const int col = blockIdx.x * 32 + threadIdx.x;
  const int first = blockIdx.y == 0 ? 0 : heads;
  const int count = blockIdx.y == 0 ? heads : rotated - heads;
  float sum = 0.0F;
  if (col < dim) {
#pragma unroll 8
    for (int n = threadIdx.y; n < tiles * count; n += 32) {
      sum += partial[(int64_t{n / count} * rotated + first + n % count) * dim + col];
    }
  }
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y == 0 && col < dim) {
    sum = 0.0F;
    for (int n = 0; n < 32; ++n) {
      sum += shared[n][threadIdx.x];
    }
    void* gradient = blockIdx.y == 0 ? d_q_weight : d_k_weight;
    if (bf16) {
      Bf16* to = static_cast<Bf16*>(gradient) + col;
      *to = FromFloat<Bf16>(ToFloat(*to) + sum);
    } else {
      static_cast<float*>(gradient)[col] += sum;
    }
  }
}

}  // namespace hearth::kernels::cuda
