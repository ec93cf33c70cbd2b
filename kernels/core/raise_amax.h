// The largest magnitude of values that several CPU threads write.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>

namespace hearth::kernels {

// *amax raised to the largest magnitude; as unsigned integers magnitudes order with NaN on top, so
// threads may come in any order.
template <typename T>
void RaiseAmax(const T* x, int64_t n, float* amax) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    largest = std::max(largest, std::bit_cast<uint32_t>(static_cast<float>(x[i])) & 0x7FFFFFFF);
  }
  // Threads race for the largest. Most of them find a larger one there and write nothing.
  const std::atomic_ref<float> shared(*amax);
  float old = shared.load(std::memory_order_relaxed);
  while (largest > std::bit_cast<uint32_t>(old) &&
         !shared.compare_exchange_weak(old, std::bit_cast<float>(largest))) {
  }
}

}  // namespace hearth::kernels
