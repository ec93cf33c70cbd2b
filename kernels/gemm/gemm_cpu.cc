#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/block_quantize/block_quantize.h"
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
void Multiply(
    const Exec& exec, const GemmArgs& args, T alpha, const T* a, const T* b, const GemmExtents& e) {
  T* c = args.c.as<T>();
  const T* bias = args.bias.as<T>();
  blas::SetThreads(exec.threads);
  blas::Gemm(args.transpose_a, args.transpose_b, e.m, e.n, e.k, alpha, a, e.lda, b, e.ldb,
             static_cast<T>(args.beta), c, e.ldc);
  if (bias != nullptr || (args.round_c != DType::kF32 && args.round_c != DType::kF64)) {
    ParallelFor(exec, e.m, RowGrain(e.n), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        if (bias != nullptr) {
          AddBiasRow(c + row * e.ldc, bias, e.n);
        }
        RoundSpan(c + row * e.ldc, e.n, args.round_c);
      }
    });
  }
}

// Product `i` of a batch; what beta multiplies lies in c then.
template <typename T>
void MultiplyOne(const Exec& exec, const GemmArgs& args, const GemmExtents& e, int64_t i) {
  GemmArgs one = args;
  T* const c = args.c.as<T>() + i * args.stride_c;
  one.c.data = c;
  if (!args.addend.empty() && args.beta != 0.0) {
    const T* const addend = args.addend.as<T>() + i * args.stride_c;
    ParallelFor(exec, e.m, RowGrain(e.n), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        std::copy_n(addend + row * e.ldc, e.n, c + row * e.ldc);
      }
    });
  }
  Multiply(exec, one, static_cast<T>(args.alpha), args.a.as<T>() + i * args.stride_a,
           args.b.as<T>() + i * args.stride_b, e);
}

// FP8 or BF16 matrix [rows, cols] with rows of `ld` elements to contiguous floats.
void WidenRows(const Exec& exec, const TensorView& x, int64_t ld, float* out) {
  const int64_t cols = x.cols();
  const int64_t row_bytes = DTypeBytes(x.dtype, ld);
  ParallelFor(exec, x.rows(), RowGrain(cols), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      DecodeSpan(x.as<uint8_t>() + row * row_bytes, cols, x.dtype, out + row * cols);
    }
  });
}

double ScaleOf(const float* scale) {
  return scale != nullptr ? double{*scale} : 1.0;
}

// An operand that is stored in a narrow format, as contiguous floats of the same shape.
absl::Status WidenOperand(const Exec& exec,
                          const TensorView& x,
                          int64_t ld,
                          BlockLayout layout,
                          const uint8_t* block_scales,
                          float* out) {
  if (block_scales != nullptr) {
    return BlockDequantize(
        exec, {{layout, x.dtype, x.data, block_scales, nullptr}, View(out, {x.rows(), x.cols()})});
  }
  WidenRows(exec, x, ld, out);
  return absl::OkStatus();
}

// The product of operands that are widened into the workspace, a and then b; the scales of their
// tensors are left to the product.
absl::Status MultiplyWidened(const Exec& exec, const GemmArgs& args) {
  HEARTH_RETURN_IF_ERROR(RequireStorage(exec, args.c.dtype, kOp));
  HEARTH_RETURN_IF_ERROR(RequireWorkspace(exec, GemmWorkspaceBytes(exec, args), kOp));
  GemmExtents e = ExtentsOf(args);
  float* a = static_cast<float*>(exec.workspace.data);
  float* b = a + e.m * e.k;
  HEARTH_RETURN_IF_ERROR(
      WidenOperand(exec, args.a, e.lda, args.block_layout_a, args.block_scales_a, a));
  HEARTH_RETURN_IF_ERROR(
      WidenOperand(exec, args.b, e.ldb, args.block_layout_b, args.block_scales_b, b));
  e.lda = args.a.cols();
  e.ldb = args.b.cols();
  const double scale = ScaleOf(args.scale_a) * ScaleOf(args.scale_b);
  Multiply(exec, args, static_cast<float>(args.alpha * scale), a, b, e);
  return absl::OkStatus();
}

// y = x wT with a fused norm of x. Without BLAS, as references and tests are all that call it.
template <typename T>
void MultiplyNormed(const Exec& exec, const GemmArgs& args) {
  const GemmExtents e = ExtentsOf(args);
  const T* const weight = args.input_norm.weight.as<T>();
  const T* const bias = args.bias.as<T>();
  const T* const addend = args.addend.empty() ? args.c.as<T>() : args.addend.as<T>();
  ParallelFor(exec, e.m, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const T* const a = args.a.as<T>() + row * e.lda;
      double squares = 0.0;
      for (int64_t k = 0; k < e.k; ++k) {
        squares += static_cast<double>(a[k]) * a[k];
      }
      const T rstd =
          static_cast<T>(1.0 / std::sqrt(squares / static_cast<double>(e.k) + args.input_norm.eps));
      for (int64_t n = 0; n < e.n; ++n) {
        const T* const b = args.b.as<T>() + n * e.ldb;
        T sum{0};
        for (int64_t k = 0; k < e.k; ++k) {
          T product = a[k] * weight[k];
          RoundSpan(&product, 1, args.round_c);
          sum += product * b[k];
        }
        T y = sum * rstd + (bias != nullptr ? bias[n] : T{0});
        if (args.beta != 0.0) {
          y += static_cast<T>(args.beta) * addend[row * e.ldc + n];
        }
        args.c.as<T>()[row * e.ldc + n] = y;
      }
      RoundSpan(args.c.as<T>() + row * e.ldc, e.n, args.round_c);
    }
  });
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
  // Fixed chunks of rows, added in their order: the bits do not depend on the threads.
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

namespace cpu {

absl::Status Gemm(const Exec& exec, const GemmArgs& args) {
  if (args.scalars != nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(kOp, ": scalars are for a GPU"));
  }
  const bool widened = args.a.dtype != DType::kF32 && args.a.dtype != DType::kF64;
  if (widened && !args.input_norm.weight.empty()) {
    return absl::UnimplementedError(absl::StrCat(kOp, ": input_norm of ", DebugString(args.a)));
  }
  if (widened && args.batch == 1) {
    return MultiplyWidened(exec, args);
  }
  HEARTH_RETURN_IF_ERROR(RequireStorage(exec, args.a.dtype, kOp));
  return DispatchFloating(args.a.dtype, [&]<typename T>() {
    if (!args.input_norm.weight.empty()) {
      MultiplyNormed<T>(exec, args);
      return absl::OkStatus();
    }
    const GemmExtents e = ExtentsOf(args);
    for (int64_t i = 0; i < args.batch; ++i) {
      MultiplyOne<T>(exec, args, e, i);
    }
    return absl::OkStatus();
  });
}

absl::Status ColumnSum(const Exec& exec, const ColumnSumArgs& args) {
  return DispatchFloating(args.x.dtype, [&]<typename T>() { return ColumnSumImpl<T>(exec, args); });
}

}  // namespace cpu

}  // namespace hearth::kernels
