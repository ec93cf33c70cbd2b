#include "kernels/formats/quant.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>

#include "kernels/core/formats.h"
#include "kernels/formats/span.h"

namespace hearth::kernels {
namespace {

constexpr int64_t kPiece = 512;

// Magnitudes order as their bits do, with NaN above infinity.
template <typename T>
uint32_t LargestMagnitude(const T* v, int64_t count) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(static_cast<float>(v[i])) & 0x7FFFFFFF;
    largest = std::max(largest, bits);
  }
  return largest;
}

void RaiseAmax(float* amax, uint32_t bits) {
  std::atomic_ref<float> shared(*amax);
  float seen = shared.load(std::memory_order_relaxed);
  while (
      (std::bit_cast<uint32_t>(seen) & 0x7FFFFFFF) < bits &&
      !shared.compare_exchange_weak(seen, std::bit_cast<float>(bits), std::memory_order_relaxed)) {
  }
}

}  // namespace

template <typename T>
void QuantizeRow(const QuantView& quant,
                 int64_t rows,
                 int64_t cols,
                 int64_t row,
                 int64_t col,
                 const T* v,
                 int64_t count) {
  if (quant.amax != nullptr) {
    RaiseAmax(quant.amax, LargestMagnitude(v, count));
  }
  if (!quant.has_values()) {
    return;
  }
  const float scale = *quant.scale;
  float scaled[kPiece];
  uint8_t codes[kPiece];
  for (int64_t begin = 0; begin < count; begin += kPiece) {
    const int64_t n = std::min(kPiece, count - begin);
    for (int64_t i = 0; i < n; ++i) {
      scaled[i] = static_cast<float>(v[begin + i]) * scale;
    }
    EncodeSpan(scaled, n, quant.dtype, codes);
    if (quant.rows != nullptr) {
      std::copy_n(codes, n, static_cast<uint8_t*>(quant.rows) + row * cols + col + begin);
    }
    if (quant.columns != nullptr) {
      uint8_t* column = static_cast<uint8_t*>(quant.columns) + (col + begin) * rows + row;
      for (int64_t i = 0; i < n; ++i) {
        column[i * rows] = codes[i];
      }
    }
  }
}

template void QuantizeRow(
    const QuantView&, int64_t, int64_t, int64_t, int64_t, const float*, int64_t);
template void QuantizeRow(
    const QuantView&, int64_t, int64_t, int64_t, int64_t, const double*, int64_t);

}  // namespace hearth::kernels
