#include <algorithm>
#include <cmath>

#include "kernels/core/cpu.h"
#include "kernels/formats/span.h"
#include "kernels/moving_average/moving_average.h"

namespace hearth::kernels {
namespace {

constexpr int64_t kGrain = 16384;
constexpr int64_t kPiece = 1024;  // widened on the stack, if it is bf16

template <typename T>
HEARTH_INLINE void AverageImpl(const T* x, T rate, int64_t n, T* y) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    y[i] += rate * (x[i] - y[i]);
  }
}
HEARTH_SIMD void Average(const float* x, float rate, int64_t n, float* y) {
  AverageImpl(x, rate, n, y);
}
HEARTH_SIMD void Average(const double* x, double rate, int64_t n, double* y) {
  AverageImpl(x, rate, n, y);
}

double RateOf(const MovingAverageArgs& args) {
  const auto step = static_cast<double>(args.inputs != nullptr ? args.inputs->step : args.step);
  // 1 - decay^step loses its digits where decay is close to 1; expm1 keeps them.
  return (1.0 - args.decay) / -std::expm1(step * std::log(args.decay));
}

template <typename T>
absl::Status Impl(const Exec& exec, const MovingAverageArgs& args) {
  const auto rate = static_cast<T>(RateOf(args));
  T* const y = args.y.as<T>();
  ParallelFor(exec, args.y.numel(), kGrain, [&args, rate, y](int64_t begin, int64_t end) {
    if (args.x.dtype != DType::kBF16) {
      Average(args.x.as<T>() + begin, rate, end - begin, y + begin);
      return;
    }
    T wide[kPiece];
    for (int64_t at = begin; at < end; at += kPiece) {
      const int64_t count = std::min(kPiece, end - at);
      DecodeSpan(args.x.as<uint16_t>() + at, count, DType::kBF16, wide);
      Average(wide, rate, count, y + at);
    }
  });
  return absl::OkStatus();
}

}  // namespace

namespace cpu {

absl::Status MovingAverage(const Exec& exec, const MovingAverageArgs& args) {
  if (args.skip != nullptr && *args.skip != 0) {
    return absl::OkStatus();
  }
  return DispatchFloating(args.y.dtype, [&]<typename T>() { return Impl<T>(exec, args); });
}

}  // namespace cpu

}  // namespace hearth::kernels
