// Layouts of blocks: which elements share a scale, in which format that scale is, and where it lies
// in memory. Job specs, plans and kernels ask the row; nothing else knows a layout by its numbers.
// C++17, for CUDA files too: device code asks for rows only in constant expressions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <type_traits>

#include "common/formats/dtype.h"

namespace hearth::formats {

// In the order of kBlockLayouts.
enum class BlockLayout : uint8_t { kMxfp8, kNvfp4, kFp8Block };

struct BlockLayoutRow {
  BlockLayout layout;
  const char* name;
  bool fp4;     // values are E2M1; else E4M3 or E5M2
  int length;   // elements under one scale along the axis a product sums over: 16, 32, 64 or 128
  bool square;  // weights may have one scale for length x length elements
  DType scale_dtype;  // of the blocks' scales
  // Its range asks for a scale of the tensor too, from the magnitudes of earlier steps.
  bool tensor_scale;
};

inline constexpr BlockLayoutRow kBlockLayouts[] = {
    {BlockLayout::kMxfp8, "mxfp8", false, 32, false, DType::kE8M0, false},
    {BlockLayout::kNvfp4, "nvfp4", true, 16, true, DType::kE4M3, true},
    {BlockLayout::kFp8Block, "fp8_block", false, 128, true, DType::kF32, false},
};
inline constexpr size_t kBlockLayoutCount = std::size(kBlockLayouts);

constexpr const BlockLayoutRow& RowOf(BlockLayout layout) {
  return kBlockLayouts[static_cast<size_t>(layout)];
}

// Whether blocks of the layout hold values of this format.
constexpr bool HoldsValues(const BlockLayoutRow& row, DType dtype) {
  return row.fp4 ? dtype == DType::kE2M1 : dtype == DType::kE4M3 || dtype == DType::kE5M2;
}

// Blocks of a line of `extent` elements; the last may be shorter.
constexpr int64_t BlocksOf(const BlockLayoutRow& row, int64_t extent) {
  return (extent + row.length - 1) / row.length;
}

// cuBLASLt's order of block scales (also CUTLASS's on SM100 and SM120): tiles of 512 bytes, 128
// rows by 4 blocks, one row of tiles after the other. cuBLAS 13 documentation, "1D block scaling
// factors layout"; CUTLASS media/docs/cpp/blackwell_functionality.md.
constexpr int64_t SwizzledScaleOffset(int64_t row, int64_t block, int64_t blocks) {
  const int64_t tile = row / 128 * ((blocks + 3) / 4) + block / 4;
  return tile * 512 + row % 32 * 16 + row % 128 / 32 * 4 + block % 4;
}

// Bytes of the scales of `rows` rows of `blocks` blocks: padded to 128 x 4.
constexpr int64_t SwizzledScaleBytes(int64_t rows, int64_t blocks) {
  return (rows + 127) / 128 * ((blocks + 3) / 4) * 512;
}

// Whether a scale is wider than a byte. Those lie in cuBLASLt's order of fp32 scales (VEC128_32F):
// the first block's of all lines, then the second's, each padded to whole 16 bytes.
constexpr bool WideScales(const BlockLayoutRow& row) {
  return DTypeBits(row.scale_dtype) > 8;
}
constexpr int64_t PaddedScaleLines(int64_t lines, int64_t scale_bytes) {
  const int64_t whole = 16 / scale_bytes;
  return (lines + whole - 1) / whole * whole;
}

// The scales of a form of `lines` lines of `extent` elements: the bytes of all, and where that of
// block `block` of a line begins.
constexpr int64_t BlockScaleBytes(BlockLayout layout, int64_t lines, int64_t extent) {
  const int64_t blocks = BlocksOf(RowOf(layout), extent);
  const int64_t bytes = DTypeBytes(RowOf(layout).scale_dtype, 1);
  return WideScales(RowOf(layout)) ? bytes * PaddedScaleLines(lines, bytes) * blocks
                                   : SwizzledScaleBytes(lines, blocks);
}
constexpr int64_t BlockScaleOffset(
    BlockLayout layout, int64_t line, int64_t block, int64_t lines, int64_t extent) {
  const int64_t bytes = DTypeBytes(RowOf(layout).scale_dtype, 1);
  return WideScales(RowOf(layout))
             ? bytes * (block * PaddedScaleLines(lines, bytes) + line)
             : SwizzledScaleOffset(line, block, BlocksOf(RowOf(layout), extent));
}

// f(std::integral_constant<BlockLayout, layout>()), so that code is compiled for each row.
template <size_t kIndex = 0, typename F>
auto VisitLayout(BlockLayout layout, const F& f) {
  constexpr BlockLayout kLayout = kBlockLayouts[kIndex].layout;
  if constexpr (kIndex + 1 < kBlockLayoutCount) {
    if (layout != kLayout) {
      return VisitLayout<kIndex + 1>(layout, f);
    }
  }
  return f(std::integral_constant<BlockLayout, kLayout>());
}

}  // namespace hearth::formats
