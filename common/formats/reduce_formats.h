// Formats in which ranks exchange the gradients that they sum (gradients.reduce_dtype). C++17, for
// CUDA files too.
//
// Every rank sums one part of the gradients: the others send it theirs of that part, and where all
// ranks need all sums, each then hands its own round.
//   fp32, bf16 : the transport sums what it carries
//   fp8        : E4M3, in blocks of 128 consecutive elements with one power of two each. A rank
//                adds all parts, its own too, in FP32 in the order of the ranks, and rounds the sum
//                to BF16. So the sums depend neither on who adds them nor on how the gradients are
//                cut, and each gradient is rounded to 3 bits once, before the sum.
#pragma once

#include <cstdint>
#include <string_view>

#include "common/formats/dtype.h"

namespace hearth::formats {

struct ReduceFormatRow {
  std::string_view name;  // in the job file
  DType part;             // of what a rank sends to the one that sums it
  DType sum;              // of the sums; ranks hand them round so
  int block;              // elements of a part under one scale (kE8M0); 0: there are no scales

  // Bytes of an element on its way to the rank that sums it, and of its sum on the way back.
  constexpr double PartBytes() const {
    return DTypeBits(part) / 8.0 + (block > 0 ? DTypeBits(DType::kE8M0) / 8.0 / block : 0.0);
  }
  constexpr double SumBytes() const { return DTypeBits(sum) / 8.0; }
};

// Elements of a part under one scale; tensors begin at multiples of it.
inline constexpr int kReduceBlock = 128;

inline constexpr ReduceFormatRow kReduceFormats[] = {
    {"fp32", DType::kF32, DType::kF32, 0},
    {"bf16", DType::kBF16, DType::kBF16, 0},
    {"fp8", DType::kE4M3, DType::kBF16, kReduceBlock},
};

// In blocks: elements of each of `ranks` equal parts of whole blocks that cover `elements`, a
// multiple of kReduceBlock. What lies behind them in the last parts counts as zeros.
constexpr int64_t PartElements(int64_t elements, int64_t ranks) {
  const int64_t blocks = (elements + kReduceBlock - 1) / kReduceBlock;
  return (blocks + ranks - 1) / ranks * kReduceBlock;
}

}  // namespace hearth::formats
