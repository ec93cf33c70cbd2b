// What the CPU implementations share: instruction-set clones, thread partition, vectorisable exp.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/core/exec.h"

// Marks a function that is not a template and holds a hot loop: it is compiled for AVX2 + FMA and
// for the base instruction set, chosen when the program is loaded. What it calls must be inlined
// into it (HEARTH_INLINE). OpenMP regions must be outside: the compiler does not clone outlined
// bodies. The sanitizers' runtimes are not ready when the choice is made, so they get the base
// version.
#if defined(__x86_64__) && !defined(HEARTH_SANITIZED)
#define HEARTH_SIMD __attribute__((target_clones("arch=x86-64-v3", "default")))
#else
#define HEARTH_SIMD
#endif
#define HEARTH_INLINE __attribute__((always_inline)) inline

namespace hearth::kernels {

// Rows at a time by which weight gradients are summed first: fixed, so that sums do not depend on
// the thread count.
inline constexpr int64_t kReduceRows = 64;

constexpr int64_t CeilDiv(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}
constexpr size_t AlignUp(size_t bytes, size_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

// body(begin, end) over [0, count) in pieces of at most `grain`, on exec.threads threads with a
// static partition. Which thread runs a piece must not matter to the result.
template <typename Body>
void ParallelFor(const Exec& exec, int64_t count, int64_t grain, const Body& body) {
  const int64_t pieces = CeilDiv(count, grain);
  if (exec.threads == 1 || pieces <= 1) {
    for (int64_t p = 0; p < pieces; ++p) {
      body(p * grain, std::min(count, (p + 1) * grain));
    }
    return;
  }
#pragma omp parallel for schedule(static) num_threads(exec.threads)
  for (int64_t p = 0; p < pieces; ++p) {
    body(p * grain, std::min(count, (p + 1) * grain));
  }
}

// Rows per piece so that a piece is about 16 Ki elements: enough to pay for the dispatch.
constexpr int64_t RowGrain(int64_t cols) {
  return std::max<int64_t>(1, 16384 / std::max<int64_t>(1, cols));
}

// e^x. float: for x <= 88 only; polynomial after Cephes, relative error < 2e-7; below -87.3 it is
// 1e-38, not 0; NaN and +infinity give NaN. One select, no branch: a second clamp would stop GCC 12
// from vectorising. double: std::exp.
HEARTH_INLINE float Exp(float x) {
  x = x < -87.3F ? -87.3F : x;
  const float shifted = x * 1.44269504088896341F + 12582912.0F;  // 1.5 * 2^23: rounds to nearest
  const float n = shifted - 12582912.0F;
  float r = x - n * 0.693359375F;
  r = r + n * 2.12194440e-4F;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * r * r + r + 1.0F;
  const int32_t exponent = std::bit_cast<int32_t>(shifted) - 0x4B400000;
  return p * std::bit_cast<float>((exponent + 127) << 23);
}
HEARTH_INLINE double Exp(double x) {
  return std::exp(x);
}

// 1 / (1 + e^-x) and tanh over the whole range; float by Exp, absolute error < 3e-7.
HEARTH_INLINE float Sigmoid(float x) {
  const float e = Exp(-std::fabs(x));
  return (x < 0.0F ? e : 1.0F) / (1.0F + e);
}
HEARTH_INLINE double Sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}
HEARTH_INLINE float Tanh(float x) {
  const float e = Exp(-2.0F * std::fabs(x));
  return std::copysign((1.0F - e) / (1.0F + e), x);
}
HEARTH_INLINE double Tanh(double x) {
  return std::tanh(x);
}

// out[i] += sum over chunks of partial[chunk, i], in the order of chunks.
template <typename T>
void AddChunks(const T* partial, int64_t chunks, int64_t cols, T* out) {
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    const T* row = partial + chunk * cols;
    for (int64_t i = 0; i < cols; ++i) {
      out[i] += row[i];
    }
  }
}

// Calls fn.template operator()<T>() with the storage type of `dtype` (kF32 or kF64).
template <typename Fn>
auto DispatchFloating(DType dtype, const Fn& fn) {
  return dtype == DType::kF64 ? fn.template operator()<double>() : fn.template operator()<float>();
}

}  // namespace hearth::kernels
