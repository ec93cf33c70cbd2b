// Forward, and backward where there is no norm: the main path (rotation.cuh). Included by
// qk_norm_rope.cu alone.
#pragma once

#include "kernels/cuda/launch.cuh"
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
  int block_rows;  // of a tile that a block takes, at most kRopeRows
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

// The part of a tile that a thread has: 8 pairs of one head, in kRopeTurns rows of the tile.
struct RopePlace {
  int i;         // first pair, and column of the head's first half
  int slot;      // of the head among the block's
  int first;     // first head of the block
  int head;      // the thread's
  int tile_row;  // its first row of the tile
  int tile_rows;
  int64_t row0;  // first row of the tile
  int64_t at;    // of pair i in the thread's first row
  int64_t step;  // from one of the thread's rows to the next
  bool mine;     // it has values of its own
  bool turned;   // which are normed or rotated
};
template <typename A, bool kNorm>
__device__ __forceinline__ RopePlace
RopePlaceOf(const RopeParams<A>& p, bool rotates, int lane_bits, uint32_t groups) {
  constexpr int kRowsAtOnce = kRopeThreads / kRopeRowThreads;
  const int lanes = 1 << lane_bits;
  const int slots = kRopeRowThreads >> lane_bits;
  RopePlace me;
  me.i = (threadIdx.x & (lanes - 1)) * 8;
  me.slot = threadIdx.x % kRopeRowThreads >> lane_bits;
  me.first = static_cast<int>(blockIdx.x % groups) * slots;
  me.head = me.first + me.slot;
  me.row0 = static_cast<int64_t>(blockIdx.x / groups) * p.block_rows;
  me.tile_rows = static_cast<int>(min(p.rows - me.row0, static_cast<int64_t>(p.block_rows)));
  me.tile_row = threadIdx.x / kRopeRowThreads;
  me.mine = me.head < p.total && me.i < p.dim / 2;
  me.turned = me.head < p.rotated && (kNorm || rotates);
  me.at = (me.row0 + me.tile_row) * p.width + me.head * p.dim + me.i;
  me.step = p.width * kRowsAtOnce;
  return me;
}

// A thread's pairs, zeros beyond the tensor, and with a norm their weights.
template <typename A, bool kNorm>
__device__ __forceinline__ void LoadRopePairs(const RopeParams<A>& p,
                                              const RopePlace& me,
                                              Raw8<A> (&lo)[kRopeTurns<A>],
                                              Raw8<A> (&hi)[kRopeTurns<A>],
                                              Raw8<A> (&weight)[2]) {
  const int half = p.dim / 2;
#pragma unroll
  for (int j = 0; j < kRopeTurns<A>; ++j) {
    if (me.mine && me.tile_row + j * (kRopeThreads / kRopeRowThreads) < me.tile_rows) {
      lo[j] = LoadRaw8(p.in + me.at + j * me.step);
      hi[j] = LoadRaw8(p.in + me.at + j * me.step + half);
    } else {
      lo[j] = {};
      hi[j] = {};
    }
  }
  if (kNorm && me.mine && me.turned) {
    const A* from = (me.head < p.heads ? p.q_weight : p.k_weight) + me.i;
    weight[0] = LoadRaw8(from);
    weight[1] = LoadRaw8(from + half);
  }
}

// 1 / the root mean square of the head that `lanes` lanes hold 16 values of each.
template <typename A>
__device__ __forceinline__ float HeadRstd(
    const Raw8<A>& lo, const Raw8<A>& hi, int lanes, int dim, float eps) {
  float sum = 0.0F;
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    const float a = ValueOf(lo, k);
    const float b = ValueOf(hi, k);
    sum += a * a + b * b;
  }
  sum = GroupSum(sum, lanes);
  return 1.0F / sqrtf(sum / static_cast<float>(dim) + eps);
}

// 16 values of row `r` of the tile in FP8; `at`: of the first half's in memory.
template <typename A>
__device__ __forceinline__ void QuantizeRopePairs(const RopeParams<A>& p,
                                                  const RopePlace& me,
                                                  const QuantTile<kRopeRows<A>>& tile,
                                                  bool tiled,
                                                  float scale,
                                                  int r,
                                                  int64_t at,
                                                  const Raw8<A>& lo,
                                                  const Raw8<A>& hi) {
  const int half = p.dim / 2;
  const bool e4m3 = p.quant.dtype == DType::kE4M3;
#pragma unroll
  for (int part = 0; part < 2; ++part) {
    float v[8];
    Unpack(part == 0 ? lo : hi, v);
    const uint2 bytes = QuantizePack(v, scale, e4m3);
    if (p.quant.rows != nullptr) {
      StoreQuantRow(p.quant, at + part * half, bytes);
    }
    if (tiled) {
      tile.Put(r, me.slot * p.dim + me.i + part * half, bytes);
    } else if (p.quant.columns != nullptr) {
      ScatterBytes(p.quant.columns, p.rows, me.row0 + r, me.head * p.dim + me.i + part * half,
                   bytes);
    }
  }
}

// Block t: tile t / groups of block_rows rows, group t % groups of heads; thread: 8 pairs of one
// head in kRopeTurns rows. `tiled`: quant.columns through a tile, rows a multiple of 16. Dynamic
// shared memory: RopeTileBytes. Launched in turn (launch.cuh).
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
  const RopePlace me = RopePlaceOf<A, kNorm>(p, rotation.enabled, lane_bits, groups);
  TakeTurn();
  Raw8<A> lo[kTurns];
  Raw8<A> hi[kTurns];
  Raw8<A> weight[2] = {};
  // Before the angles: the values are on their way while those are computed.
  LoadRopePairs<A, kNorm>(p, me, lo, hi, weight);
  if (rotation.enabled && me.first < p.rotated) {
    FillAngles<A>(rotation, me.row0, me.tile_rows, half, p.sign, cosines, sines);
    __syncthreads();
  }
  const QuantTile<kRopeRows<A>> tile(words, slots * p.dim);
  const float scale = kQuant ? QuantScale(p.quant) : 1.0F;
  uint32_t amax = 0;
#pragma unroll
  for (int j = 0; j < kTurns; ++j) {
    const int r = me.tile_row + j * kRowsAtOnce;
    const bool live = me.mine && r < me.tile_rows;
    float rstd = 1.0F;
    if constexpr (kNorm) {
      // All lanes of the head take part in its sum; those without values hold zeros.
      rstd = HeadRstd<A>(lo[j], hi[j], lanes, p.dim, p.eps);
      if (live && me.turned && me.i == 0) {
        p.rstd[(me.row0 + r) * p.rotated + me.head] = rstd;
      }
    }
    if (live && me.turned) {
      const int angle = r * AngleStride(half) + me.i;
      NormAndRotate<A, kNorm>(weight, rstd, rotation.enabled, cosines + angle, sines + angle, lo[j],
                              hi[j]);
    }
    // In place, what is not turned is there already.
    if (live && p.out != nullptr && (me.turned || p.out != p.in)) {
      StoreRaw8(p.out + me.at + j * me.step, lo[j]);
      StoreRaw8(p.out + me.at + j * me.step + half, hi[j]);
    }
    if (kQuant && live) {
      amax = RaiseMagnitude(RaiseMagnitude(amax, lo[j]), hi[j]);
      if (p.quant.has_values()) {
        QuantizeRopePairs(p, me, tile, tiled, scale, r, me.at + j * me.step, lo[j], hi[j]);
      }
    }
  }
  if (kQuant && tiled) {
    __syncthreads();
    tile.WriteColumns(p.quant.columns, p.rows, me.row0, static_cast<int64_t>(me.first) * p.dim,
                      me.tile_rows, min(slots, p.total - me.first) * p.dim);
  }
  if (kQuant && p.quant.amax != nullptr) {
    RaiseAmaxOfBlock(p.quant.amax, MagnitudeOf<A>(amax), scratch);
  }
}

// Shared memory of a block, for angles and, if `tiled`, bytes of `cols` columns.
template <typename A>
inline size_t RopeTileBytes(int dim, int cols, bool tiled) {
  const size_t angles = sizeof(float) * 2 * kRopeRows<A> * AngleStride(dim / 2);
  return angles + (tiled ? sizeof(uint32_t) * QuantTile<kRopeRows<A>>::Words(cols) : 0);
}

}  // namespace hearth::kernels::cuda
