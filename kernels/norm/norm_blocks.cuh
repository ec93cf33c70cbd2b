// The norms with block-scaled outputs (block_tile.cuh). A strip of 128 rows belongs to a cluster of
// up to eight blocks of threads: first each takes whole rows, as NormForwardKernel does and with
// its bits, for the sums and the statistics, then, when the cluster has met, whole tiles of 128
// columns, which it reads from the L2 cache, where the cluster has just put them.
#pragma once

#include "absl/strings/str_cat.h"
#include "kernels/cuda/block_tile.cuh"
#include "kernels/cuda/cluster.cuh"
#include "kernels/norm/norm.cuh"
#include "kernels/norm/norm_launch.cuh"

namespace hearth::kernels::cuda {

static_assert(kNormThreads == kBlockThreads);
// Past L1: written by another block of the cluster.
template <typename T>
__device__ __forceinline__ Raw8<T> LoadRaw8FromL2(const T* from) {
  return LoadRaw8With(from, [](const uint4* at) { return __ldcg(at); });
}

// A thread's packs of the row at `row`. kOnce: nobody reads them again.
template <bool kOnce, typename A, int V>
__device__ __forceinline__ void LoadNormRow(const A* row,
                                            const NormThread<V>& me,
                                            int cols,
                                            Raw8<A> (&out)[V]) {
#pragma unroll
  for (int i = 0; i < V; ++i) {
    const int col = me.col + i * kNormStep;
    out[i] = {};
    if (col < cols) {
      out[i] = kOnce ? LoadRaw8Once(row + col) : LoadRaw8(row + col);
    }
  }
}

// Sums and statistics of this block's share of the rows row0, .., row0 + rows - 1.
template <typename A, int V, bool kCentred>
__device__ __forceinline__ void NormShareOfStrip(
    const NormForwardParams<A>& p, int64_t row0, int rows, int rank, int ranks, float* scratch) {
  const int cols = p.shape.cols;
  const NormThread<V> me(p.shape);
  RowSums row_sum(p.shape, scratch);
#pragma unroll 1
  for (int r = rank * me.slots + me.slot; r < rows; r += ranks * me.slots) {
    const int64_t row = row0 + r;
    Raw8<A> s[V];
    // Kept in the caches: without a residual the tiles read x again.
    LoadNormRow<false>(p.x + row * cols, me, cols, s);
    if (p.residual != nullptr) {
      Raw8<A> add[V];
      LoadNormRow<false>(p.residual + row * cols, me, cols, add);
#pragma unroll
      for (int i = 0; i < V; ++i) {
        const int col = me.col + i * kNormStep;
        s[i] = AddPacks<A>(s[i], add[i]);
        if (col < cols) {
          StoreRaw8(p.sum + row * cols + col, s[i]);
        }
      }
    }
    float mean;
    float rstd;
    NormStatistics<A, V, kCentred>(s, me, cols, p.eps, row_sum, mean, rstd);
    if (me.col == 0) {
      p.rstd[row] = rstd;
      if constexpr (kCentred) {
        p.mean[row] = mean;
      }
    }
  }
}

// The 128 columns from col0 on of the strip into `tile`, zeros beyond the tensor, and to p.y if
// that is wanted. The largest magnitude, as RaiseMagnitude of packs.
template <typename A, bool kCentred>
__device__ __forceinline__ uint32_t NormTileOfStrip(
    const NormForwardParams<A>& p, int64_t row0, int rows, int col0, BlockTile<A>& tile) {
  constexpr int kPacks = kBlockTile / 8;
  constexpr int kRowsAtOnce = kBlockThreads / kPacks;
  constexpr int kBatch = 8 / static_cast<int>(sizeof(A));
  const int cols = p.shape.cols;
  const A* s = p.residual != nullptr ? p.sum : p.x;
  const int tile_col = threadIdx.x % kPacks * 8;
  const int col = col0 + tile_col;
  const int end = col < cols ? rows : 0;
  uint32_t largest = 0;
#pragma unroll 1
  for (int first = threadIdx.x / kPacks; first < kBlockTile; first += kBatch * kRowsAtOnce) {
    Raw8<A> in[kBatch];
    float mean[kBatch];
    float rstd[kBatch];
    // All loads of a batch are under way before the first is used: the latency of L2 is paid once a
    // batch.
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int64_t row = row0 + first + b * kRowsAtOnce;
      if (first + b * kRowsAtOnce < end) {
        in[b] = LoadRaw8FromL2(s + row * cols + col);
        mean[b] = kCentred ? __ldcg(p.mean + row) : 0.0F;
        rstd[b] = __ldcg(p.rstd + row);
      }
    }
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int r = first + b * kRowsAtOnce;
      Raw8<A> y = {};
      if (r < end) {
        const float centre = kCentred ? mean[b] : 0.0F;
        y = NormalizePack<A, kCentred>(in[b], centre, rstd[b], p.weight, p.bias, col);
        if (p.y != nullptr) {
          StoreRaw8(p.y + (row0 + r) * cols + col, y);
        }
        largest = RaiseMagnitude(largest, y);
      }
      tile.Put(r, tile_col, y);
    }
  }
  return largest;
}

// Block b: strip b / ranks, rank b % ranks of its cluster. rstd is present; packs is 1 to 4.
template <typename A, bool kCentred, BlockLayout kLayout>
__global__ void __launch_bounds__(kNormThreads, ResidentBlocks<A>(1))
    NormForwardBlocksKernel(const __grid_constant__ NormForwardParams<A> p,
                            const __grid_constant__ BlockQuantView blocks,
                            int ranks) {
  __shared__ float scratch[2 * kNormWarps];
  BlockTile<A>& tile = *reinterpret_cast<BlockTile<A>*>(norm_shared);
  const int rank = static_cast<int>(blockIdx.x) % ranks;
  const int64_t row0 = static_cast<int64_t>(blockIdx.x) / ranks * kBlockTile;
  const int rows = static_cast<int>(min(p.shape.rows - row0, int64_t{kBlockTile}));
  switch (p.shape.packs) {
    case 1:
      NormShareOfStrip<A, 1, kCentred>(p, row0, rows, rank, ranks, scratch);
      break;
    case 2:
      NormShareOfStrip<A, 2, kCentred>(p, row0, rows, rank, ranks, scratch);
      break;
    case 3:
      NormShareOfStrip<A, 3, kCentred>(p, row0, rows, rank, ranks, scratch);
      break;
    default:
      NormShareOfStrip<A, 4, kCentred>(p, row0, rows, rank, ranks, scratch);
      break;
  }
  // Tiles are columns of all the strip's rows, whose statistics other blocks of the cluster have
  // made.
  MeetCluster();
#pragma unroll 1
  for (int col0 = rank * kBlockTile; col0 < p.shape.cols; col0 += ranks * kBlockTile) {
    const uint32_t largest = NormTileOfStrip<A, kCentred>(p, row0, rows, col0, tile);
    __syncthreads();
    const BlockPlace place = {p.shape.rows, p.shape.cols, row0, col0, row0 == 0 && col0 == 0};
    WriteBlockForms<A, kLayout>(blocks, place, MagnitudeOf<A>(largest), tile);
    __syncthreads();
  }
}

// The kernel's clusters: no more blocks than tiles, and as even as may be.
inline int64_t NormClusterBlocks(int64_t cols) {
  const int64_t tiles = CeilDiv(cols, kBlockTile);
  return CeilDiv(tiles, CeilDiv(tiles, kMostClusterBlocks));
}

// For p.shape.rows > 0; p.shape is that of the same rows without block forms.
template <typename A, bool kCentred>
absl::Status LaunchNormForwardBlocks(const Exec& exec,
                                     const NormForwardParams<A>& p,
                                     const BlockQuantView& blocks,
                                     const char* op) {
  if (p.shape.packs == 0 || p.rstd == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(op, ": block forms without rstd, of ", p.shape.cols, " columns, at most ",
                     kNormMaxCols, ", or of operands that are not aligned to 16 bytes"));
  }
  const auto launch = [&](auto kernel) -> absl::Status {
    constexpr int kBytes = static_cast<int>(sizeof(BlockTile<A>));
    if (kBytes > 48 * 1024) {
      HEARTH_CUDA_RETURN_IF_ERROR(
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
    }
    HEARTH_ASSIGN_OR_RETURN(const int64_t ranks,
                            ClusterBlocks(kernel, NormClusterBlocks(p.shape.cols)));
    cudaLaunchAttribute cluster = {};
    cudaLaunchConfig_t config = ClusterLaunch(exec, ranks, kNormThreads, kBytes, cluster);
    config.gridDim = dim3(static_cast<unsigned>(CeilDiv(p.shape.rows, kBlockTile) * ranks));
    HEARTH_CUDA_RETURN_IF_ERROR(
        cudaLaunchKernelEx(&config, kernel, p, blocks, static_cast<int>(ranks)));
    return HEARTH_CUDA_LAUNCHED(op);
  };
  return VisitLayout(blocks.layout, [&](auto layout) {
    return launch(NormForwardBlocksKernel<A, kCentred, decltype(layout)::value>);
  });
}

}  // namespace hearth::kernels::cuda
