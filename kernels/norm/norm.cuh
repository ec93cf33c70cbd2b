// RMSNorm and LayerNorm (kCentred) are the same kernels: a row is held in the registers of 1, 2, 4
// or 8 warps, 8 values a pack, so that memory is read once; a block of 8 warps takes tiles of rows,
// whose transposed FP8 copy goes through shared memory. norm_rows.cuh has what moves the rows,
// norm_arithmetic.cuh what is computed of one, norm_values.cuh the kernels for other rows,
// norm_launch.cuh chooses.
#pragma once

#include <type_traits>

#include "kernels/cuda/launch.cuh"
#include "kernels/norm/norm_arithmetic.cuh"

namespace hearth::kernels::cuda {

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

// A thread's packs of a row, rounded to the plain format, to the quantised outputs: `r` is the row
// within the tile, `first` the column of the first pack, `begin` of the row.
template <typename A, int V, bool kWhole>
__device__ __forceinline__ void QuantizeNormPacks(const QuantView& quant,
                                                  const QuantTile<kNormTileRows>& tile,
                                                  int64_t begin,
                                                  int r,
                                                  int first,
                                                  int cols,
                                                  float scale,
                                                  const Raw8<A> (&packs)[V],
                                                  uint32_t& amax) {
  if (quant.amax != nullptr) {
    // Packs beyond the row are zeros.
#pragma unroll
    for (int i = 0; i < V; ++i) {
      amax = RaiseMagnitude(amax, packs[i]);
    }
  }
  if (quant.scale == nullptr) {
    return;
  }
  const auto store = [&](auto format) {
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const int col = first + i * kNormStep;
      if (kWhole || col < cols) {
        float v[8];
        Unpack(packs[i], v);
        const uint2 bytes = QuantizePack<decltype(format)::value>(v, scale);
        if (quant.rows != nullptr) {
          StoreQuantRow(quant, begin + col, bytes);
        }
        if (quant.columns != nullptr) {
          tile.Put(r, col, bytes);
        }
      }
    }
  };
  // One branch for all packs, so that they are worked on side by side.
  if (quant.dtype == DType::kE4M3) {
    store(std::integral_constant<__nv_fp8_interpretation_t, __NV_E4M3>());
  } else {
    store(std::integral_constant<__nv_fp8_interpretation_t, __NV_E5M2>());
  }
}

// Blocks that a multiprocessor has room for: enough bytes under way, and few enough registers.
template <typename A>
constexpr int kNormForwardBlocks = sizeof(A) == 2 ? 3 : 2;
inline constexpr int kNormBackwardBlocks = 2;

// The bytes of a whole tile by columns: between two barriers, so that no thread writes the tile
// while others read it.
__device__ __forceinline__ void WriteNormColumns(const QuantView& quant,
                                                 const QuantTile<kNormTileRows>& tile,
                                                 const NormShape& shape,
                                                 const NormTile& here) {
  __syncthreads();
  const int rows = static_cast<int>(min(shape.rows - here.row0, int64_t{here.rows}));
  tile.WriteColumns(quant.columns, shape.rows, here.row0, 0, rows, shape.cols);
  __syncthreads();
}

// A thread's packs of s: x as it was staged, or its sum with the residual, which is stored too.
// `begin`: of the row.
template <typename A, int V, bool kWhole>
__device__ __forceinline__ void TakeNormInput(const NormForwardParams<A>& p,
                                              const NormStage<A, V, kWhole>& stage,
                                              const NormThread<V>& me,
                                              int64_t begin,
                                              bool inside,
                                              Raw8<A> (&s)[V]) {
  const int cols = p.shape.cols;
#pragma unroll
  for (int i = 0; i < V; ++i) {
    s[i] = stage.Take(0, i, p.x + begin, inside, me.col, cols);
  }
  if (p.residual != nullptr) {
#pragma unroll
    for (int i = 0; i < V; ++i) {
      // The sum is rounded before it is normalised: what backward reads is then what forward has
      // used.
      s[i] = AddPacks<A>(s[i], stage.Take(1, i, p.residual + begin, inside, me.col, cols));
      if (inside && (kWhole || me.col + i * kNormStep < cols)) {
        StoreStreaming(p.sum + begin + me.col + i * kNormStep, s[i]);
      }
    }
  }
}

// y of a row to memory and to its quantised forms.
template <typename A, int V, bool kCentred, bool kWhole>
__device__ __forceinline__ void WriteNormOutput(const NormForwardParams<A>& p,
                                                const NormThread<V>& me,
                                                const QuantTile<kNormTileRows>& tile,
                                                int64_t begin,
                                                int r,
                                                const Raw8<A> (&s)[V],
                                                float mean,
                                                float rstd,
                                                float scale,
                                                uint32_t& amax) {
  const int cols = p.shape.cols;
  Raw8<A> y[V] = {};
#pragma unroll
  for (int i = 0; i < V; ++i) {
    const int col = me.col + i * kNormStep;
    if (kWhole || col < cols) {
      y[i] = NormalizePack<A, kCentred>(s[i], mean, rstd, p.weight, p.bias, col);
      if (p.y != nullptr) {
        StoreRaw8(p.y + begin + col, y[i]);
      }
    }
  }
  if constexpr (kHasForms<A>) {
    QuantizeNormPacks<A, V, kWhole>(p.quant, tile, begin, r, me.col, cols, scale, y, amax);
  }
}

// kWhole: rows are staged, and are as long as the packs of their warps.
template <typename A, int V, bool kCentred, bool kWhole>
__global__ void __launch_bounds__(kNormThreads, kNormForwardBlocks<A>)
    NormForwardKernel(const NormForwardParams<A> p) {
  __shared__ float scratch[2 * kNormWarps];
  __shared__ uint32_t amax_scratch[32];
  const NormShape& shape = p.shape;
  const NormThread<V> me(shape);
  const NormStage<A, V, kWhole> stage(shape);
  const QuantTile<kNormTileRows> tile(norm_shared, shape.cols);
  RowSums row_sum(shape, scratch);
  // Weights are read after the statistics: on the way while the kernel before still runs.
#pragma unroll
  for (int i = 0; i < V; ++i) {
    if (kWhole || me.col + i * kNormStep < shape.cols) {
      PrefetchToL2(p.weight + me.col + i * kNormStep);
    }
  }
  TakeTurn();
  const float scale = QuantScale(p.quant);
  const auto ask = [&](int64_t row) {
    stage.Ask(0, p.x + row * shape.cols, row < shape.rows, me.col, shape.cols);
    if (p.residual != nullptr) {
      stage.Ask(1, p.residual + row * shape.cols, row < shape.rows, me.col, shape.cols);
    }
    stage.EndGroup();
  };
  uint32_t amax = 0;
  NormTile here = NormTileOf(shape, blockIdx.x);
  ask(here.row0 + me.slot);
  for (int64_t index = blockIdx.x; here.row0 < shape.rows;) {
    index += gridDim.x;
    const NormTile next = NormTileOf(shape, index);
    // here.rows is a multiple of the slots: all warps make as many turns and meet at barriers.
    for (int r = me.slot; r < here.rows; r += me.slots) {
      const int64_t row = here.row0 + r;
      const bool inside = row < shape.rows;
      const int64_t begin = row * shape.cols;
      Raw8<A> s[V];
      // One row is in flight at a time, so waiting for all groups waits for that row.
      stage.template Wait<0>();
      TakeNormInput(p, stage, me, begin, inside, s);
      // The next row is on its way while this one is computed. At the end of a tile it is the first
      // row of the next tile.
      ask(r + me.slots < here.rows ? row + me.slots : next.row0 + me.slot);
      float mean;
      float rstd;
      NormStatistics<A, V, kCentred, kWhole>(s, me, shape.cols, p.eps, row_sum, mean, rstd);
      if (inside && me.col == 0 && p.rstd != nullptr) {
        p.rstd[row] = rstd;
        if constexpr (kCentred) {
          p.mean[row] = mean;
        }
      }
      if (inside) {
        WriteNormOutput<A, V, kCentred, kWhole>(p, me, tile, begin, r, s, mean, rstd, scale, amax);
      }
    }
    if (kHasForms<A> && p.quant.columns != nullptr) {
      WriteNormColumns(p.quant, tile, shape, here);
    }
    here = next;
  }
  if (kHasForms<A> && p.quant.amax != nullptr) {
    RaiseAmaxOfBlock(p.quant.amax, MagnitudeOf<A>(amax), amax_scratch);
  }
}

// partial[blockIdx.x, col] = sum of the block's threads that hold `col`, in the order of slots.
template <int V>
__device__ __forceinline__ void StorePartial(const float (&sums)[V][8],
                                             const NormThread<V>& me,
                                             int cols,
                                             float* partial) {
  float* shared = reinterpret_cast<float*>(norm_shared);
  // One slot after the other: without atomics the sum has the same bits in each run.
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

// A row's share of the parameters' gradients.
template <bool kCentred>
__device__ __forceinline__ void AddNormSums(const float (&d)[8],
                                            const float (&normalized)[8],
                                            float (&weight_sum)[8],
                                            float (&bias_sum)[8]) {
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    weight_sum[k] = fmaf(d[k], normalized[k], weight_sum[k]);
    if constexpr (kCentred) {
      bias_sum[k] += d[k];
    }
  }
}

// The row that a thread works on in backward.
struct NormGradientRow {
  int64_t begin;  // of the row in dx
  int r;          // in the tile
  bool inside;    // the row exists
  float mean;
  float rstd;
  float dot;
  float total;
};

// Asks for dy and s of a row one turn ahead, and reads its statistics.
template <typename A, int V, bool kCentred, bool kWhole>
__device__ __forceinline__ void AskNormGradient(const NormBackwardParams<A>& p,
                                                const NormStage<A, V, kWhole>& stage,
                                                const NormThread<V>& me,
                                                int64_t row,
                                                float& mean,
                                                float& rstd) {
  const int cols = p.shape.cols;
  const bool inside = row < p.shape.rows;
  stage.Ask(0, p.dy + row * cols, inside, me.col, cols);
  stage.Ask(1, p.s + row * cols, inside, me.col, cols);
  stage.EndGroup();
  rstd = inside ? p.rstd[row] : 0.0F;
  mean = kCentred && inside ? p.mean[row] : 0.0F;
}

// Packs of dx that are worked on side by side, as many as there are registers for.
template <int V, bool kWhole>
inline constexpr int kNormSideBySide = kWhole&& V < 4 ? V : 1;

// A row's dx to memory and to its quantised forms.
template <typename A, int V, bool kCentred, bool kWhole>
__device__ __forceinline__ void WriteNormGradient(const NormBackwardParams<A>& p,
                                                  const NormStage<A, V, kWhole>& stage,
                                                  const NormThread<V>& me,
                                                  const QuantTile<kNormTileRows>& tile,
                                                  const NormGradientRow& row,
                                                  const Raw8<A> (&dy)[V],
                                                  const Raw8<A> (&s)[V],
                                                  float scale,
                                                  uint32_t& amax) {
  constexpr int kPacks = kNormSideBySide<V, kWhole>;
  const int cols = p.shape.cols;
  if (!row.inside) {
    return;
  }
#pragma unroll
  for (int first = 0; first < V; first += kPacks) {
    const int col = me.col + first * kNormStep;
    if (!kWhole && col >= cols) {
      continue;
    }
    Raw8<A> dx[kPacks] = {};
    if (p.d_sum != nullptr) {
#pragma unroll
      for (int i = 0; i < kPacks; ++i) {
        dx[i] = stage.Take(2, first + i, p.d_sum + row.begin, row.inside, me.col, cols);
      }
    }
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      float v[8];
      Unpack(dx[i], v);
      dx[i] =
          NormGradientPack<A, kCentred>(dy[first + i], s[first + i], p.weight + col + i * kNormStep,
                                        row.mean, row.rstd, row.dot, row.total, v);
    }
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      A* const to = p.dx + row.begin + col + i * kNormStep;
      if (p.quant.has_values()) {
        StoreStreaming(to, dx[i]);
      } else {
        StoreRaw8(to, dx[i]);
      }
    }
    if constexpr (kHasForms<A>) {
      QuantizeNormPacks<A, kPacks, true>(p.quant, tile, row.begin, row.r, col, cols, scale, dx,
                                         amax);
    }
  }
}

// What a block has summed over all its rows.
template <typename A, int V, bool kCentred>
__device__ __forceinline__ void StoreNormSums(const NormBackwardParams<A>& p,
                                              const NormThread<V>& me,
                                              const float (&weight_sums)[V][8],
                                              const float (&bias_sums)[V][8]) {
  if (p.weight_partial != nullptr) {
    StorePartial(weight_sums, me, p.shape.cols, p.weight_partial);
  }
  if (kCentred && p.bias_partial != nullptr) {
    StorePartial(bias_sums, me, p.shape.cols, p.bias_partial);
  }
}

template <typename A, int V, bool kCentred, bool kWhole>
__global__ void __launch_bounds__(kNormThreads, kNormBackwardBlocks)
    NormBackwardKernel(const NormBackwardParams<A> p) {
  __shared__ float scratch[2 * kNormWarps];
  __shared__ uint32_t amax_scratch[32];
  const NormShape& shape = p.shape;
  const NormThread<V> me(shape);
  const NormStage<A, V, kWhole> stage(shape);
  const QuantTile<kNormTileRows> tile(norm_shared, shape.cols);
  RowSums row_sum(shape, scratch);
  const float scale = QuantScale(p.quant);
  float next_rstd = 0.0F;
  float next_mean = 0.0F;
  const auto ask = [&](int64_t row) {
    AskNormGradient<A, V, kCentred, kWhole>(p, stage, me, row, next_mean, next_rstd);
  };
  // Read last and asked for last: it needs no registers.
  const auto ask_d_sum = [&](int64_t row) {
    if (p.d_sum != nullptr) {
      stage.Ask(2, p.d_sum + row * shape.cols, row < shape.rows, me.col, shape.cols);
    }
    stage.EndGroup();
  };
  float weight_sums[V][8] = {};
  float bias_sums[V][8] = {};
  uint32_t amax = 0;
  NormTile here = NormTileOf(shape, blockIdx.x);
  ask(here.row0 + me.slot);
  ask_d_sum(here.row0 + me.slot);
  for (int64_t index = blockIdx.x; here.row0 < shape.rows;) {
    index += gridDim.x;
    const NormTile next = NormTileOf(shape, index);
    for (int r = me.slot; r < here.rows; r += me.slots) {
      const int64_t row = here.row0 + r;
      const int64_t next_row = r + me.slots < here.rows ? row + me.slots : next.row0 + me.slot;
      NormGradientRow here_row = {row * shape.cols, r, row < shape.rows, next_mean, next_rstd};
      Raw8<A> dy[V];
      Raw8<A> s[V];
      // The newest group is d_sum's, so dy and s of this row are there.
      stage.template Wait<1>();
#pragma unroll
      for (int i = 0; i < V; ++i) {
        dy[i] = stage.Take(0, i, p.dy + here_row.begin, here_row.inside, me.col, shape.cols);
        s[i] = stage.Take(1, i, p.s + here_row.begin, here_row.inside, me.col, shape.cols);
      }
      ask(next_row);
      NormGradientSums<A, V, kCentred, kWhole>(
          dy, s, me, shape.cols, p.weight, here_row.mean, here_row.rstd, row_sum,
          [&](int i, const float(&d)[8], const float(&normalized)[8]) {
            AddNormSums<kCentred>(d, normalized, weight_sums[i], bias_sums[i]);
          },
          here_row.dot, here_row.total);
      stage.template Wait<1>();
      WriteNormGradient<A, V, kCentred, kWhole>(p, stage, me, tile, here_row, dy, s, scale, amax);
      ask_d_sum(next_row);
    }
    if (kHasForms<A> && p.quant.columns != nullptr) {
      WriteNormColumns(p.quant, tile, shape, here);
    }
    here = next;
  }
  // Zeros for rows that do not exist may still be on their way to where partial sums go now.
  stage.template Wait<0>();
  StoreNormSums<A, V, kCentred>(p, me, weight_sums, bias_sums);
  if (kHasForms<A> && p.quant.amax != nullptr) {
    RaiseAmaxOfBlock(p.quant.amax, MagnitudeOf<A>(amax), amax_scratch);
  }
}

}  // namespace hearth::kernels::cuda
