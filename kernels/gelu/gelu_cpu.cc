#include "common/base/status_macros.h"
#include "kernels/core/cpu.h"
#include "kernels/formats/span.h"
#include "kernels/gelu/gelu.h"

namespace hearth::kernels {
namespace {

constexpr char kOp[] = "gelu";

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
HEARTH_INLINE void RowImpl(GeluKind kind, const T* dy, const T* x, const T* bias, int64_t n, T* y) {
  if (kind == GeluKind::kErf) {
    RowOfKind<ErfGelu>(dy, x, bias, n, y);
  } else {
    RowOfKind<TanhGelu>(dy, x, bias, n, y);
  }
}
HEARTH_SIMD void Row(
    GeluKind kind, const float* dy, const float* x, const float* bias, int64_t n, float* y) {
  RowImpl(kind, dy, x, bias, n, y);
}
HEARTH_SIMD void Row(
    GeluKind kind, const double* dy, const double* x, const double* bias, int64_t n, double* y) {
  RowImpl(kind, dy, x, bias, n, y);
}

template <typename T>
absl::Status ForwardImpl(const Exec& exec, const GeluForwardArgs& args) {
  const int64_t cols = args.x.cols();
  ParallelFor(exec, args.x.rows(), RowGrain(cols), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      T* y = args.y.as<T>() + row * cols;
      Row(args.kind, static_cast<const T*>(nullptr), args.x.as<T>() + row * cols, args.bias.as<T>(),
          cols, y);
      RoundSpan(y, cols, args.round_y);
    }
  });
  return absl::OkStatus();
}

template <typename T>
absl::Status BackwardImpl(const Exec& exec, const GeluBackwardArgs& args) {
  const int64_t cols = args.x.cols();
  ParallelFor(exec, args.x.rows(), RowGrain(cols), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      T* dx = args.dx.as<T>() + row * cols;
      Row(args.kind, args.dy.as<T>() + row * cols, args.x.as<T>() + row * cols, args.bias.as<T>(),
          cols, dx);
      RoundSpan(dx, cols, args.round_dx);
    }
  });
  return absl::OkStatus();
}

}  // namespace

absl::Status CanImplement(const GeluForwardArgs& args) {
  HEARTH_RETURN_IF_ERROR(RequireFloating(args.x, kOp, "x"));
  HEARTH_RETURN_IF_ERROR(RequireCount(args.y, args.x.dtype, args.x.numel(), kOp, "y"));
  if (!args.bias.empty()) {
    HEARTH_RETURN_IF_ERROR(RequireCount(args.bias, args.x.dtype, args.x.cols(), kOp, "bias"));
  }
  HEARTH_RETURN_IF_ERROR(RequireNoQuant(args.y_quant, kOp));
  return RequireRound(args.round_y, kOp);
}

size_t GeluForwardWorkspaceBytes(const GeluForwardArgs&) {
  return 0;
}

absl::Status GeluForward(const Exec& exec, const GeluForwardArgs& args) {
  HEARTH_RETURN_IF_ERROR(RequireCpu(exec, kOp));
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  return DispatchFloating(args.x.dtype, [&]<typename T>() { return ForwardImpl<T>(exec, args); });
}

absl::Status CanImplement(const GeluBackwardArgs& args) {
  HEARTH_RETURN_IF_ERROR(RequireFloating(args.x, kOp, "x"));
  HEARTH_RETURN_IF_ERROR(RequireCount(args.dy, args.x.dtype, args.x.numel(), kOp, "dy"));
  HEARTH_RETURN_IF_ERROR(RequireCount(args.dx, args.x.dtype, args.x.numel(), kOp, "dx"));
  if (!args.bias.empty()) {
    HEARTH_RETURN_IF_ERROR(RequireCount(args.bias, args.x.dtype, args.x.cols(), kOp, "bias"));
  }
  return RequireRound(args.round_dx, kOp);
}

size_t GeluBackwardWorkspaceBytes(const GeluBackwardArgs&) {
  return 0;
}

absl::Status GeluBackward(const Exec& exec, const GeluBackwardArgs& args) {
  HEARTH_RETURN_IF_ERROR(RequireCpu(exec, kOp));
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  return DispatchFloating(args.x.dtype, [&]<typename T>() { return BackwardImpl<T>(exec, args); });
}

}  // namespace hearth::kernels
