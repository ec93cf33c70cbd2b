#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/block_quantize/block_quantize.h"
#include "kernels/core/cpu.h"
#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/norm.h"
#include "kernels/formats/quant.h"
#include "kernels/formats/span.h"
#include "kernels/rmsnorm/rmsnorm.h"

namespace hearth::kernels {
namespace {

constexpr char kOp[] = "rmsnorm";
constexpr int64_t kPiece = 512;  // columns between normalising and quantising

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
HEARTH_INLINE T RstdImpl(const T* s, int64_t n, T eps) {
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) {
    sum += s[i] * s[i];
  }
  return T{1} / std::sqrt(sum / static_cast<T>(n) + eps);
}
HEARTH_SIMD float RowRstd(const float* s, int64_t n, float eps) {
  return RstdImpl(s, n, eps);
}
HEARTH_SIMD double RowRstd(const double* s, int64_t n, double eps) {
  return RstdImpl(s, n, eps);
}

template <typename T>
HEARTH_INLINE void NormalizeImpl(const T* s, const T* weight, T rstd, int64_t n, T* y) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    y[i] = s[i] * rstd * weight[i];
  }
}
HEARTH_SIMD void Normalize(const float* s, const float* weight, float rstd, int64_t n, float* y) {
  NormalizeImpl(s, weight, rstd, n, y);
}
HEARTH_SIMD void Normalize(
    const double* s, const double* weight, double rstd, int64_t n, double* y) {
  NormalizeImpl(s, weight, rstd, n, y);
}

template <typename T>
absl::Status ForwardImpl(const Exec& exec, const RmsNormForwardArgs& args) {
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
      const T rstd = RowRstd(s, cols, static_cast<T>(args.eps));
      T piece[kPiece];
      for (int64_t col = 0; col < cols; col += kPiece) {
        const int64_t n = std::min(kPiece, cols - col);
        T* y = args.y.empty() ? piece : args.y.as<T>() + row * cols + col;
        Normalize(s + col, args.weight.as<T>() + col, rstd, n, y);
        RoundSpan(y, n, args.round_y);
        QuantizeRow(args.y_quant, rows, cols, row, col, y, n);
      }
      if (!args.rstd.empty()) {
        args.rstd.as<T>()[row] = rstd;
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
  T* d_weight;  // partial sums of this chunk of rows, or null
  T rstd;
};

template <typename T>
HEARTH_INLINE void BackwardRowImpl(const BackwardRow<T>& r, int64_t n) {
  const T* dy = r.dy;
  const T* s = r.s;
  const T* weight = r.weight;
  const T* d_sum = r.d_sum;
  T* dx = r.dx;
  T* d_weight = r.d_weight;
  const T rstd = r.rstd;
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
  const T slope = dot * rstd * rstd * rstd / static_cast<T>(n);
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
HEARTH_SIMD void RunBackwardRow(const BackwardRow<float>& r, int64_t n) {
  BackwardRowImpl(r, n);
}
HEARTH_SIMD void RunBackwardRow(const BackwardRow<double>& r, int64_t n) {
  BackwardRowImpl(r, n);
}

template <typename T>
absl::Status BackwardImpl(const Exec& exec, const RmsNormBackwardArgs& args) {
  const int64_t cols = args.dy.cols();
  const int64_t rows = args.dy.rows();
  T* partial = args.d_weight.empty() ? nullptr : static_cast<T*>(exec.workspace.data);
  ParallelFor(exec, rows, kReduceRows, [&](int64_t begin, int64_t end) {
    T* chunk = partial == nullptr ? nullptr : partial + begin / kReduceRows * cols;
    if (chunk != nullptr) {
      std::fill_n(chunk, cols, T{0});
    }
    for (int64_t row = begin; row < end; ++row) {
      const int64_t at = row * cols;
      T* dx = args.dx.as<T>() + at;
      RunBackwardRow(BackwardRow<T>{args.dy.as<T>() + at, args.s.as<T>() + at, args.weight.as<T>(),
                                    args.d_sum.empty() ? nullptr : args.d_sum.as<T>() + at, dx,
                                    chunk, args.rstd.as<T>()[row]},
                     cols);
      RoundSpan(dx, cols, args.round_dx);
      QuantizeRow(args.dx_quant, rows, cols, row, 0, dx, cols);
    }
  });
  if (partial != nullptr) {
    AddChunks(partial, CeilDiv(rows, kReduceRows), cols, args.d_weight.as<T>());
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CanImplement(const RmsNormForwardArgs& args) {
  HEARTH_RETURN_IF_ERROR(RequireFloating(args.x, kOp, "x"));
  const DType dtype = args.x.dtype;
  const int64_t rows = args.x.rows();
  const int64_t cols = args.x.cols();
  if (!args.y.empty() || (!args.y_quant.has_values() && args.y_blocks.empty())) {
    HEARTH_RETURN_IF_ERROR(RequireCount(args.y, dtype, rows * cols, kOp, "y"));
  }
  HEARTH_RETURN_IF_ERROR(RequireCount(args.weight, dtype, cols, kOp, "weight"));
  if (args.residual.empty() != args.sum.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(kOp, ": residual and sum must both be present or both absent"));
  }
  if (!args.residual.empty()) {
    HEARTH_RETURN_IF_ERROR(RequireCount(args.residual, dtype, rows * cols, kOp, "residual"));
    HEARTH_RETURN_IF_ERROR(RequireCount(args.sum, dtype, rows * cols, kOp, "sum"));
    if (args.sum.data == args.y.data) {
      return absl::InvalidArgumentError(absl::StrCat(kOp, ": sum may not alias y"));
    }
  }
  if (!args.rstd.empty()) {
    HEARTH_RETURN_IF_ERROR(RequireCount(args.rstd, StatisticsType(dtype), rows, kOp, "rstd"));
  }
  HEARTH_RETURN_IF_ERROR(RequireQuant(args.y_quant, kOp));
  HEARTH_RETURN_IF_ERROR(RequireBlocks(args.y_blocks, args.y_quant, rows, cols, 1, kOp));
  HEARTH_RETURN_IF_ERROR(RequireRound(args.round_sum, kOp));
  return RequireRound(args.round_y, kOp);
}

size_t RmsNormForwardWorkspaceBytes(const RmsNormForwardArgs&) {
  return 0;
}

bool WritesBlocks(const Exec& exec, const RmsNormForwardArgs& args) {
  return cuda::NormWritesBlocks(exec, args.x.cols(), !args.rstd.empty());
}

absl::Status RmsNormForward(const Exec& exec, const RmsNormForwardArgs& args) {
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  HEARTH_RETURN_IF_ERROR(RequireStorage(exec, args.x.dtype, kOp));
  HEARTH_RETURN_IF_ERROR(
      RequireFormStorage(exec, args.x.dtype, !args.y_quant.empty() || !args.y_blocks.empty(), kOp));
  HEARTH_RUN_ON_CUDA(exec, kOp, RmsNormForward(exec, args));
  HEARTH_RETURN_IF_ERROR(RequireCpu(exec, kOp));
  const auto compute = [&](const TensorView& y) {
    RmsNormForwardArgs plain = args;
    plain.y = y;
    return DispatchFloating(args.x.dtype,
                            [&]<typename T>() { return ForwardImpl<T>(exec, plain); });
  };
  return ComputeWithBlocks(exec, args.y, args.y_blocks, args.x.dtype, args.x.rows(), args.x.cols(),
                           compute);
}

absl::Status CanImplement(const RmsNormBackwardArgs& args) {
  HEARTH_RETURN_IF_ERROR(RequireFloating(args.dy, kOp, "dy"));
  const DType dtype = args.dy.dtype;
  const int64_t rows = args.dy.rows();
  const int64_t cols = args.dy.cols();
  HEARTH_RETURN_IF_ERROR(RequireCount(args.s, dtype, rows * cols, kOp, "s"));
  HEARTH_RETURN_IF_ERROR(RequireCount(args.rstd, StatisticsType(dtype), rows, kOp, "rstd"));
  HEARTH_RETURN_IF_ERROR(RequireCount(args.weight, dtype, cols, kOp, "weight"));
  HEARTH_RETURN_IF_ERROR(RequireCount(args.dx, dtype, rows * cols, kOp, "dx"));
  if (!args.d_sum.empty()) {
    HEARTH_RETURN_IF_ERROR(RequireCount(args.d_sum, dtype, rows * cols, kOp, "d_sum"));
  }
  if (!args.d_weight.empty()) {
    HEARTH_RETURN_IF_ERROR(RequireGradient(args.d_weight, dtype, cols, kOp, "d_weight"));
  }
  HEARTH_RETURN_IF_ERROR(RequireQuant(args.dx_quant, kOp));
  HEARTH_RETURN_IF_ERROR(RequireBlocks(args.dx_blocks, args.dx_quant, rows, cols, 1, kOp));
  return RequireRound(args.round_dx, kOp);
}

size_t RmsNormBackwardWorkspaceBytes(const RmsNormBackwardArgs& args) {
  if (args.d_weight.empty()) {
    return 0;
  }
  const int64_t rows = args.dy.rows();
  const int64_t cols = args.dy.cols();
  return std::max(DTypeBytes(StatisticsType(args.dy.dtype), CeilDiv(rows, kReduceRows) * cols),
                  cuda::NormPartialBytes(rows, cols));
}

bool WritesBlocks(const Exec& exec, const RmsNormBackwardArgs& args) {
  return cuda::NormGradientWritesBlocks(exec, static_cast<int64_t>(DTypeBytes(args.dy.dtype, 1)),
                                        args.dy.cols(), 1);
}

absl::Status RmsNormBackward(const Exec& exec, const RmsNormBackwardArgs& args) {
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  HEARTH_RETURN_IF_ERROR(RequireStorage(exec, args.dy.dtype, kOp));
  HEARTH_RETURN_IF_ERROR(RequireFormStorage(
      exec, args.dy.dtype, !args.dx_quant.empty() || !args.dx_blocks.empty(), kOp));
  if (!args.d_weight.empty()) {
    HEARTH_RETURN_IF_ERROR(RequireStorage(exec, args.d_weight.dtype, kOp));
  }
  HEARTH_RETURN_IF_ERROR(RequireWorkspace(exec, RmsNormBackwardWorkspaceBytes(args), kOp));
  HEARTH_RUN_ON_CUDA(exec, kOp, RmsNormBackward(exec, args));
  HEARTH_RETURN_IF_ERROR(RequireCpu(exec, kOp));
  const auto compute = [&](const TensorView&) {
    return DispatchFloating(args.dy.dtype,
                            [&]<typename T>() { return BackwardImpl<T>(exec, args); });
  };
  return ComputeWithBlocks(exec, args.dx, args.dx_blocks, args.dy.dtype, args.dy.rows(),
                           args.dy.cols(), compute);
}

}  // namespace hearth::kernels
