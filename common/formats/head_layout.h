// How a GPU cuts the output projection with its loss into chunks of tokens, and the scratch that
// this takes. kernels/linear_cross_entropy lays its workspace out so, and plans count with it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "common/formats/dtype.h"
#include "common/formats/product_scratch.h"

namespace hearth::formats {

// A chunk's logits take at most this, if a chunk of kHeadChunkMultiple tokens does.
inline constexpr int64_t kHeadLogitsBytes = int64_t{1} << 30;
inline constexpr int64_t kHeadChunkMultiple = 128;

struct HeadShape {
  int64_t tokens = 1;          // N, of a micro-batch
  int64_t padded = 0;          // V_padded: columns of the logits
  DType dtype = DType::kBF16;  // of the logits
  bool fp8_gradient = false;   // their gradient is kept by rows and by columns, in 8 bits
  int64_t chunk = 0;           // tokens of a chunk; 0: HeadChunk chooses
};

// Tokens of a chunk: all chunks have one size, as equal as multiples of 128 allow, because each
// size is a plan of its own. The last one may be shorter.
inline int64_t HeadChunk(const HeadShape& shape) {
  const int64_t tokens = std::max<int64_t>(1, shape.tokens);
  if (shape.chunk > 0) {
    return std::min(tokens, shape.chunk);
  }
  const int64_t row_bytes = std::max<int64_t>(1, DTypeBytes(shape.dtype, shape.padded));
  const int64_t most = std::max(
      kHeadChunkMultiple, kHeadLogitsBytes / row_bytes / kHeadChunkMultiple * kHeadChunkMultiple);
  const int64_t chunks = (tokens + most - 1) / most;
  const int64_t even = (tokens + chunks - 1) / chunks;
  return std::min(tokens,
                  (even + kHeadChunkMultiple - 1) / kHeadChunkMultiple * kHeadChunkMultiple);
}

// Offsets in bytes, all multiples of 256.
struct HeadLayout {
  int64_t chunk = 0;   // tokens
  int64_t padded = 0;  // V_padded: columns of the logits
  size_t nll = 0;      // f64 [N]
  size_t unscale = 0;  // f32: reciprocal of the scale of the logits' gradient
  size_t logits = 0;   // [chunk, padded]
  size_t rows = 0;     // their gradient in 8 bits, [chunk, padded]
  size_t columns = 0;  // the same, [padded, chunk]
  size_t gemm = 0;     // of the products
  size_t bytes = 0;
};

inline HeadLayout HeadLayoutOf(const HeadShape& shape) {
  HeadLayout layout;
  layout.padded = shape.padded;
  layout.chunk = HeadChunk(shape);
  const int64_t elements = layout.chunk * layout.padded;
  const auto take = [&](int64_t bytes) {
    const size_t at = layout.bytes;
    layout.bytes += static_cast<size_t>((bytes + 255) / 256 * 256);
    return at;
  };
  layout.nll = take(DTypeBytes(DType::kF64, shape.tokens));
  layout.unscale = take(sizeof(float));
  layout.logits = take(DTypeBytes(shape.dtype, elements));
  layout.rows = take(shape.fp8_gradient ? elements : 0);
  layout.columns = take(shape.fp8_gradient ? elements : 0);
  layout.gemm = take(kProductScratchBytes);
  return layout;
}

}  // namespace hearth::formats
