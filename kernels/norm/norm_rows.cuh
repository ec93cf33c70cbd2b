// How the norms' kernels share out rows, and how a row's values come to its threads: asked for one
// row ahead, so that every block always has reads under way, also while it writes columns.
#pragma once

#include "kernels/cuda/quant_tile.cuh"

namespace hearth::kernels::cuda {

inline constexpr int kNormThreads = 256;
inline constexpr int kNormWarps = kNormThreads / 32;
inline constexpr int kNormMaxPacks = 4;  // of a row, a thread
inline constexpr int kNormTileRows = 64;

// Where a thread's packs are: a warp has kNormStep times as many consecutive columns of a row as a
// thread has packs, a thread every 256th pack of 8, so that their distances are constants.
inline constexpr int kNormStep = 256;

// How rows lie in registers and blocks; the same for all blocks of a launch. Blocks take tiles in
// turn: first `full_tiles` of tile_rows, as many for each block, then the remaining rows in tiles
// of last_rows, which even out the end. Tiles are multiples of the rows that a block's warps hold
// at once.
struct NormShape {
  int64_t rows = 0;
  int64_t full_tiles = 0;
  int64_t blocks = 0;
  int cols = 0;
  int warps = 1;  // a row; a power of two
  int packs = 0;  // a thread; 0: the kernels of norm_values.cuh
  int tile_rows = 0;
  int last_rows = 0;
  int tile_bytes = 0;  // shared memory of the transposed copy: none without columns
  int shared_bytes = 0;
  bool staged = false;
};

struct NormTile {
  int64_t row0;
  int rows;  // some may be behind the last one
};
__device__ __forceinline__ NormTile NormTileOf(const NormShape& shape, int64_t index) {
  if (index < shape.full_tiles) {
    return {index * shape.tile_rows, shape.tile_rows};
  }
  return {shape.full_tiles * shape.tile_rows + (index - shape.full_tiles) * shape.last_rows,
          shape.last_rows};
}

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

// Sums over the warps of a row, in a fixed order; those of other rows do not wait.
class RowSums {
 public:
  // `scratch`: 2 * kNormWarps.
  __device__ __forceinline__ RowSums(const NormShape& shape, float* scratch)
      : warps_(shape.warps), scratch_(scratch) {}

  // Every thread of the row calls it.
  __device__ __forceinline__ float operator()(float v) {
    v = WarpSum(v);
    if (warps_ > 1) {
      // Two scratches in turn: a thread that writes one again has met all that have read it at the
      // barrier of the other.
      turn_ ^= kNormWarps;
      const int warp = threadIdx.x / 32;
      const int first = warp / warps_ * warps_;
      if (threadIdx.x % 32 == 0) {
        scratch_[turn_ + warp] = v;
      }
      Meet(warp / warps_);
      v = 0.0F;
      for (int i = 0; i < warps_; ++i) {
        v += scratch_[turn_ + first + i];
      }
    }
    return v;
  }

 private:
  // The warps of the row in slot 0 to 3. Numbers are constants, so that a block has 5 barriers (0
  // is that of __syncthreads) and not all 16, of which there are few on a multiprocessor.
  __device__ __forceinline__ void Meet(int slot) const {
    const int threads = warps_ * 32;
    switch (slot) {
      case 0:
        asm volatile("bar.sync 1, %0;" ::"r"(threads) : "memory");
        break;
      case 1:
        asm volatile("bar.sync 2, %0;" ::"r"(threads) : "memory");
        break;
      case 2:
        asm volatile("bar.sync 3, %0;" ::"r"(threads) : "memory");
        break;
      default:
        asm volatile("bar.sync 4, %0;" ::"r"(threads) : "memory");
        break;
    }
  }

  int warps_;
  float* scratch_;
  int turn_ = 0;
};

extern __shared__ __align__(16) uint32_t norm_shared[];

// What is read by all rows and written by no one.
template <typename T>
__device__ __forceinline__ Raw8<T> LoadConstant(const T* from) {
  return LoadRaw8With(from, [](const uint4* at) { return __ldg(at); });
}

// To where nobody reads soon: leaves the L2 cache first, before columns whose lines are not whole.
template <typename T>
__device__ __forceinline__ void StoreStreaming(T* to, const Raw8<T>& raw) {
#pragma unroll
  for (int k = 0; k < static_cast<int>(sizeof(T)) / 2; ++k) {
    __stcs(reinterpret_cast<uint4*>(to) + k,
           make_uint4(raw.words[4 * k], raw.words[4 * k + 1], raw.words[4 * k + 2],
                      raw.words[4 * k + 3]));
  }
}

// Packs of a thread's next row on their way to shared memory. A thread reads back only what it
// asked for itself, so there is no barrier. Where shared memory is too small (`staged` is false)
// Ask does nothing and Take reads global memory.
// kWhole: it is staged, and every pack lies within the row.
template <typename A, int V, bool kWhole = false>
class NormStage {
  static constexpr int kChunks = sizeof(A) / 2;  // of 16 bytes, a pack
  static constexpr int kChunkBytes = kNormThreads * 16;

 public:
  // Shared memory a block.
  static constexpr __host__ __device__ int Bytes(int operands) {
    return operands * V * kChunks * kChunkBytes;
  }

  __device__ __forceinline__ explicit NormStage(const NormShape& shape)
      : staged_(kWhole || shape.staged),
        at_(reinterpret_cast<const uint8_t*>(norm_shared) + shape.tile_bytes + threadIdx.x * 16),
        to_(static_cast<uint32_t>(__cvta_generic_to_shared(at_))) {}

  // The packs of the row at `row` from column `col`; those that are not `inside` become zero.
  __device__ __forceinline__ void Ask(
      int operand, const A* row, bool inside, int col, int cols) const {
    if (!kWhole && !staged_) {
      return;
    }
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const int bytes = inside && (kWhole || col + i * kNormStep < cols) ? 16 : 0;
#pragma unroll
      for (int k = 0; k < kChunks; ++k) {
        const A* from = row + col + i * kNormStep + k * 8 / kChunks;
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                         to_ + ((operand * V + i) * kChunks + k) * kChunkBytes),
                     "l"(from), "r"(bytes)
                     : "memory");
      }
    }
  }
  // Ends a group of what was asked for.
  __device__ __forceinline__ static void EndGroup() {
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
  // Until all groups but the last kLater are there.
  template <int kLater>
  __device__ __forceinline__ static void Wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kLater) : "memory");
  }

  // Pack i, which Ask had at row + col + i * kNormStep.
  __device__ __forceinline__ Raw8<A> Take(
      int operand, int i, const A* row, bool inside, int col, int cols) const {
    Raw8<A> raw = {};
    if (!kWhole && !staged_) {
      if (inside && col + i * kNormStep < cols) {
        raw = LoadRaw8(row + col + i * kNormStep);
      }
      return raw;
    }
#pragma unroll
    for (int k = 0; k < kChunks; ++k) {
      const uint4 words =
          *reinterpret_cast<const uint4*>(at_ + ((operand * V + i) * kChunks + k) * kChunkBytes);
      raw.words[4 * k] = words.x;
      raw.words[4 * k + 1] = words.y;
      raw.words[4 * k + 2] = words.z;
      raw.words[4 * k + 3] = words.w;
    }
    return raw;
  }

 private:
  bool staged_;
  const uint8_t* at_;
  uint32_t to_;
};

}  // namespace hearth::kernels::cuda
