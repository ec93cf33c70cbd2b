#include <algorithm>
#include <cmath>

#include "kernels/block_quantize/block_quantize.h"
#include "kernels/core/cpu.h"
#include "kernels/formats/quant.h"
#include "kernels/formats/span.h"
#include "kernels/norm/implementation.h"

namespace hearth::kernels {
namespace {

constexpr int64_t kPiece = 512;  // columns between normalising and quantising

// Which norm: the type chooses the arithmetic of a row. All else is the same for both.
struct Rms {
  static constexpr bool kCentred = false;
};
struct Layer {
  static constexpr bool kCentred = true;
};

template <typename T>
struct Moments {
  T mean;  // 0 of Rms
  T rstd;
};

template <typename T>
struct BackwardRow {
  const T* dy;
  const T* s;
  const T* weight;
  const T* d_sum;  // or null
  T* dx;
  T* d_weight;  // partial sums of this chunk of rows; Rms: or null
  T* d_bias;    // Layer
  Moments<T> moments;
};

template <typename T>
HEARTH_INLINE void AddImpl(const T* a, const T* b, int64_t n, T* out) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    out[i] = a[i] + b[i];
  }
}
HEARTH_SIMD void AddRow(const float* a, const float* b, int64_t n, float* out) {
  AddImpl(a, b, n, out);
}
HEARTH_SIMD void AddRow(const double* a, const double* b, int64_t n, double* out) {
  AddImpl(a, b, n, out);
}

template <typename T>
HEARTH_INLINE Moments<T> MomentsImpl(Rms, const T* s, int64_t n, T eps) {
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) {
    sum += s[i] * s[i];
  }
  return {T{0}, T{1} / std::sqrt(sum / static_cast<T>(n) + eps)};
}

template <typename T>
HEARTH_INLINE Moments<T> MomentsImpl(Layer, const T* s, int64_t n, T eps) {
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) {
    sum += s[i];
  }
  const T mean = sum / static_cast<T>(n);
  // A second pass over the row: mean(x^2) - mean(x)^2 would cancel where the mean is large.
  T squares = 0;
#pragma omp simd reduction(+ : squares)
  for (int64_t i = 0; i < n; ++i) {
    squares += (s[i] - mean) * (s[i] - mean);
  }
  return {mean, T{1} / std::sqrt(squares / static_cast<T>(n) + eps)};
}

template <typename T>
HEARTH_INLINE void NormalizeImpl(
    Rms, const T* s, const T* weight, const T*, Moments<T> moments, int64_t n, T* y) {
  const T rstd = moments.rstd;
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    y[i] = s[i] * rstd * weight[i];
  }
}

// `bias` may be null.
template <typename T>
HEARTH_INLINE void NormalizeImpl(
    Layer, const T* s, const T* weight, const T* bias, Moments<T> moments, int64_t n, T* y) {
  const T mean = moments.mean;
  const T rstd = moments.rstd;
  // NOLINTNEXTLINE(bugprone-branch-clone): they differ behind the pragmas
  if (bias != nullptr) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
      y[i] = (s[i] - mean) * rstd * weight[i] + bias[i];
    }
  } else {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
      y[i] = (s[i] - mean) * rstd * weight[i];
    }
  }
}

template <typename T>
HEARTH_INLINE void BackwardRowImpl(Rms, const BackwardRow<T>& r, int64_t n) {
  const T* dy = r.dy;
  const T* s = r.s;
  const T* weight = r.weight;
  const T* d_sum = r.d_sum;
  T* dx = r.dx;
  T* d_weight = r.d_weight;
  const T rstd = r.moments.rstd;
  T dot = 0;
#pragma omp simd reduction(+ : dot)
  for (int64_t i = 0; i < n; ++i) {
    dot += dy[i] * weight[i] * s[i];
  }
  if (d_weight != nullptr) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
      d_weight[i] += dy[i] * (s[i] * rstd);
    }
  }
  // With rstd = (mean(s^2) + eps)^-1/2: dx = w dy rstd - s rstd^3 sum(w dy s) / n.
  const T slope = dot * rstd * rstd * rstd / static_cast<T>(n);
  // NOLINTNEXTLINE(bugprone-branch-clone): they differ behind the pragmas
  if (d_sum != nullptr) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
      dx[i] = dy[i] * weight[i] * rstd - s[i] * slope + d_sum[i];
    }
  } else {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
      dx[i] = dy[i] * weight[i] * rstd - s[i] * slope;
    }
  }
}

template <typename T>
HEARTH_INLINE void BackwardRowImpl(Layer, const BackwardRow<T>& r, int64_t n) {
  const T* dy = r.dy;
  const T* s = r.s;
  const T* weight = r.weight;
  const T* d_sum = r.d_sum;
  T* dx = r.dx;
  T* d_weight = r.d_weight;
  T* d_bias = r.d_bias;
  const T mean = r.moments.mean;
  const T rstd = r.moments.rstd;
  T dot = 0;
  T total = 0;
#pragma omp simd reduction(+ : dot, total)
  for (int64_t i = 0; i < n; ++i) {
    const T normalized = (s[i] - mean) * rstd;
    dot += dy[i] * weight[i] * normalized;
    total += dy[i] * weight[i];
    d_weight[i] += dy[i] * normalized;
    d_bias[i] += dy[i];
  }
  // With x^ = (s - mean) rstd: dx = (w dy - mean(w dy) - x^ mean(w dy x^)) rstd.
  dot /= static_cast<T>(n);
  total /= static_cast<T>(n);
  // NOLINTNEXTLINE(bugprone-branch-clone): they differ behind the pragmas
  if (d_sum != nullptr) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
      dx[i] = (dy[i] * weight[i] - total - (s[i] - mean) * rstd * dot) * rstd + d_sum[i];
    }
  } else {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
      dx[i] = (dy[i] * weight[i] - total - (s[i] - mean) * rstd * dot) * rstd;
    }
  }
}

// HEARTH_SIMD asks for functions that are no templates: each norm has its own of each type.
#define HEARTH_NORM_ROWS(Norm, T)                                                   \
  HEARTH_SIMD Moments<T> RowMoments(Norm norm, const T* s, int64_t n, T eps) {      \
    return MomentsImpl(norm, s, n, eps);                                            \
  }                                                                                 \
  HEARTH_SIMD void Normalize(Norm norm, const T* s, const T* weight, const T* bias, \
                             Moments<T> moments, int64_t n, T* y) {                 \
    NormalizeImpl(norm, s, weight, bias, moments, n, y);                            \
  }                                                                                 \
  HEARTH_SIMD void RunBackwardRow(Norm norm, const BackwardRow<T>& r, int64_t n) {  \
    BackwardRowImpl(norm, r, n);                                                    \
  }
HEARTH_NORM_ROWS(Rms, float)
HEARTH_NORM_ROWS(Rms, double)
HEARTH_NORM_ROWS(Layer, float)
HEARTH_NORM_ROWS(Layer, double)
#undef HEARTH_NORM_ROWS

// `out`: y, or memory that stands in for it; empty if only forms of y are wanted.
template <typename Norm, typename T>
absl::Status ForwardRows(const Exec& exec, const NormForwardCall& call, const TensorView& out) {
  const NormForwardArgs& args = call.args;
  const int64_t rows = args.x.rows();
  const int64_t cols = args.x.cols();
  ParallelFor(exec, rows, RowGrain(cols), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const T* s = args.x.as<T>() + row * cols;
      if (!args.residual.empty()) {
        T* sum = args.sum.as<T>() + row * cols;
        AddRow(s, args.residual.as<T>() + row * cols, cols, sum);
        RoundSpan(sum, cols, args.round_sum);
        s = sum;
      }
      const Moments<T> moments = RowMoments(Norm(), s, cols, static_cast<T>(args.eps));
      T piece[kPiece];
      for (int64_t col = 0; col < cols; col += kPiece) {
        const int64_t n = std::min(kPiece, cols - col);
        T* y = out.empty() ? piece : out.as<T>() + row * cols + col;
        Normalize(Norm(), s + col, args.weight.as<T>() + col,
                  call.bias.empty() ? nullptr : call.bias.as<T>() + col, moments, n, y);
        RoundSpan(y, n, args.round_y);
        QuantizeRow(args.y_quant, rows, cols, row, col, y, n);
      }
      if (!args.rstd.empty()) {
        args.rstd.as<T>()[row] = moments.rstd;
      }
      if (!call.mean.empty()) {
        call.mean.as<T>()[row] = moments.mean;
      }
    }
  });
  return absl::OkStatus();
}

template <typename Norm, typename T>
absl::Status BackwardRows(const Exec& exec, const NormBackwardCall& call) {
  const NormBackwardArgs& args = call.args;
  const int64_t cols = args.dy.cols();
  const int64_t rows = args.dy.rows();
  const int64_t chunks = CeilDiv(rows, kReduceRows);
  // Partial sums of fixed chunks of rows, added up in their order: the bits do not depend on which
  // thread had which chunk.
  const bool sums = Norm::kCentred || !args.d_weight.empty();
  T* weight_partial = sums ? static_cast<T*>(exec.workspace.data) : nullptr;
  T* bias_partial = Norm::kCentred ? weight_partial + chunks * cols : nullptr;
  ParallelFor(exec, rows, kReduceRows, [&](int64_t begin, int64_t end) {
    const int64_t chunk = begin / kReduceRows * cols;
    T* d_weight = weight_partial == nullptr ? nullptr : weight_partial + chunk;
    T* d_bias = bias_partial == nullptr ? nullptr : bias_partial + chunk;
    for (T* partial : {d_weight, d_bias}) {
      if (partial != nullptr) {
        std::fill_n(partial, cols, T{0});
      }
    }
    for (int64_t row = begin; row < end; ++row) {
      const int64_t at = row * cols;
      T* dx = args.dx.as<T>() + at;
      const Moments<T> moments = {call.mean.empty() ? T{0} : call.mean.as<T>()[row],
                                  args.rstd.as<T>()[row]};
      RunBackwardRow(Norm(),
                     BackwardRow<T>{args.dy.as<T>() + at, args.s.as<T>() + at, args.weight.as<T>(),
                                    args.d_sum.empty() ? nullptr : args.d_sum.as<T>() + at, dx,
                                    d_weight, d_bias, moments},
                     cols);
      RoundSpan(dx, cols, args.round_dx);
      QuantizeRow(args.dx_quant, rows, cols, row, 0, dx, cols);
    }
  });
  if (!args.d_weight.empty()) {
    AddChunks(weight_partial, chunks, cols, args.d_weight.as<T>());
  }
  if (!call.d_bias.empty()) {
    AddChunks(bias_partial, chunks, cols, call.d_bias.as<T>());
  }
  return absl::OkStatus();
}

}  // namespace

namespace cpu {

absl::Status NormForward(const Exec& exec, const NormForwardCall& call) {
  const NormForwardArgs& args = call.args;
  const auto compute = [&](const TensorView& y) {
    return DispatchFloating(args.x.dtype, [&]<typename T>() {
      return call.centred ? ForwardRows<Layer, T>(exec, call, y)
                          : ForwardRows<Rms, T>(exec, call, y);
    });
  };
  return ComputeWithBlocks(exec, args.y, args.y_blocks, args.x.dtype, args.x.rows(), args.x.cols(),
                           compute);
}

absl::Status NormBackward(const Exec& exec, const NormBackwardCall& call) {
  const NormBackwardArgs& args = call.args;
  const auto compute = [&](const TensorView&) {
    return DispatchFloating(args.dy.dtype, [&]<typename T>() {
      return call.centred ? BackwardRows<Layer, T>(exec, call) : BackwardRows<Rms, T>(exec, call);
    });
  };
  return ComputeWithBlocks(exec, args.dx, args.dx_blocks, args.dy.dtype, args.dy.rows(),
                           args.dy.cols(), compute);
}

}  // namespace cpu

}  // namespace hearth::kernels
