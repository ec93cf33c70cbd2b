#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/core/cpu.h"
#include "kernels/formats/span.h"
#include "kernels/gemm/blas.h"
#include "kernels/gemm/gemm.h"

namespace hearth::kernels {
namespace {

constexpr char kOp[] = "gemm";

HEARTH_SIMD void AddBiasRow(float* c, const float* bias, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    c[i] += bias[i];
  }
}
HEARTH_SIMD void AddBiasRow(double* c, const double* bias, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    c[i] += bias[i];
  }
}

template <typename T>
absl::Status GemmImpl(const Exec& exec, const GemmArgs& args) {
  const int64_t m = args.c.rows();
  const int64_t n = args.c.cols();
  const int64_t k = args.transpose_a ? args.a.rows() : args.a.cols();
  T* c = args.c.as<T>();
  const T* bias = args.bias.as<T>();
  blas::SetThreads(exec.threads);
  blas::Gemm(args.transpose_a, args.transpose_b, m, n, k, static_cast<T>(args.alpha),
             args.a.as<T>(), args.a.cols(), args.b.as<T>(), args.b.cols(),
             static_cast<T>(args.beta), c, n);
  if (bias != nullptr || (args.round_c != DType::kF32 && args.round_c != DType::kF64)) {
    ParallelFor(exec, m, RowGrain(n), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        if (bias != nullptr) {
          AddBiasRow(c + row * n, bias, n);
        }
        RoundSpan(c + row * n, n, args.round_c);
      }
    });
  }
  return absl::OkStatus();
}

// Sums rows [begin, end) of x into out.
template <typename T>
HEARTH_INLINE void SumRows(const T* x, int64_t begin, int64_t end, int64_t n, T* out) {
  std::fill(out, out + n, T{0});
  for (int64_t row = begin; row < end; ++row) {
    const T* x_row = x + row * n;
    for (int64_t i = 0; i < n; ++i) {
      out[i] += x_row[i];
    }
  }
}
HEARTH_SIMD void SumRowsChunk(const float* x, int64_t begin, int64_t end, int64_t n, float* out) {
  SumRows(x, begin, end, n, out);
}
HEARTH_SIMD void SumRowsChunk(const double* x, int64_t begin, int64_t end, int64_t n, double* out) {
  SumRows(x, begin, end, n, out);
}

template <typename T>
absl::Status ColumnSumImpl(const Exec& exec, const ColumnSumArgs& args) {
  const int64_t m = args.x.rows();
  const int64_t n = args.x.cols();
  T* partial = static_cast<T*>(exec.workspace.data);
  ParallelFor(exec, m, kReduceRows, [&](int64_t begin, int64_t end) {
    SumRowsChunk(args.x.as<T>(), begin, end, n, partial + begin / kReduceRows * n);
  });
  T* out = args.out.as<T>();
  const T beta = static_cast<T>(args.beta);
  for (int64_t i = 0; i < n; ++i) {
    out[i] = beta == T{0} ? T{0} : beta * out[i];
  }
  AddChunks(partial, CeilDiv(m, kReduceRows), n, out);
  return absl::OkStatus();
}

}  // namespace

absl::Status CanImplement(const GemmArgs& args) {
  HEARTH_RETURN_IF_ERROR(RequireFloating(args.a, kOp, "a"));
  HEARTH_RETURN_IF_ERROR(RequireFloating(args.b, kOp, "b"));
  const int64_t m = args.transpose_a ? args.a.cols() : args.a.rows();
  const int64_t k = args.transpose_a ? args.a.rows() : args.a.cols();
  const int64_t n = args.transpose_b ? args.b.rows() : args.b.cols();
  const int64_t k_of_b = args.transpose_b ? args.b.cols() : args.b.rows();
  if (k != k_of_b || args.a.dtype != args.b.dtype) {
    return absl::InvalidArgumentError(absl::StrCat(kOp, ": a ", DebugString(args.a), " and b ",
                                                   DebugString(args.b), " do not match"));
  }
  if (args.c.empty() || args.c.dtype != args.a.dtype || args.c.rows() != m || args.c.cols() != n) {
    return absl::InvalidArgumentError(absl::StrCat(kOp, ": c is ", DebugString(args.c),
                                                   ", expected [", m, ", ", n, "] of a's dtype"));
  }
  if (std::max({m, n, k}) > std::numeric_limits<int>::max()) {
    return absl::InvalidArgumentError(absl::StrCat(kOp, ": an extent exceeds 2^31 - 1"));
  }
  if (!args.bias.empty()) {
    HEARTH_RETURN_IF_ERROR(RequireCount(args.bias, args.a.dtype, n, kOp, "bias"));
  }
  return RequireRound(args.round_c, kOp);
}

size_t GemmWorkspaceBytes(const GemmArgs&) {
  return 0;
}

absl::Status Gemm(const Exec& exec, const GemmArgs& args) {
  HEARTH_RETURN_IF_ERROR(RequireCpu(exec, kOp));
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  return DispatchFloating(args.a.dtype, [&]<typename T>() { return GemmImpl<T>(exec, args); });
}

absl::Status CanImplement(const ColumnSumArgs& args) {
  HEARTH_RETURN_IF_ERROR(RequireFloating(args.x, "column_sum", "x"));
  return RequireCount(args.out, args.x.dtype, args.x.cols(), "column_sum", "out");
}

size_t ColumnSumWorkspaceBytes(const ColumnSumArgs& args) {
  return DTypeBytes(args.x.dtype, CeilDiv(args.x.rows(), kReduceRows) * args.x.cols());
}

absl::Status ColumnSum(const Exec& exec, const ColumnSumArgs& args) {
  HEARTH_RETURN_IF_ERROR(RequireCpu(exec, "column_sum"));
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  HEARTH_RETURN_IF_ERROR(RequireWorkspace(exec, ColumnSumWorkspaceBytes(args), "column_sum"));
  return DispatchFloating(args.x.dtype, [&]<typename T>() { return ColumnSumImpl<T>(exec, args); });
}

}  // namespace hearth::kernels
