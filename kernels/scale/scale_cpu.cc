#include "kernels/core/cpu.h"
#include "kernels/formats/span.h"
#include "kernels/scale/scale.h"

namespace hearth::kernels {
namespace {

constexpr int64_t kGrain = 16384;

template <typename T>
HEARTH_INLINE void ScaleSpanImpl(const T* x, T alpha, T beta, int64_t n, T* y) {
  // NOLINTNEXTLINE(bugprone-branch-clone): they differ behind the pragmas
  if (beta == T{0}) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
      y[i] = alpha * x[i];
    }
  } else {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
      y[i] = alpha * x[i] + beta * y[i];
    }
  }
}
HEARTH_SIMD void ScaleSpan(const float* x, float alpha, float beta, int64_t n, float* y) {
  ScaleSpanImpl(x, alpha, beta, n, y);
}
HEARTH_SIMD void ScaleSpan(const double* x, double alpha, double beta, int64_t n, double* y) {
  ScaleSpanImpl(x, alpha, beta, n, y);
}

template <typename T>
absl::Status Impl(const Exec& exec, const ScaleArgs& args) {
  ParallelFor(exec, args.x.numel(), kGrain, [&](int64_t begin, int64_t end) {
    T* y = args.y.as<T>() + begin;
    ScaleSpan(args.x.as<T>() + begin, static_cast<T>(args.alpha), static_cast<T>(args.beta),
              end - begin, y);
    RoundSpan(y, end - begin, args.round);
  });
  return absl::OkStatus();
}

}  // namespace

namespace cpu {

absl::Status Scale(const Exec& exec, const ScaleArgs& args) {
  return DispatchFloating(args.x.dtype, [&]<typename T>() { return Impl<T>(exec, args); });
}

}  // namespace cpu

}  // namespace hearth::kernels
