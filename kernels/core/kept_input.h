// The input of an activation function as it waits for backward in 8 bits: E4M3 in blocks of 32
// along a row, each with a power of two for its scale that is rounded up, so that nothing
// saturates: OCP Microscaling Formats 1.0, MXFP8. An element is off by at most 2^-4 of itself, or
// 2^-17 of its block's largest.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/core/tensor.h"

namespace hearth::kernels {

inline constexpr int64_t kKeptBlock = 32;

// [R, C], C a multiple of kKeptBlock.
//   values : [R, C] E4M3, row-major; 16-byte aligned
//   scales : [R, C / 32] E8M0, row-major (not in cuBLASLt's order: no product reads them)
// A block that holds a NaN or an infinity has the scale NaN (0xFF) and zero values: all of it is
// NaN. Zeros keep their signs. Subnormal values are as others: the least scale is 2^-127, the least
// value that is not zero 2^-136. Values of magnitude 248 * 2^120 and more are rounded to 2^128 and
// come back as infinities. What is kept is the same on every device, bit for bit; read as bf16,
// multiples of 2^-136 that it does not hold are rounded to it.
struct KeptInput {
  uint8_t* values = nullptr;
  uint8_t* scales = nullptr;

  constexpr bool empty() const { return values == nullptr; }
};

constexpr int64_t KeptBytes(int64_t rows, int64_t cols) {
  return rows * cols + rows * cols / kKeptBlock;
}
// KeptBytes() of memory as one.
inline KeptInput KeptAt(void* data, int64_t rows, int64_t cols) {
  auto* const bytes = static_cast<uint8_t*>(data);
  return {bytes, bytes + rows * cols};
}

// Checks the arguments of an op about a kept input of `cols` columns, or parts of that many: `keep`
// is written, `kept` is read; not both, and none of `quant`'s columns beside `keep`.
absl::Status RequireKept(const KeptInput& keep,
                         const KeptInput& kept,
                         const QuantView& quant,
                         int64_t cols,
                         const char* op);

}  // namespace hearth::kernels
