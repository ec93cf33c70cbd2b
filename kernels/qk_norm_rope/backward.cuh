// Backward kernels of this op, included by qk_norm_rope.cu alone.
#pragma once

#include "kernels/cuda/block_tile.cuh"
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
// the weight gradient. The whole warp takes part; inactive lanes hold zeros. Sums of products are
// written out, so that every kernel rounds alike.
template <typename A>
__device__ __forceinline__ void NormBackward(
    const Pairs& x, const Pairs& w, float rstd, int dim, int lanes, Pairs& d, Pairs& sums) {
  float dot = 0.0F;
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    dot = fmaf(d.lo[k] * w.lo[k], x.lo[k], dot);
    dot = fmaf(d.hi[k] * w.hi[k], x.hi[k], dot);
  }
  dot = GroupSum(dot, lanes);
  // y = w x rstd with rstd = (mean(x^2) + eps)^-1/2, hence dx = w dy rstd - x rstd^3 sum(w dy x) /
  // dim.
  const float slope = dot * rstd * rstd * rstd / static_cast<float>(dim);
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    sums.lo[k] = fmaf(d.lo[k], x.lo[k] * rstd, sums.lo[k]);
    sums.hi[k] = fmaf(d.hi[k], x.hi[k] * rstd, sums.hi[k]);
    d.lo[k] = fmaf(d.lo[k] * w.lo[k], rstd, -__fmul_rn(x.lo[k], slope));
    d.hi[k] = fmaf(d.hi[k] * w.hi[k], rstd, -__fmul_rn(x.hi[k], slope));
  }
}

// The sums of a block's lanes over its rows, to one row of `partial`. `shared` holds a row of dim
// for each warp. Called by the whole block.
__device__ __forceinline__ void StorePartial(
    Pairs& sums, int lanes, int i, int half, int dim, float* shared, float* partial) {
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    // Lanes that are a multiple of `lanes` apart have the same columns of other rows.
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
    // Always in the order of the warps: the gradient of the weights has the same bits in each run.
    for (int warp = 0; warp < kRopeThreads / 32; ++warp) {
      sum += shared[warp * dim + col];
    }
    partial[col] = sum;
  }
}

// What a block of threads works on: rows and heads from the first on.
struct RopeBackwardTile {
  int64_t row0;
  int rows;
  int first;
  int heads;
};
template <typename A>
__device__ __forceinline__ RopeBackwardTile RopeBackwardTileOf(const RopeBackwardParams<A>& p,
                                                               int tile_heads) {
  RopeBackwardTile tile;
  tile.row0 = static_cast<int64_t>(blockIdx.x) * kRopeTileRows;
  tile.rows = static_cast<int>(min(p.rows - tile.row0, static_cast<int64_t>(kRopeTileRows)));
  tile.first = blockIdx.y * tile_heads;
  tile.heads = min(tile_heads, p.total - tile.first);
  return tile;
}

// By the whole block: a group of lanes takes every (kRopeThreads / lanes)-th row of one head after
// the other, writes d_qkv if that is wanted, and calls sink(row of the tile, column of the tile,
// element of the tensor, rounded pairs) for its 8 pairs, which begin there and half a head on.
// shared_sums: a row of dim floats for each warp (with a norm).
template <typename A, bool kNorm, typename Sink>
__device__ __forceinline__ void RopeBackwardHeads(const RopeBackwardParams<A>& p,
                                                  const Rotation& rotation,
                                                  int lanes,
                                                  const RopeBackwardTile& tile,
                                                  float* shared_sums,
                                                  const Sink& sink) {
  const int half = p.dim / 2;
  const int i = threadIdx.x % lanes * 8;
  const int group = threadIdx.x / lanes;
  const int groups = kRopeThreads / lanes;
  for (int slot = 0; slot < tile.heads; ++slot) {
    const int head = tile.first + slot;
    const bool turned = head < p.rotated;
    Pairs weight = {};
    Pairs sums = {};
    // V heads lie behind Q and K. They are neither normed nor rotated, only copied and quantised.
    if (kNorm && turned && i < half) {
      RawPairs<A> raw;
      raw.Load(head < p.heads ? p.q_weight : p.k_weight, i, half);
      weight = raw.Floats();
    }
    // The number of turns is the same for the whole block: the sums below need whole warps.
    for (int base = 0; base < kRopeTileRows; base += groups) {
      const int r = base + group;
      const bool live = r < tile.rows && i < half;
      const int64_t at = (tile.row0 + r) * p.width + head * p.dim;
      RawPairs<A> raw;
      RawPairs<A> input;
      float rstd = 0.0F;
      raw.Clear();
      input.Clear();
      if (live) {
        raw.Load(p.d_out + at, i, half);
        if (kNorm && turned) {
          input.Load(p.qkv + at, i, half);
          rstd = p.rstd[(tile.row0 + r) * p.rotated + head];
        }
      }
      Pairs d = raw.Floats();
      if (rotation.enabled && turned && live) {
        const int64_t position = rotation.positions[tile.row0 + r];
#pragma unroll
        for (int k = 0; k < 8; ++k) {
          float c;
          float s;
          CosSin<A>(rotation.turns[i + k], position, c, s);
          // A rotation's inverse is its transpose: the gradient is turned back by the same angle.
          RotatePair(c, -s, d.lo[k], d.hi[k]);
        }
      }
      if (kNorm && turned) {
        NormBackward<A>(input.Floats(), weight, rstd, p.dim, lanes, d, sums);
      }
      if (!live) {
        continue;
      }
      raw.Round(d);
      if (p.d_qkv != nullptr) {
        raw.Store(p.d_qkv + at, i, half);
      }
      sink(r, slot * p.dim + i, at + i, raw.Floats());
    }
    if (kNorm && turned) {
      StorePartial(sums, lanes, i, half, p.dim, shared_sums,
                   p.partial + (static_cast<int64_t>(blockIdx.x) * p.rotated + head) * p.dim);
    }
  }
}

// With a norm. Block (x, y): rows x * kRopeTileRows and on, heads y * tile_heads and on. kColumns:
// through a tile, rows a multiple of 16. Dynamic shared memory: the tile's bytes with kColumns,
// then a row of dim floats for each warp.
template <typename A, bool kColumns>
__global__ void __launch_bounds__(kRopeThreads, 2) RopeNormBackwardKernel(
    RopeBackwardParams<A> p, const __grid_constant__ Rotation rotation, int lanes, int tile_heads) {
  extern __shared__ uint4 memory[];
  __shared__ uint32_t scratch[32];
  uint32_t* words = reinterpret_cast<uint32_t*>(memory);
  const QuantTile<kRopeTileRows> bytes(words, tile_heads * p.dim);
  float* shared_sums = reinterpret_cast<float*>(
      words + (kColumns ? QuantTile<kRopeTileRows>::Words(tile_heads * p.dim) : 0));
  const RopeBackwardTile tile = RopeBackwardTileOf(p, tile_heads);
  const int half = p.dim / 2;
  const bool e4m3 = p.quant.dtype == DType::kE4M3;
  const float scale = QuantScale(p.quant);
  uint32_t amax = 0;
  const auto sink = [&](int r, int tile_col, int64_t at, const Pairs& v) {
    if (p.quant.empty()) {
      return;
    }
    amax = RaiseMagnitude(RaiseMagnitude(amax, v.lo), v.hi);
    const uint2 lo = QuantizePack(v.lo, scale, e4m3);
    const uint2 hi = QuantizePack(v.hi, scale, e4m3);
    if (p.quant.rows != nullptr) {
      StoreQuantRow(p.quant, at, lo);
      StoreQuantRow(p.quant, at + half, hi);
    }
    if constexpr (kColumns) {
      bytes.Put(r, tile_col, lo);
      bytes.Put(r, tile_col + half, hi);
    } else if (p.quant.columns != nullptr) {
      const int64_t col = int64_t{tile.first} * p.dim + tile_col;
      ScatterBytes(p.quant.columns, p.rows, tile.row0 + r, col, lo);
      ScatterBytes(p.quant.columns, p.rows, tile.row0 + r, col + half, hi);
    }
  };
  RopeBackwardHeads<A, true>(p, rotation, lanes, tile, shared_sums, sink);
  if constexpr (kColumns) {
    __syncthreads();
    bytes.WriteColumns(p.quant.columns, p.rows, tile.row0, static_cast<int64_t>(tile.first) * p.dim,
                       tile.rows, tile.heads * p.dim);
  }
  if (p.quant.amax != nullptr) {
    RaiseAmaxOfBlock(p.quant.amax, amax, scratch);
  }
}

// With block-scaled forms, for heads of which 128 columns are a whole number. Block (x, y): rows
// 128 x and on, columns 128 y and on. Dynamic shared memory: the tile, then a row of dim floats for
// each warp (with a norm).
template <typename A, bool kNorm, BlockLayout kLayout>
__global__ void __launch_bounds__(kRopeThreads, 2)
    RopeBackwardBlocksKernel(const __grid_constant__ RopeBackwardParams<A> p,
                             const __grid_constant__ BlockQuantView blocks,
                             const __grid_constant__ Rotation rotation,
                             int lanes) {
  static_assert(kRopeThreads == kBlockThreads && kRopeTileRows == kBlockTile);
  extern __shared__ uint4 memory[];
  BlockTile<A>& values = *reinterpret_cast<BlockTile<A>*>(memory);
  float* shared_sums = reinterpret_cast<float*>(&values + 1);
  const RopeBackwardTile tile = RopeBackwardTileOf(p, kBlockTile / p.dim);
  const int half = p.dim / 2;
  // Zeros beyond the tensor.
  if (tile.rows < kBlockTile || tile.heads * p.dim < kBlockTile) {
    for (int at = threadIdx.x; at < BlockTile<A>::kWords; at += kRopeThreads) {
      values.words[at] = 0;
    }
    __syncthreads();
  }
  uint32_t largest = 0;
  const auto sink = [&](int r, int tile_col, int64_t, const Pairs& v) {
    const Raw8<A> lo = PackRaw8<A>(v.lo);
    const Raw8<A> hi = PackRaw8<A>(v.hi);
    largest = RaiseMagnitude(RaiseMagnitude(largest, lo), hi);
    values.Put(r, tile_col, lo);
    values.Put(r, tile_col + half, hi);
  };
  RopeBackwardHeads<A, kNorm>(p, rotation, lanes, tile, shared_sums, sink);
  __syncthreads();
  const BlockPlace place = {p.rows, p.width, tile.row0, static_cast<int64_t>(tile.first) * p.dim,
                            tile.row0 == 0 && tile.first == 0};
  WriteBlockForms<A, kLayout>(blocks, place, MagnitudeOf<A>(largest), values);
}

inline constexpr int kRopeAnyPairs = kMaxHeadDim / 2 / 32;  // of a lane

// A lane's values of one row of d_out, turned back; `at`: of the head in the row.
template <typename A>
__device__ __forceinline__ void LoadTurnedBack(const RopeBackwardParams<A>& p,
                                               const Rotation& rotation,
                                               bool turned,
                                               int64_t row,
                                               int64_t at,
                                               float (&d)[2][kRopeAnyPairs]) {
  const int lane = threadIdx.x % 32;
  const int lo = (p.dim + 1) / 2;
#pragma unroll
  for (int j = 0; j < kRopeAnyPairs; ++j) {
    const int i = lane + j * 32;
    d[0][j] = i < lo ? ToFloat(p.d_out[at + i]) : 0.0F;
    d[1][j] = i + lo < p.dim ? ToFloat(p.d_out[at + i + lo]) : 0.0F;
    if (rotation.enabled && turned && i < lo) {
      float c;
      float s;
      CosSin<A>(rotation.turns[i], rotation.positions[row], c, s);
      RotatePair(c, -s, d[0][j], d[1][j]);
    }
  }
}

// A warp's sums over its tile of rows, of one head.
template <typename A>
__device__ __forceinline__ void StoreRopeSums(const RopeBackwardParams<A>& p,
                                              int64_t tile,
                                              int head,
                                              const float (&sums)[2][kRopeAnyPairs]) {
  const int lane = threadIdx.x % 32;
  const int lo = (p.dim + 1) / 2;
#pragma unroll
  for (int j = 0; j < kRopeAnyPairs; ++j) {
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      const int col = lane + j * 32 + part * lo;
      if (lane + j * 32 < lo && col < p.dim) {
        p.partial[(tile * p.rotated + head) * p.dim + col] = sums[part][j];
      }
    }
  }
}

// Any head size up to kMaxHeadDim and any alignment: a warp takes kRopeTileRows rows of one head.
// Pairs are (i, i + lo), as in forward.
template <typename A>
__global__ void __launch_bounds__(kRopeAnyThreads)
    RopeBackwardAnyKernel(RopeBackwardParams<A> p, const __grid_constant__ Rotation rotation) {
  constexpr int kPairs = kRopeAnyPairs;
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
    LoadTurnedBack(p, rotation, turned, row, at, d);
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      const int i = lane + j * 32;
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
    StoreRopeSums(p, tile, head, sums);
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
  // A word more a row, so that the stores of a warp and the reads by columns do not share banks.
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
