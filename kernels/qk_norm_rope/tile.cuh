// Forward, and backward where there is no norm: the main path (rotation.cuh). Included by
// qk_norm_rope.cu alone.
#pragma once

#include "kernels/cuda/quant_tile.cuh"
#include "kernels/qk_norm_rope/rotation.cuh"

namespace hearth::kernels::cuda {

inline constexpr int kRopeThreads = 256;
// Threads of one row of a tile: a tile is as many heads as they hold, 256 columns if head sizes are
// powers of two.
inline constexpr int kRopeRowThreads = 16;
// Rows that a thread has in flight, all that it has: 64 bytes of each head twice, or 128.
template <typename A>
inline constexpr int kRopeTurns = sizeof(A) == 2 ? 4 : 2;
template <typename A>
inline constexpr int kRopeRows = kRopeTurns<A>* kRopeThreads / kRopeRowThreads;

template <typename A>
struct RopeParams {
  const A* in;
  A* out;             // may be null (with quant) or `in`
  const A* q_weight;  // null: no norm
  const A* k_weight;
  float* rstd;
  QuantView quant;
  float sign;  // of the angles: -1 turns back
  int64_t rows;
  int64_t width;  // of a row
  int heads;
  int rotated;  // heads that are normed and rotated
  int total;    // heads that are written
  int dim;
  float eps;
};

// Eight bytes of one row to eight columns: where rows are not a multiple of 16.
__device__ __forceinline__ void ScatterBytes(
    void* columns, int64_t R, int64_t row, int64_t col, uint2 bytes) {
  uint8_t* to = static_cast<uint8_t*>(columns) + col * R + row;
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    to[k * R] = static_cast<uint8_t>((k < 4 ? bytes.x : bytes.y) >> (k % 4 * 8));
  }
}

// The angles of a tile, once for all its heads. Floats from row to row: `half` and four more, so
// that neither these stores nor the loads of two rows by a warp hit a bank twice.
constexpr int AngleStride(int half) {
  return half + 4;
}
template <typename A>
__device__ __forceinline__ void FillAngles(const Rotation& rotation,
                                           int64_t row0,
                                           int tile_rows,
                                           int half,
                                           float sign,
                                           float* cosines,
                                           float* sines) {
  // A warp has one group of pairs, so that it reads `turns` at one address.
  for (int task = threadIdx.x; task < kRopeRows<A> * half / 8; task += kRopeThreads) {
    const int r = task % kRopeRows<A>;
    const int first = task / kRopeRows<A> * 8;
    if (r < tile_rows) {
      const int64_t position = rotation.positions[row0 + r];
      float c[8];
      float s[8];
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        CosSin<A>(rotation.turns[first + k], position, c[k], s[k]);
        s[k] *= sign;
      }
      StoreFloats<8>(cosines + r * AngleStride(half) + first, c);
      StoreFloats<8>(sines + r * AngleStride(half) + first, s);
    }
  }
}

// What a thread does to a pack of the first half of a head and its partner.
template <typename A, bool kNorm>
__device__ __forceinline__ void NormAndRotate(const Raw8<A> (&weight)[2],
                                              float rstd,
                                              bool rotate,
                                              const float* cosines,
                                              const float* sines,
                                              Raw8<A>& lo,
                                              Raw8<A>& hi) {
#pragma unroll
  for (int first = 0; first < 8; first += 4) {
    float c[4];
    float s[4];
    if (rotate) {
      LoadFloats<4>(cosines + first, c);
      LoadFloats<4>(sines + first, s);
    }
#pragma unroll
    for (int k = first; k < first + 4; k += 2) {
      float a[2];
      float b[2];
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        a[n] = ValueOf(lo, k + n);
        b[n] = ValueOf(hi, k + n);
        if constexpr (kNorm) {
          a[n] = a[n] * rstd * ValueOf(weight[0], k + n);
          b[n] = b[n] * rstd * ValueOf(weight[1], k + n);
        }
        if (rotate) {
          RotatePair(c[k - first + n], s[k - first + n], a[n], b[n]);
        }
      }
      SetPair(lo, k, a[0], a[1]);
      SetPair(hi, k, b[0], b[1]);
    }
  }
}

// Block t: tile t / groups of rows, group t % groups of heads; thread: 8 pairs of one head in
// kRopeTurns rows. `tiled`: quant.columns through a tile, rows a multiple of 16. Dynamic shared
// memory: RopeTileBytes.
// tidy: allow(length): one pipeline, whose registers and barriers must be seen together
template <typename A, bool kNorm, bool kQuant>
__global__ void __launch_bounds__(kRopeThreads, kNorm ? 3 : 4)
    RopeTileKernel(RopeParams<A> p,
                   const __grid_constant__ Rotation rotation,
                   int lane_bits,
                   uint32_t groups,
                   bool tiled) {
  constexpr int kTurns = kRopeTurns<A>;
  constexpr int kRowsAtOnce = kRopeThreads / kRopeRowThreads;
  extern __shared__ uint4 memory[];
  __shared__ uint32_t scratch[32];
  const int half = p.dim / 2;
  float* cosines = reinterpret_cast<float*>(memory);
  float* sines = cosines + kRopeRows<A> * AngleStride(half);
  uint32_t* words = reinterpret_cast<uint32_t*>(sines + kRopeRows<A> * AngleStride(half));

  const int lanes = 1 << lane_bits;
  const int slots = kRopeRowThreads >> lane_bits;
  const int i = (threadIdx.x & (lanes - 1)) * 8;
  const int slot = threadIdx.x % kRopeRowThreads >> lane_bits;
  const int first = static_cast<int>(blockIdx.x % groups) * slots;
  const int head = first + slot;
  const int64_t row0 = static_cast<int64_t>(blockIdx.x / groups) * kRopeRows<A>;
  const int tile_rows = static_cast<int>(min(p.rows - row0, static_cast<int64_t>(kRopeRows<A>)));
  const int tile_row = threadIdx.x / kRopeRowThreads;
  const bool mine = head < p.total && i < half;
  const bool turned = head < p.rotated && (kNorm || rotation.enabled);
  const int64_t at = (row0 + tile_row) * p.width + head * p.dim + i;
  const int64_t step = p.width * kRowsAtOnce;

  Raw8<A> lo[kTurns];
  Raw8<A> hi[kTurns];
#pragma unroll
  for (int j = 0; j < kTurns; ++j) {
    if (mine && tile_row + j * kRowsAtOnce < tile_rows) {
      lo[j] = LoadRaw8(p.in + at + j * step);
      hi[j] = LoadRaw8(p.in + at + j * step + half);
    } else {
      lo[j] = {};
      hi[j] = {};
    }
  }
  Raw8<A> weight[2] = {};
  if constexpr (kNorm) {
    if (mine && turned) {
      const A* from = (head < p.heads ? p.q_weight : p.k_weight) + i;
      weight[0] = LoadRaw8(from);
      weight[1] = LoadRaw8(from + half);
    }
  }
  if (rotation.enabled && first < p.rotated) {
    FillAngles<A>(rotation, row0, tile_rows, half, p.sign, cosines, sines);
    __syncthreads();
  }
  const QuantTile<kRopeRows<A>> tile(words, slots * p.dim);
  const float scale = kQuant ? QuantScale(p.quant) : 1.0F;
  uint32_t amax = 0;
#pragma unroll
  for (int j = 0; j < kTurns; ++j) {
    const int r = tile_row + j * kRowsAtOnce;
    const bool live = mine && r < tile_rows;
    float rstd = 1.0F;
    if constexpr (kNorm) {
      float sum = 0.0F;
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        const float a = ValueOf(lo[j], k);
        const float b = ValueOf(hi[j], k);
        sum += a * a + b * b;
      }
      sum = GroupSum(sum, lanes);
      rstd = 1.0F / sqrtf(sum / static_cast<float>(p.dim) + p.eps);
      if (live && turned && i == 0) {
        p.rstd[(row0 + r) * p.rotated + head] = rstd;
      }
    }
    if (live && turned) {
      NormAndRotate<A, kNorm>(weight, rstd, rotation.enabled, cosines + r * AngleStride(half) + i,
                              sines + r * AngleStride(half) + i, lo[j], hi[j]);
    }
    // In place, what is not turned is there already.
    if (live && p.out != nullptr && (turned || p.out != p.in)) {
      StoreRaw8(p.out + at + j * step, lo[j]);
      StoreRaw8(p.out + at + j * step + half, hi[j]);
    }
    if constexpr (kQuant) {
      if (!live) {
        continue;
      }
      amax = RaiseMagnitude(RaiseMagnitude(amax, lo[j]), hi[j]);
      if (!p.quant.has_values()) {
        continue;
      }
      const bool e4m3 = p.quant.dtype == DType::kE4M3;
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        float v[8];
        Unpack(part == 0 ? lo[j] : hi[j], v);
        const uint2 bytes = QuantizePack(v, scale, e4m3);
        if (p.quant.rows != nullptr) {
          StoreQuantRow(p.quant, at + j * step + part * half, bytes);
        }
        if (tiled) {
          tile.Put(r, slot * p.dim + i + part * half, bytes);
        } else if (p.quant.columns != nullptr) {
          ScatterBytes(p.quant.columns, p.rows, row0 + r, head * p.dim + i + part * half, bytes);
        }
      }
    }
  }
  if constexpr (kQuant) {
    if (tiled) {
      __syncthreads();
      tile.WriteColumns(p.quant.columns, p.rows, row0, static_cast<int64_t>(first) * p.dim,
                        tile_rows, min(slots, p.total - first) * p.dim);
    }
    if (p.quant.amax != nullptr) {
      RaiseAmaxOfBlock(p.quant.amax, MagnitudeOf<A>(amax), scratch);
    }
  }
}

// Shared memory of a block, for angles and, if `tiled`, bytes of `cols` columns.
template <typename A>
inline size_t RopeTileBytes(int dim, int cols, bool tiled) {
  const size_t angles = sizeof(float) * 2 * kRopeRows<A> * AngleStride(dim / 2);
  return angles + (tiled ? sizeof(uint32_t) * QuantTile<kRopeRows<A>>::Words(cols) : 0);
}

}  // namespace hearth::kernels::cuda
