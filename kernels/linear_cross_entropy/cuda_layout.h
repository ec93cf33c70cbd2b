// How the CUDA version of the head cuts its tokens and its workspace.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/gemm/gemm.h"
#include "kernels/linear_cross_entropy/linear_cross_entropy.h"

namespace hearth::kernels::cuda {

inline constexpr int64_t kHeadLogitsBytes = int64_t{1} << 30;
inline constexpr int64_t kHeadChunkMultiple = 128;

// Offsets in bytes.
struct HeadLayout {
  int64_t chunk = 0;   // tokens
  int64_t padded = 0;  // V_padded: columns of the logits
  size_t nll = 0;      // f64 [N]
  size_t unscale = 0;  // f32: reciprocal of the scale of d_logits
  size_t logits = 0;   // A [chunk, padded]
  size_t rows = 0;     // quant.d_logits [chunk, padded]
  size_t columns = 0;  // quant.d_logits [padded, chunk]
  size_t gemm = 0;     // of the products
  size_t bytes = 0;
};

// Chunks of one size, as equal as multiples of 128 allow: each size is a plan of its own.
inline int64_t HeadChunk(const LinearCrossEntropyArgs& args, int64_t padded) {
  const int64_t tokens = std::max<int64_t>(1, args.hidden.rows());
  if (args.chunk > 0) {
    return std::min(tokens, args.chunk);
  }
  const int64_t row_bytes = DTypeBytes(args.hidden.dtype, padded);
  const int64_t most =
      std::max(kHeadChunkMultiple, kHeadLogitsBytes / std::max<int64_t>(1, row_bytes) /
                                       kHeadChunkMultiple * kHeadChunkMultiple);
  const int64_t chunks = (tokens + most - 1) / most;
  const int64_t even = (tokens + chunks - 1) / chunks;
  return std::min(tokens,
                  (even + kHeadChunkMultiple - 1) / kHeadChunkMultiple * kHeadChunkMultiple);
}

inline HeadLayout HeadLayoutOf(const LinearCrossEntropyArgs& args) {
  HeadLayout layout;
  layout.padded = args.weight.rows();
  layout.chunk = HeadChunk(args, layout.padded);
  const bool quantised = !args.quant.empty() && !(args.d_hidden.empty() && args.d_weight.empty());
  const int64_t elements = layout.chunk * layout.padded;
  const auto take = [&](size_t bytes) {
    const size_t at = layout.bytes;
    layout.bytes += (bytes + 255) / 256 * 256;
    return at;
  };
  layout.nll = take(DTypeBytes(DType::kF64, args.hidden.rows()));
  layout.unscale = take(sizeof(float));
  layout.logits = take(DTypeBytes(args.hidden.dtype, elements));
  layout.rows = take(quantised ? static_cast<size_t>(elements) : 0);
  layout.columns = take(quantised ? static_cast<size_t>(elements) : 0);
  layout.gemm = take(kGemmWorkspaceBytes);
  return layout;
}

}  // namespace hearth::kernels::cuda
