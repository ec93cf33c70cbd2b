// Scratch memory of the CUDA version's sums over the rows of a token, of fixed size for a shape.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hearth::kernels {

// Rows of one token are summed in tiles of this many of the rows sorted by token; a frequent token
// has many tiles, summed side by side and then in order.
inline constexpr int kSegmentTile = 32;

// Bytes, each a multiple of 256: keys, sorted keys, rows, sorted rows (`pairs` each), then the
// sort's own memory, then two sums a tile (`sums` each).
struct SegmentScratch {
  size_t pairs = 0;
  size_t sort = 0;
  size_t sums = 0;

  size_t total() const { return 4 * pairs + sort + 2 * sums; }
};

inline SegmentScratch SegmentScratchOf(int64_t rows, int64_t cols) {
  const auto align = [](int64_t bytes) { return static_cast<size_t>((bytes + 255) / 256 * 256); };
  SegmentScratch scratch;
  scratch.pairs = align(rows * 4);
  // CUB's radix sort keeps one more copy of the pairs (8 bytes each), 1 KiB for each block of at
  // least 1024 pairs, and a few KiB of counters.
  scratch.sort = align(rows * 10 + 65536);
  scratch.sums = align((rows + kSegmentTile - 1) / kSegmentTile * cols * 4);
  return scratch;
}

}  // namespace hearth::kernels
