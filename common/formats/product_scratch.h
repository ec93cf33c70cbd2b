// Scratch of matrix products on a GPU. Plans count with it too.
#pragma once

#include <cstdint>

namespace hearth::formats {

// What a product likes to have: with less, fewer of the library's algorithms are tried.
inline constexpr int64_t kProductScratchBytes = int64_t{32} << 20;

// What a product of block-scaled operands [m, k] and [n, k] needs beyond that while it is emulated:
// both as bf16, each on a 256-byte boundary, and the product's scalars.
constexpr int64_t EmulatedProductBytes(int64_t m, int64_t n, int64_t k) {
  return (m * k * 2 + 255) / 256 * 256 + (n * k * 2 + 255) / 256 * 256 + 512;
}

}  // namespace hearth::formats
