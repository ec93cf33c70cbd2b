// The norms' gradient with block-scaled outputs (block_tile.cuh). A strip of 128 rows belongs to a
// cluster, as in norm_blocks.cuh: first each of its blocks takes whole rows, with the bits of
// NormBackwardKernel, and writes their dx; then, when the cluster has met, whole tiles of that dx,
// which it reads from the L2 cache. A cluster takes strips in turn, so that few blocks have partial
// sums of the gradients of weight and bias. Those sums are in shared memory, so that the registers
// are free for the blocks.
#pragma once

#include <algorithm>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/norm/norm_blocks.cuh"

namespace hearth::kernels::cuda {

// Registers are left for so many blocks of a multiprocessor: with what they sum, three fit only
// with bf16 and one gradient.
template <typename A, bool kCentred>
constexpr int NormGradientResidentBlocks() {
  const int fit = ResidentBlocks<A>(1);
  const int most = sizeof(A) == 2 && !kCentred ? 3 : 2;
  return fit < most ? fit : most;
}

// What a block's threads sum, each for its columns of the rows that it holds, [gradient, pack, half
// a pack, thread]: a thread's own until StoreNormSums.
__device__ __forceinline__ float4* NormSumsOf(float4* sums, int packs, int gradient, int pack) {
  return sums + (gradient * packs + pack) * 2 * kNormThreads + threadIdx.x;
}

// sums += a * b, of the pack whose sums are at `at`.
__device__ __forceinline__ void AddProducts(float4* at, const float (&a)[8], const float (&b)[8]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float4 sum = at[half * kNormThreads];
    sum.x = fmaf(a[4 * half], b[4 * half], sum.x);
    sum.y = fmaf(a[4 * half + 1], b[4 * half + 1], sum.y);
    sum.z = fmaf(a[4 * half + 2], b[4 * half + 2], sum.z);
    sum.w = fmaf(a[4 * half + 3], b[4 * half + 3], sum.w);
    at[half * kNormThreads] = sum;
  }
}
__device__ __forceinline__ void AddValues(float4* at, const float (&a)[8]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float4 sum = at[half * kNormThreads];
    sum.x += a[4 * half];
    sum.y += a[4 * half + 1];
    sum.z += a[4 * half + 2];
    sum.w += a[4 * half + 3];
    at[half * kNormThreads] = sum;
  }
}

// partial[blockIdx.x, col] = what the block's threads have summed for `col`, in the order of slots.
// After a barrier.
__device__ __forceinline__ void StoreNormSums(const NormShape& shape,
                                              float4* sums,
                                              int gradient,
                                              float* partial) {
  const float* of =
      reinterpret_cast<const float*>(sums + gradient * shape.packs * 2 * kNormThreads);
  const int width = shape.packs * kNormStep;  // of a warp
  const int slots = kNormWarps / shape.warps;
  for (int col = threadIdx.x; col < shape.cols; col += kNormThreads) {
    const int half = col % width / kNormStep * 2 + col % 8 / 4;
    const int thread = col / width * 32 + col % kNormStep / 8;
    const float* from = of + (half * kNormThreads + thread) * 4 + col % 4;
    float total = 0.0F;
    for (int slot = 0; slot < slots; ++slot) {
      total += from[slot * shape.warps * 32 * 4];
    }
    partial[static_cast<int64_t>(blockIdx.x) * shape.cols + col] = total;
  }
}

// dx of this block's share of the rows row0, .., row0 + rows - 1, and what they add to `sums`.
template <typename A, int V, bool kCentred>
__device__ __forceinline__ void NormGradientOfStrip(const NormBackwardParams<A>& p,
                                                    int64_t row0,
                                                    int rows,
                                                    int rank,
                                                    int ranks,
                                                    float* scratch,
                                                    float4* sums) {
  const int cols = p.shape.cols;
  const NormThread<V> me(p.shape);
  RowSums row_sum(p.shape, scratch);
#pragma unroll 1
  for (int r = rank * me.slots + me.slot; r < rows; r += ranks * me.slots) {
    const int64_t row = row0 + r;
    const int64_t begin = row * cols;
    Raw8<A> dy[V];
    Raw8<A> s[V];
    LoadNormRow<true>(p.dy + begin, me, cols, dy);
    LoadNormRow<true>(p.s + begin, me, cols, s);
    if (p.d_sum != nullptr) {
      // Wanted last: until then it needs no registers in L2.
#pragma unroll
      for (int i = 0; i < V; ++i) {
        const int col = me.col + i * kNormStep;
        if (col < cols) {
          asm volatile("prefetch.global.L2 [%0];" ::"l"(p.d_sum + begin + col));
        }
      }
    }
    const float rstd = p.rstd[row];
    const float mean = kCentred ? p.mean[row] : 0.0F;
    float dot;
    float total;
    NormGradientSums<A, V, kCentred>(
        dy, s, me, cols, p.weight, mean, rstd, row_sum,
        [&](int i, const float(&d)[8], const float(&normalized)[8]) {
          AddProducts(NormSumsOf(sums, V, 0, i), d, normalized);
          if constexpr (kCentred) {
            AddValues(NormSumsOf(sums, V, 1, i), d);
          }
        },
        dot, total);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const int col = me.col + i * kNormStep;
      if (col < cols) {
        float v[8] = {};
        if (p.d_sum != nullptr) {
          Unpack(LoadRaw8Once(p.d_sum + begin + col), v);
        }
        StoreRaw8(p.dx + begin + col, NormGradientPack<A, kCentred>(dy[i], s[i], p.weight + col,
                                                                    mean, rstd, dot, total, v));
      }
    }
  }
}

// The 128 columns from col0 on of the strip of x into `tile`, zeros beyond the tensor. The largest
// magnitude, as RaiseMagnitude of packs.
template <typename A>
__device__ __forceinline__ uint32_t
TileFromL2(const A* x, int64_t row0, int rows, int col0, int cols, BlockTile<A>& tile) {
  constexpr int kPacks = kBlockTile / 8;
  constexpr int kRowsAtOnce = kBlockThreads / kPacks;
  constexpr int kBatch = 16 / static_cast<int>(sizeof(A));
  const int tile_col = threadIdx.x % kPacks * 8;
  const int col = col0 + tile_col;
  const int end = col < cols ? rows : 0;
  uint32_t largest = 0;
#pragma unroll 1
  for (int first = threadIdx.x / kPacks; first < kBlockTile; first += kBatch * kRowsAtOnce) {
    Raw8<A> in[kBatch];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int r = first + b * kRowsAtOnce;
      in[b] = {};
      if (r < end) {
        in[b] = LoadRaw8FromL2(x + (row0 + r) * cols + col);
      }
    }
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      largest = RaiseMagnitude(largest, in[b]);
      tile.Put(first + b * kRowsAtOnce, tile_col, in[b]);
    }
  }
  return largest;
}

// Block b: rank b % ranks of cluster b / ranks, which takes the strips of that number and every
// (gridDim.x / ranks)th from there; there are no fewer strips than clusters. packs is 1 to 4.
template <typename A, bool kCentred, BlockLayout kLayout>
__global__ void __launch_bounds__(kNormThreads, (NormGradientResidentBlocks<A, kCentred>()))
    NormBackwardBlocksKernel(const __grid_constant__ NormBackwardParams<A> p,
                             const __grid_constant__ BlockQuantView blocks,
                             int ranks) {
  __shared__ float scratch[2 * kNormWarps];
  BlockTile<A>& tile = *reinterpret_cast<BlockTile<A>*>(norm_shared);
  float4* sums = reinterpret_cast<float4*>(&tile + 1);
  const int rank = static_cast<int>(blockIdx.x) % ranks;
  for (int i = 0; i < (kCentred ? 2 : 1) * p.shape.packs * 2; ++i) {
    sums[i * kNormThreads + threadIdx.x] = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
  }
  const int64_t step = static_cast<int64_t>(gridDim.x) / ranks * kBlockTile;
#pragma unroll 1
  for (int64_t row0 = static_cast<int64_t>(blockIdx.x) / ranks * kBlockTile; row0 < p.shape.rows;
       row0 += step) {
    const int rows = static_cast<int>(min(p.shape.rows - row0, int64_t{kBlockTile}));
    switch (p.shape.packs) {
      case 1:
        NormGradientOfStrip<A, 1, kCentred>(p, row0, rows, rank, ranks, scratch, sums);
        break;
      case 2:
        NormGradientOfStrip<A, 2, kCentred>(p, row0, rows, rank, ranks, scratch, sums);
        break;
      case 3:
        NormGradientOfStrip<A, 3, kCentred>(p, row0, rows, rank, ranks, scratch, sums);
        break;
      default:
        NormGradientOfStrip<A, 4, kCentred>(p, row0, rows, rank, ranks, scratch, sums);
        break;
    }
    // The cluster's blocks have written whole rows of dx; from here each takes tiles of 128
    // columns, which others wrote, and reads them back from the L2 cache.
    MeetCluster();
#pragma unroll 1
    for (int col0 = rank * kBlockTile; col0 < p.shape.cols; col0 += ranks * kBlockTile) {
      const uint32_t largest = TileFromL2<A>(p.dx, row0, rows, col0, p.shape.cols, tile);
      __syncthreads();
      const BlockPlace place = {p.shape.rows, p.shape.cols, row0, col0, row0 == 0 && col0 == 0};
      WriteBlockForms<A, kLayout>(blocks, place, MagnitudeOf<A>(largest), tile);
      __syncthreads();
    }
  }
  if (p.weight_partial != nullptr) {
    StoreNormSums(p.shape, sums, 0, p.weight_partial);
  }
  if (kCentred && p.bias_partial != nullptr) {
    StoreNormSums(p.shape, sums, 1, p.bias_partial);
  }
}

// Runs the kernel and sets p's partial sums; `partials`: of how many blocks they are.
template <typename A, bool kCentred, BlockLayout kLayout>
absl::Status RunNormBackwardBlocks(const Exec& exec,
                                   const BlockQuantView& blocks,
                                   const TensorView& d_weight,
                                   const TensorView& d_bias,
                                   const char* op,
                                   NormBackwardParams<A>& p,
                                   int64_t& partials) {
  const auto kernel = NormBackwardBlocksKernel<A, kCentred, kLayout>;
  const auto bytes = static_cast<int>(
      NormGradientBlocksBytes(static_cast<int64_t>(sizeof(A)), p.shape.cols, kCentred ? 2 : 1));
  HEARTH_CUDA_RETURN_IF_ERROR(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  HEARTH_CUDA_RETURN_IF_ERROR(cudaFuncSetAttribute(
      kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared));
  // The workspace has room for so many partial sums, one for each block.
  const int64_t room = NormPartials(p.shape.rows);
  HEARTH_ASSIGN_OR_RETURN(const int64_t ranks,
                          ClusterBlocks(kernel, std::min(NormClusterBlocks(p.shape.cols), room)));
  cudaLaunchAttribute cluster = {};
  cudaLaunchConfig_t config =
      ClusterLaunch(exec, ranks, kNormThreads, static_cast<size_t>(bytes), cluster);
  // All clusters at once, and as even as may be.
  const int64_t strips = CeilDiv(p.shape.rows, kBlockTile);
  HEARTH_ASSIGN_OR_RETURN(const int64_t fit, ClustersAtOnce(exec, kernel, config, ranks));
  const int64_t most = std::min({strips, fit, room / ranks});
  const int64_t clusters = CeilDiv(strips, CeilDiv(strips, most));
  partials = clusters * ranks;
  config.gridDim = dim3(static_cast<unsigned>(partials));
  PlaceNormPartials(exec, d_weight, d_bias, partials, p);
  HEARTH_CUDA_RETURN_IF_ERROR(
      cudaLaunchKernelEx(&config, kernel, p, blocks, static_cast<int>(ranks)));
  return HEARTH_CUDA_LAUNCHED(op);
}

// For p.shape.rows > 0; p.shape is that of the same rows without block forms.
template <typename A, bool kCentred>
absl::Status LaunchNormBackwardBlocks(const Exec& exec,
                                      NormBackwardParams<A> p,
                                      const BlockQuantView& blocks,
                                      const TensorView& d_weight,
                                      const TensorView& d_bias,
                                      const char* op) {
  constexpr auto kValueBytes = static_cast<int64_t>(sizeof(A));
  static_assert(NormGradientBlocksBytes(kValueBytes, 0, 0) == sizeof(BlockTile<A>));
  static_assert(kNormStaticBytes == 2 * kNormWarps * sizeof(float));
  if (p.shape.packs == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(op, ": block forms of a gradient of ", p.shape.cols, " columns, at most ",
                     kNormMaxCols, ", or of operands that are not aligned to 16 bytes"));
  }
  if (!NormGradientBlocksFit(exec, kValueBytes, p.shape.cols, kCentred ? 2 : 1)) {
    return absl::UnimplementedError(
        absl::StrCat(op, ": block forms of a gradient of ", p.shape.cols, " columns on a GPU with ",
                     exec.cuda->gpu().shared_memory_bytes, " bytes of shared memory for a block"));
  }
  int64_t partials = 0;
  HEARTH_RETURN_IF_ERROR(VisitLayout(blocks.layout, [&](auto layout) {
    return RunNormBackwardBlocks<A, kCentred, decltype(layout)::value>(exec, blocks, d_weight,
                                                                       d_bias, op, p, partials);
  }));
  return AddNormGradients(exec, p, d_weight, d_bias, partials, op);
}

}  // namespace hearth::kernels::cuda
