#include "kernels/attention/softmax_row.h"

#include <cmath>

#include "kernels/core/cpu.h"

namespace hearth::kernels::cpu {
namespace {

template <typename T>
HEARTH_INLINE T SoftmaxRowImpl(const RowRange& range, T* s) {
  T max = s[range.begin];
#pragma omp simd reduction(max : max)
  for (int64_t i = range.begin; i < range.end; ++i) {
    max = s[i] > max ? s[i] : max;
  }
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = range.begin; i < range.end; ++i) {
    s[i] = Exp(s[i] - max);
    sum += s[i];
  }
  const T inverse = T{1} / sum;
  for (int64_t i = 0; i < range.begin; ++i) {
    s[i] = 0;
  }
#pragma omp simd
  for (int64_t i = range.begin; i < range.end; ++i) {
    s[i] *= inverse;
  }
  for (int64_t i = range.end; i < range.width; ++i) {
    s[i] = 0;
  }
  return max + std::log(sum);
}

}  // namespace

HEARTH_SIMD float SoftmaxRow(const RowRange& range, float* s) {
  return SoftmaxRowImpl(range, s);
}
HEARTH_SIMD double SoftmaxRow(const RowRange& range, double* s) {
  return SoftmaxRowImpl(range, s);
}

}  // namespace hearth::kernels::cpu
