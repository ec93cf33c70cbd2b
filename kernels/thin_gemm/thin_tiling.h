// How a thin product is divided among the blocks of a GPU. No CUDA here: tests on the CPU look at
// it, too.
//
// A block has some rows of the weight and a slice of K, which comes in stages by a ring in shared
// memory. The blocks that share rows are a cluster. All blocks run at once, so none waits for
// another to end and all end at about the same time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

namespace hearth::kernels {

inline constexpr int kThinThreads = 256;
inline constexpr int kThinDepth = 64;            // of K in a stage: rows of 128 bytes
inline constexpr int kThinMostStages = 8;        // of a ring
inline constexpr int kThinMostGroupStages = 12;  // of one of groups
inline constexpr int kThinMostSplits = 8;  // blocks of a cluster that every GPU with clusters takes
inline constexpr int kThinGroupTokens = 64;  // of a warpgroup's product, and of its kernel
inline constexpr int kThinAlignment = 1024;  // of a stage in shared memory

// A kernel: up to so many rows of x, and a block's rows of w.
struct ThinTile {
  int tokens = 0;
  int rows = 0;
  // A warpgroup multiplies (thin_groups.cuh), and a warp more fills the ring. Else kThinThreads do
  // both (thin_warps.cuh).
  bool groups = false;

  constexpr int threads() const { return groups ? 128 + 32 : kThinThreads; }
  // Warps that divide the rows, without groups.
  constexpr int warps_of_rows() const { return rows / 32; }
  // Warps with the same rows, each with a part of every stage's depth.
  constexpr int warps_of_depth() const { return kThinThreads / 32 / warps_of_rows(); }
  constexpr int stage_bytes() const { return (rows + tokens) * kThinDepth * 2; }
  // Floats from a token's sums to the next one's: what lanes write of them lies in all banks.
  constexpr int pitch() const { return groups ? rows + (40 - rows % 32) % 32 : rows + 4; }
  // The sums, which lie where the ring was: those of each warp, or of the block.
  constexpr int sum_bytes() const { return (groups ? 1 : warps_of_depth()) * tokens * pitch() * 4; }
  // The ring, and then the sums.
  constexpr int ring_bytes(int stages) const {
    return std::max(stages * stage_bytes(), sum_bytes());
  }
  constexpr int most_stages() const { return groups ? kThinMostGroupStages : kThinMostStages; }
  // A stage is full, and with groups it may be empty.
  constexpr int barrier_bytes() const { return most_stages() * (groups ? 16 : 8); }
  // Sums of squares of rows of x: of each warp's part of them, or of the block's.
  constexpr int squares() const { return groups ? tokens : warps_of_depth() * tokens; }
  constexpr int fixed_bytes() const { return barrier_bytes() + squares() * 4; }
  // Blocks of a multiprocessor that the registers are enough for.
  constexpr int most_resident() const { return groups || tokens > 16 ? 2 : 3; }

  friend constexpr bool operator==(const ThinTile& a, const ThinTile& b) {
    return a.tokens == b.tokens && a.rows == b.rows && a.groups == b.groups;
  }
};

// In the order in which they are tried. More rows of w read x less often from the L2 cache, where
// it is about as large as a block's rows.
inline constexpr ThinTile kThinTiles[] = {{16, 64}, {32, 64}, {32, 128}, {64, 64}, {64, 128}};
// Those of groups, for more than 32 rows of x. The cheapest division is taken.
inline constexpr int kThinGroupRows[] = {32, 40, 64, 80};

struct ThinShape {
  int64_t tokens = 0;  // M
  int64_t width = 0;   // columns of y
  int64_t depth = 0;   // K
  bool swiglu = false;
  bool norm = false;  // of x, fused
};

struct ThinGpu {
  int64_t multiprocessors = 0;
  int64_t shared_bytes = 0;  // a block may opt in to; a multiprocessor has 1 KiB more
  bool groups = false;       // its warpgroups multiply from shared memory, as the program knows
};

struct ThinTiling {
  ThinTile tile;
  int64_t tiles = 0;   // of w's rows
  int64_t slices = 0;  // stages of K in all
  int splits = 1;      // blocks that divide them
  int stages = 0;      // of the ring
  bool norm = false;

  constexpr int64_t blocks() const { return tiles * splits; }
  constexpr int64_t longest() const { return (slices + splits - 1) / splits; }
  // Stages [first(r), first(r + 1)) are those of block r of a cluster.
  constexpr int64_t first(int rank) const { return slices * rank / splits; }
  // The norm's weights, behind the ring.
  constexpr int norm_bytes() const {
    return norm ? static_cast<int>(longest()) * kThinDepth * 2 : 0;
  }
  // Dynamic ones, with what aligning the ring takes, and all.
  constexpr int shared_bytes() const {
    return kThinAlignment + tile.ring_bytes(stages) + norm_bytes();
  }
  constexpr int block_bytes() const { return shared_bytes() + tile.fixed_bytes(); }
};

// `tile_rows`, `splits`: as ThinGemmArgs has them. None: the GPU cannot run it, or not all of its
// blocks at once.
std::optional<ThinTiling> TileThinGemm(const ThinShape& shape,
                                       const ThinGpu& gpu,
                                       int tile_rows = 0,
                                       int splits = 0);

}  // namespace hearth::kernels
