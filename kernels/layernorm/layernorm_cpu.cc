#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/block_quantize/block_quantize.h"
#include "kernels/core/cpu.h"
#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/norm.h"
#include "kernels/formats/quant.h"
#include "kernels/formats/span.h"
#include "kernels/layernorm/layernorm.h"

namespace hearth::kernels {
namespace {

constexpr char kOp[] = "layernorm";
constexpr int64_t kPiece = 512;  // columns between normalising and quantising

template <typename T>
struct Moments {
  T mean;
  T rstd;
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
HEARTH_INLINE Moments<T> MomentsImpl(const T* s, int64_t n, T eps) {
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) {
    sum += s[i];
  }
  const T mean = sum / static_cast<T>(n);
  T squares = 0;
#pragma omp simd reduction(+ : squares)
  for (int64_t i = 0; i < n; ++i) {
    squares += (s[i] - mean) * (s[i] - mean);
  }
  return {mean, T{1} / std::sqrt(squares / static_cast<T>(n) + eps)};
}
HEARTH_SIMD Moments<float> RowMoments(const float* s, int64_t n, float eps) {
  return MomentsImpl(s, n, eps);
}
HEARTH_SIMD Moments<double> RowMoments(const double* s, int64_t n, double eps) {
  return MomentsImpl(s, n, eps);
}

// `bias` may be null.
template <typename T>
HEARTH_INLINE void NormalizeImpl(
    const T* s, const T* weight, const T* bias, Moments<T> moments, int64_t n, T* y) {
  const T mean = moments.mean;
  const T rstd = moments.rstd;
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
HEARTH_SIMD void Normalize(const float* s,
                           const float* weight,
                           const float* bias,
                           Moments<float> moments,
                           int64_t n,
                           float* y) {
  NormalizeImpl(s, weight, bias, moments, n, y);
}
HEARTH_SIMD void Normalize(const double* s,
                           const double* weight,
                           const double* bias,
                           Moments<double> moments,
                           int64_t n,
                           double* y) {
  NormalizeImpl(s, weight, bias, moments, n, y);
}

template <typename T>
absl::Status ForwardImpl(const Exec& exec, const LayerNormForwardArgs& args) {
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
      const Moments<T> moments = RowMoments(s, cols, static_cast<T>(args.eps));
      T piece[kPiece];
      for (int64_t col = 0; col < cols; col += kPiece) {
        const int64_t n = std::min(kPiece, cols - col);
        T* y = args.y.empty() ? piece : args.y.as<T>() + row * cols + col;
        Normalize(s + col, args.weight.as<T>() + col,
                  args.bias.empty() ? nullptr : args.bias.as<T>() + col, moments, n, y);
        RoundSpan(y, n, args.round_y);
        QuantizeRow(args.y_quant, rows, cols, row, col, y, n);
      }
      if (!args.rstd.empty()) {
        args.mean.as<T>()[row] = moments.mean;
        args.rstd.as<T>()[row] = moments.rstd;
      }
    }
  });
  return absl::OkStatus();
}

template <typename T>
struct BackwardRow {
  const T* dy;
  const T* s;
  const T* weight;
  const T* d_sum;  // or null
  T* dx;
  T* d_weight;  // partial sums of this chunk of rows
  T* d_bias;
  Moments<T> moments;
};

template <typename T>
HEARTH_INLINE void BackwardRowImpl(const BackwardRow<T>& r, int64_t n) {
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
  dot /= static_cast<T>(n);
  total /= static_cast<T>(n);
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
HEARTH_SIMD void RunBackwardRow(const BackwardRow<float>& r, int64_t n) {
  BackwardRowImpl(r, n);
}
HEARTH_SIMD void RunBackwardRow(const BackwardRow<double>& r, int64_t n) {
  BackwardRowImpl(r, n);
}

template <typename T>
absl::Status BackwardImpl(const Exec& exec, const LayerNormBackwardArgs& args) {
  const int64_t cols = args.dy.cols();
  const int64_t rows = args.dy.rows();
  const int64_t chunks = CeilDiv(rows, kReduceRows);
  T* weight_partial = static_cast<T*>(exec.workspace.data);
  T* bias_partial = weight_partial + chunks * cols;
  ParallelFor(exec, rows, kReduceRows, [&](int64_t begin, int64_t end) {
    const int64_t chunk = begin / kReduceRows * cols;
    std::fill_n(weight_partial + chunk, cols, T{0});
    std::fill_n(bias_partial + chunk, cols, T{0});
    for (int64_t row = begin; row < end; ++row) {
      const int64_t at = row * cols;
      T* dx = args.dx.as<T>() + at;
      const Moments<T> moments = {args.mean.as<T>()[row], args.rstd.as<T>()[row]};
      RunBackwardRow(BackwardRow<T>{args.dy.as<T>() + at, args.s.as<T>() + at, args.weight.as<T>(),
                                    args.d_sum.empty() ? nullptr : args.d_sum.as<T>() + at, dx,
                                    weight_partial + chunk, bias_partial + chunk, moments},
                     cols);
      RoundSpan(dx, cols, args.round_dx);
      QuantizeRow(args.dx_quant, rows, cols, row, 0, dx, cols);
    }
  });
  if (!args.d_weight.empty()) {
    AddChunks(weight_partial, chunks, cols, args.d_weight.as<T>());
  }
  if (!args.d_bias.empty()) {
    AddChunks(bias_partial, chunks, cols, args.d_bias.as<T>());
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CanImplement(const LayerNormForwardArgs& args) {
  HEARTH_RETURN_IF_ERROR(RequireFloating(args.x, kOp, "x"));
  const DType dtype = args.x.dtype;
  const int64_t rows = args.x.rows();
  const int64_t cols = args.x.cols();
  if (!args.y.empty() || (!args.y_quant.has_values() && args.y_blocks.empty())) {
    HEARTH_RETURN_IF_ERROR(RequireCount(args.y, dtype, rows * cols, kOp, "y"));
  }
  HEARTH_RETURN_IF_ERROR(RequireCount(args.weight, dtype, cols, kOp, "weight"));
  if (!args.bias.empty()) {
    HEARTH_RETURN_IF_ERROR(RequireCount(args.bias, dtype, cols, kOp, "bias"));
  }
  if (args.residual.empty() != args.sum.empty() || args.mean.empty() != args.rstd.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        kOp, ": residual and sum, and mean and rstd, must both be present or both absent"));
  }
  if (!args.residual.empty()) {
    HEARTH_RETURN_IF_ERROR(RequireCount(args.residual, dtype, rows * cols, kOp, "residual"));
    HEARTH_RETURN_IF_ERROR(RequireCount(args.sum, dtype, rows * cols, kOp, "sum"));
    if (args.sum.data == args.y.data) {
      return absl::InvalidArgumentError(absl::StrCat(kOp, ": sum may not alias y"));
    }
  }
  if (!args.rstd.empty()) {
    HEARTH_RETURN_IF_ERROR(RequireCount(args.mean, StatisticsType(dtype), rows, kOp, "mean"));
    HEARTH_RETURN_IF_ERROR(RequireCount(args.rstd, StatisticsType(dtype), rows, kOp, "rstd"));
  }
  HEARTH_RETURN_IF_ERROR(RequireQuant(args.y_quant, kOp));
  HEARTH_RETURN_IF_ERROR(RequireBlocks(args.y_blocks, args.y_quant, rows, cols, 1, kOp));
  HEARTH_RETURN_IF_ERROR(RequireRound(args.round_sum, kOp));
  return RequireRound(args.round_y, kOp);
}

size_t LayerNormForwardWorkspaceBytes(const LayerNormForwardArgs&) {
  return 0;
}

bool WritesBlocks(const Exec& exec, const LayerNormForwardArgs& args) {
  return cuda::NormWritesBlocks(exec, args.x.cols(), !args.rstd.empty());
}

absl::Status LayerNormForward(const Exec& exec, const LayerNormForwardArgs& args) {
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  HEARTH_RETURN_IF_ERROR(RequireStorage(exec, args.x.dtype, kOp));
  HEARTH_RETURN_IF_ERROR(
      RequireFormStorage(exec, args.x.dtype, !args.y_quant.empty() || !args.y_blocks.empty(), kOp));
  HEARTH_RUN_ON_CUDA(exec, kOp, LayerNormForward(exec, args));
  HEARTH_RETURN_IF_ERROR(RequireCpu(exec, kOp));
  const auto compute = [&](const TensorView& y) {
    LayerNormForwardArgs plain = args;
    plain.y = y;
    return DispatchFloating(args.x.dtype,
                            [&]<typename T>() { return ForwardImpl<T>(exec, plain); });
  };
  return ComputeWithBlocks(exec, args.y, args.y_blocks, args.x.dtype, args.x.rows(), args.x.cols(),
                           compute);
}

absl::Status CanImplement(const LayerNormBackwardArgs& args) {
  HEARTH_RETURN_IF_ERROR(RequireFloating(args.dy, kOp, "dy"));
  const DType dtype = args.dy.dtype;
  const int64_t rows = args.dy.rows();
  const int64_t cols = args.dy.cols();
  HEARTH_RETURN_IF_ERROR(RequireCount(args.s, dtype, rows * cols, kOp, "s"));
  HEARTH_RETURN_IF_ERROR(RequireCount(args.mean, StatisticsType(dtype), rows, kOp, "mean"));
  HEARTH_RETURN_IF_ERROR(RequireCount(args.rstd, StatisticsType(dtype), rows, kOp, "rstd"));
  HEARTH_RETURN_IF_ERROR(RequireCount(args.weight, dtype, cols, kOp, "weight"));
  HEARTH_RETURN_IF_ERROR(RequireCount(args.dx, dtype, rows * cols, kOp, "dx"));
  if (!args.d_sum.empty()) {
    HEARTH_RETURN_IF_ERROR(RequireCount(args.d_sum, dtype, rows * cols, kOp, "d_sum"));
  }
  if (!args.d_weight.empty()) {
    HEARTH_RETURN_IF_ERROR(RequireGradient(args.d_weight, dtype, cols, kOp, "d_weight"));
  }
  if (!args.d_bias.empty()) {
    HEARTH_RETURN_IF_ERROR(RequireGradient(args.d_bias, dtype, cols, kOp, "d_bias"));
  }
  HEARTH_RETURN_IF_ERROR(RequireQuant(args.dx_quant, kOp));
  HEARTH_RETURN_IF_ERROR(RequireBlocks(args.dx_blocks, args.dx_quant, rows, cols, 1, kOp));
  return RequireRound(args.round_dx, kOp);
}

size_t LayerNormBackwardWorkspaceBytes(const LayerNormBackwardArgs& args) {
  const int64_t rows = args.dy.rows();
  const int64_t cols = args.dy.cols();
  return 2 * std::max(DTypeBytes(StatisticsType(args.dy.dtype), CeilDiv(rows, kReduceRows) * cols),
                      cuda::NormPartialBytes(rows, cols));
}

bool WritesBlocks(const Exec& exec, const LayerNormBackwardArgs& args) {
  return cuda::NormGradientWritesBlocks(exec, static_cast<int64_t>(DTypeBytes(args.dy.dtype, 1)),
                                        args.dy.cols(), 2);
}

absl::Status LayerNormBackward(const Exec& exec, const LayerNormBackwardArgs& args) {
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  HEARTH_RETURN_IF_ERROR(RequireStorage(exec, args.dy.dtype, kOp));
  HEARTH_RETURN_IF_ERROR(RequireFormStorage(
      exec, args.dy.dtype, !args.dx_quant.empty() || !args.dx_blocks.empty(), kOp));
  if (!args.d_weight.empty()) {
    HEARTH_RETURN_IF_ERROR(RequireStorage(exec, args.d_weight.dtype, kOp));
  }
  if (!args.d_bias.empty()) {
    HEARTH_RETURN_IF_ERROR(RequireStorage(exec, args.d_bias.dtype, kOp));
  }
  HEARTH_RETURN_IF_ERROR(RequireWorkspace(exec, LayerNormBackwardWorkspaceBytes(args), kOp));
  HEARTH_RUN_ON_CUDA(exec, kOp, LayerNormBackward(exec, args));
  HEARTH_RETURN_IF_ERROR(RequireCpu(exec, kOp));
  const auto compute = [&](const TensorView&) {
    return DispatchFloating(args.dy.dtype,
                            [&]<typename T>() { return BackwardImpl<T>(exec, args); });
  };
  return ComputeWithBlocks(exec, args.dx, args.dx_blocks, args.dy.dtype, args.dy.rows(),
                           args.dy.cols(), compute);
}

}  // namespace hearth::kernels
