#include <cmath>

#include "kernels/block_quantize/block_quantize.h"
#include "kernels/core/cpu.h"
#include "kernels/formats/kept.h"
#include "kernels/formats/quant.h"
#include "kernels/formats/span.h"
#include "kernels/gelu/gelu.h"

namespace hearth::kernels {
namespace {

// float: Abramowitz and Stegun 7.1.26, absolute error < 3e-7. double: std::erf.
HEARTH_INLINE float Erf(float x) {
  const float a = std::fabs(x);
  const float t = 1.0F / (1.0F + 0.3275911F * a);
  float p = 1.061405429F;
  p = p * t - 1.453152027F;
  p = p * t + 1.421413741F;
  p = p * t - 0.284496736F;
  p = p * t + 0.254829592F;
  return std::copysign(1.0F - p * t * Exp(-a * a), x);
}
HEARTH_INLINE double Erf(double x) {
  return std::erf(x);
}

template <typename T>
HEARTH_INLINE T TanhArgument(T u) {
  return static_cast<T>(0.79788456080286535588) * (u + static_cast<T>(0.044715) * u * u * u);
}

struct ErfGelu {
  template <typename T>
  HEARTH_INLINE static T Value(T u) {
    return T{0.5} * u * (T{1} + Erf(u * static_cast<T>(0.70710678118654752440)));
  }
  template <typename T>
  HEARTH_INLINE static T Slope(T u) {
    const T cdf = T{0.5} * (T{1} + Erf(u * static_cast<T>(0.70710678118654752440)));
    const T pdf = static_cast<T>(0.39894228040143267794) * Exp(T{-0.5} * u * u);
    return cdf + u * pdf;
  }
};

struct TanhGelu {
  template <typename T>
  HEARTH_INLINE static T Value(T u) {
    return T{0.5} * u * (T{1} + Tanh(TanhArgument(u)));
  }
  template <typename T>
  HEARTH_INLINE static T Slope(T u) {
    const T tanh = Tanh(TanhArgument(u));
    const T inner =
        static_cast<T>(0.79788456080286535588) * (T{1} + static_cast<T>(3 * 0.044715) * u * u);
    return T{0.5} * (T{1} + tanh) + T{0.5} * u * (T{1} - tanh * tanh) * inner;
  }
};

// y = [dy *] f(x + bias): the value forward (dy null), the slope backward.
template <typename Kind, typename T>
HEARTH_INLINE void RowOfKind(const T* dy, const T* x, const T* bias, int64_t n, T* y) {
  // NOLINTNEXTLINE(bugprone-branch-clone): they differ behind the pragmas
  if (dy == nullptr) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
      y[i] = Kind::Value(bias == nullptr ? x[i] : x[i] + bias[i]);
    }
  } else {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
      y[i] = dy[i] * Kind::Slope(bias == nullptr ? x[i] : x[i] + bias[i]);
    }
  }
}

template <typename T>
HEARTH_INLINE void RowImpl(
    Activation kind, const T* dy, const T* x, const T* bias, int64_t n, T* y) {
  if (kind == Activation::kGelu) {
    RowOfKind<ErfGelu>(dy, x, bias, n, y);
  } else {
    RowOfKind<TanhGelu>(dy, x, bias, n, y);
  }
}
HEARTH_SIMD void Row(
    Activation kind, const float* dy, const float* x, const float* bias, int64_t n, float* y) {
  RowImpl(kind, dy, x, bias, n, y);
}
HEARTH_SIMD void Row(
    Activation kind, const double* dy, const double* x, const double* bias, int64_t n, double* y) {
  RowImpl(kind, dy, x, bias, n, y);
}

// Values at a time where there is no plain output to compute them into, or the input was kept.
constexpr int64_t kPiece = 512;

// One direction.
struct Direction {
  Activation kind;
  TensorView dy;  // absent forward
  TensorView x;
  TensorView bias;
  TensorView y;  // forward's result or dx
  DType round;
  QuantView quant;
  KeptInput keep;
  KeptInput kept;
};

template <typename T>
absl::Status Impl(const Exec& exec, const Direction& d) {
  const int64_t rows = d.x.rows();
  const int64_t cols = d.x.cols();
  ParallelFor(exec, rows, RowGrain(cols), [&](int64_t begin, int64_t end) {
    T piece[kPiece];
    T loaded[kPiece];
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t col = 0; col < cols; col += kPiece) {
        const int64_t n = std::min(kPiece, cols - col);
        const int64_t at = row * cols + col;
        // Without a plain output a piece on the stack stands in: the forms are made of it.
        T* out = d.y.empty() ? piece : d.y.as<T>() + at;
        const T* in = d.x.as<T>() + at;
        if (!d.kept.empty()) {
          LoadKeptSpan(d.kept, at, n, loaded);
          in = loaded;
        }
        if (!d.keep.empty()) {
          KeepSpan(in, n, at, d.keep);
        }
        Row(d.kind, d.dy.empty() ? nullptr : d.dy.as<T>() + at, in,
            d.bias.empty() ? nullptr : d.bias.as<T>() + col, n, out);
        RoundSpan(out, n, d.round);
        QuantizeRow(d.quant, rows, cols, row, col, out, n);
      }
    }
  });
  return absl::OkStatus();
}

}  // namespace

namespace cpu {

absl::Status GeluForward(const Exec& exec, const GeluForwardArgs& args) {
  const auto compute = [&](const TensorView& y) {
    return DispatchFloating(args.x.dtype, [&]<typename T>() {
      return Impl<T>(exec, {args.kind, TensorView(), args.x, args.bias, y, args.round_y,
                            args.y_quant, args.keep, args.kept});
    });
  };
  return ComputeWithBlocks(exec, args.y, args.y_blocks, args.x.dtype, args.x.rows(), args.x.cols(),
                           compute);
}

absl::Status GeluBackward(const Exec& exec, const GeluBackwardArgs& args) {
  const auto compute = [&](const TensorView& dx) {
    return DispatchFloating(args.x.dtype, [&]<typename T>() {
      return Impl<T>(
          exec,
          {args.kind, args.dy, args.x, args.bias, dx, args.round_dx, args.dx_quant, {}, args.kept});
    });
  };
  return ComputeWithBlocks(exec, args.dx, args.dx_blocks, args.x.dtype, args.x.rows(),
                           args.x.cols(), compute);
}

}  // namespace cpu

}  // namespace hearth::kernels
