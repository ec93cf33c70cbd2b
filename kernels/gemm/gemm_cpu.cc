#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/block_quantize/block_quantize.h"
#include "kernels/core/cpu.h"
#include "kernels/cuda/dispatch.h"
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

bool EightBits(DType dtype) {
  return dtype == DType::kE4M3 || dtype == DType::kE5M2;
}
// Formats that are contracted along their rows and have scales.
bool IsNarrow(DType dtype) {
  return EightBits(dtype) || dtype == DType::kE2M1;
}
bool IsBlockScaled(const GemmArgs& args) {
  return args.block_scales_a != nullptr;
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

// FP8 matrix [rows, cols] with rows of `ld` elements to contiguous floats.
void WidenRows(const Exec& exec, const TensorView& x, int64_t ld, float* out) {
  const int64_t cols = x.cols();
  ParallelFor(exec, x.rows(), RowGrain(cols), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      DecodeSpan(x.as<uint8_t>() + row * ld, cols, x.dtype, out + row * cols);
    }
  });
}

absl::Status GemmFp8(const Exec& exec, const GemmArgs& args) {
  HEARTH_RETURN_IF_ERROR(RequireStorage(exec, args.c.dtype, kOp));
  HEARTH_RETURN_IF_ERROR(RequireWorkspace(exec, GemmWorkspaceBytes(exec, args), kOp));
  GemmExtents e = ExtentsOf(args);
  float* a = static_cast<float*>(exec.workspace.data);
  float* b = a + e.m * e.k;
  WidenRows(exec, args.a, e.lda, a);
  WidenRows(exec, args.b, e.ldb, b);
  e.lda = e.ldb = e.k;
  const double scale = double{*args.scale_a} * double{*args.scale_b};
  Multiply(exec, args, static_cast<float>(args.alpha * scale), a, b, e);
  return absl::OkStatus();
}

absl::Status GemmBlockScaled(const Exec& exec, const GemmArgs& args) {
  HEARTH_RETURN_IF_ERROR(RequireStorage(exec, args.c.dtype, kOp));
  HEARTH_RETURN_IF_ERROR(RequireWorkspace(exec, GemmWorkspaceBytes(exec, args), kOp));
  GemmExtents e = ExtentsOf(args);
  float* a = static_cast<float*>(exec.workspace.data);
  float* b = a + e.m * e.k;
  HEARTH_RETURN_IF_ERROR(BlockDequantize(
      exec, {{args.a.dtype, args.a.data, args.block_scales_a, nullptr}, View(a, {e.m, e.k})}));
  HEARTH_RETURN_IF_ERROR(BlockDequantize(
      exec, {{args.b.dtype, args.b.data, args.block_scales_b, nullptr}, View(b, {e.n, e.k})}));
  e.lda = e.ldb = e.k;
  const double scale =
      args.scale_a != nullptr ? double{*args.scale_a} * double{*args.scale_b} : 1.0;
  Multiply(exec, args, static_cast<float>(args.alpha * scale), a, b, e);
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

// Which dtypes go together.
absl::Status CheckTypes(const GemmArgs& args) {
  const DType a = args.a.dtype;
  const DType b = args.b.dtype;
  const DType c = args.c.dtype;
  const bool blocks = IsBlockScaled(args);
  const bool fp8 = (EightBits(a) && EightBits(b)) || (blocks && a == b && a == DType::kE2M1);
  if (blocks && !fp8) {
    return absl::InvalidArgumentError(absl::StrCat(
        kOp, ": block scales with a ", DebugString(args.a), " and b ", DebugString(args.b)));
  }
  if (fp8 ? a == DType::kE5M2 && b == DType::kE5M2 : a != b) {
    return absl::InvalidArgumentError(absl::StrCat(kOp, ": a ", DebugString(args.a), " and b ",
                                                   DebugString(args.b), " do not go together"));
  }
  const bool summed = c == DType::kF32 && (fp8 || a == DType::kBF16);
  if (!summed && c != (fp8 ? DType::kBF16 : a)) {
    return absl::InvalidArgumentError(
        absl::StrCat(kOp, ": c is ", DebugString(args.c), ", a is ", DebugString(args.a)));
  }
  const bool optional = blocks && a != DType::kE2M1 && args.scale_a == nullptr;
  if ((args.block_scales_a == nullptr) != (args.block_scales_b == nullptr) ||
      (!fp8 && (a == DType::kE2M1 || b == DType::kE2M1))) {
    return absl::InvalidArgumentError(
        absl::StrCat(kOp, ": block scales are those of both operands, and E2M1 comes with them"));
  }
  if ((fp8 && !optional) != (args.scale_a != nullptr) ||
      (fp8 && !optional) != (args.scale_b != nullptr)) {
    return absl::InvalidArgumentError(
        absl::StrCat(kOp, ": scale_a and scale_b come with FP8 operands and only with them"));
  }
  const bool narrow_bias = c == DType::kF32 && args.bias.dtype == DType::kBF16;
  if (!args.bias.empty() && args.bias.dtype != c && !narrow_bias) {
    return absl::InvalidArgumentError(absl::StrCat(kOp, ": bias is ", DebugString(args.bias)));
  }
  return absl::OkStatus();
}

absl::Status CheckFp8Layout(const GemmArgs& args, const GemmExtents& e) {
  if (args.transpose_a || !args.transpose_b) {
    return absl::InvalidArgumentError(
        absl::StrCat(kOp, ": FP8 operands need transpose_b and no transpose_a"));
  }
  if (IsBlockScaled(args) && (e.k % 32 != 0 || e.lda != e.k || e.ldb != e.k)) {
    return absl::InvalidArgumentError(
        absl::StrCat(kOp, ": block-scaled operands are contiguous, k a multiple of 32: k = ", e.k,
                     ", lda = ", e.lda, ", ldb = ", e.ldb));
  }
  if (e.k % 16 != 0 || e.n % 16 != 0 || e.lda % 16 != 0 || e.ldb % 16 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(kOp, ": FP8 operands need multiples of 16: k = ", e.k, ", n = ", e.n,
                     ", lda = ", e.lda, ", ldb = ", e.ldb));
  }
  return absl::OkStatus();
}

}  // namespace

GemmExtents ExtentsOf(const GemmArgs& args) {
  GemmExtents e;
  e.m = args.transpose_a ? args.a.cols() : args.a.rows();
  e.k = args.transpose_a ? args.a.rows() : args.a.cols();
  e.n = args.transpose_b ? args.b.rows() : args.b.cols();
  e.lda = args.lda > 0 ? args.lda : args.a.cols();
  e.ldb = args.ldb > 0 ? args.ldb : args.b.cols();
  e.ldc = args.ldc > 0 ? args.ldc : args.c.cols();
  return e;
}

absl::Status CanImplement(const GemmArgs& args) {
  if (args.a.empty() || !IsNarrow(args.a.dtype)) {
    HEARTH_RETURN_IF_ERROR(RequireFloating(args.a, kOp, "a"));
  }
  if (args.b.empty() || !IsNarrow(args.b.dtype)) {
    HEARTH_RETURN_IF_ERROR(RequireFloating(args.b, kOp, "b"));
  }
  HEARTH_RETURN_IF_ERROR(RequireFloating(args.c, kOp, "c"));
  HEARTH_RETURN_IF_ERROR(CheckTypes(args));
  const GemmExtents e = ExtentsOf(args);
  const int64_t k_of_b = args.transpose_b ? args.b.cols() : args.b.rows();
  if (e.k != k_of_b) {
    return absl::InvalidArgumentError(absl::StrCat(kOp, ": a ", DebugString(args.a), " and b ",
                                                   DebugString(args.b), " do not match"));
  }
  if (args.c.rows() != e.m || args.c.cols() != e.n) {
    return absl::InvalidArgumentError(
        absl::StrCat(kOp, ": c is ", DebugString(args.c), ", expected [", e.m, ", ", e.n, "]"));
  }
  if (e.lda < args.a.cols() || e.ldb < args.b.cols() || e.ldc < args.c.cols()) {
    return absl::InvalidArgumentError(absl::StrCat(
        kOp, ": a leading dimension is shorter than a row: ", e.lda, ", ", e.ldb, ", ", e.ldc));
  }
  if (std::max({e.m, e.n, e.k, e.lda, e.ldb, e.ldc}) > std::numeric_limits<int>::max()) {
    return absl::InvalidArgumentError(absl::StrCat(kOp, ": an extent exceeds 2^31 - 1"));
  }
  if (IsNarrow(args.a.dtype)) {
    HEARTH_RETURN_IF_ERROR(CheckFp8Layout(args, e));
  }
  if (!args.bias.empty()) {
    HEARTH_RETURN_IF_ERROR(RequireCount(args.bias, args.bias.dtype, e.n, kOp, "bias"));
  }
  return RequireRound(args.round_c, kOp);
}

size_t GemmWorkspaceBytes(const Exec& exec, const GemmArgs& args) {
  const GemmExtents e = ExtentsOf(args);
  if (exec.device == Device::kCuda) {
    return cuda::kGemmWorkspaceBytes + cuda::EmulationBytes(args);
  }
  return IsNarrow(args.a.dtype) ? DTypeBytes(DType::kF32, (e.m + e.n) * e.k) : 0;
}

size_t GemmWorkspaceBytes(const GemmArgs& args) {
  const size_t cpu = GemmWorkspaceBytes(Exec(), args);
  return args.a.dtype == DType::kF32 || args.a.dtype == DType::kF64
             ? cpu
             : std::max(cpu, cuda::kGemmWorkspaceBytes + cuda::EmulationBytes(args));
}

absl::Status Gemm(const Exec& exec, const GemmArgs& args) {
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  HEARTH_RUN_ON_CUDA(exec, kOp, Gemm(exec, args));
  HEARTH_RETURN_IF_ERROR(RequireCpu(exec, kOp));
  if (args.scalars != nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(kOp, ": scalars are for a GPU"));
  }
  if (IsBlockScaled(args)) {
    return GemmBlockScaled(exec, args);
  }
  if (EightBits(args.a.dtype)) {
    return GemmFp8(exec, args);
  }
  HEARTH_RETURN_IF_ERROR(RequireStorage(exec, args.a.dtype, kOp));
  return DispatchFloating(args.a.dtype, [&]<typename T>() {
    Multiply(exec, args, static_cast<T>(args.alpha), args.a.as<T>(), args.b.as<T>(),
             ExtentsOf(args));
    return absl::OkStatus();
  });
}

size_t cuda::EmulationBytes(const GemmArgs& args) {
  if (!IsBlockScaled(args)) {
    return 0;
  }
  const GemmExtents e = ExtentsOf(args);
  return AlignUp(DTypeBytes(DType::kBF16, e.m * e.k), 256) +
         AlignUp(DTypeBytes(DType::kBF16, e.n * e.k), 256) + 512;
}

GemmPath GemmPathOf(const Exec& exec, const GemmArgs& args) {
#ifdef HEARTH_WITH_CUDA
  if (exec.device == Device::kCuda && exec.cuda != nullptr) {
    return cuda::GemmPathOf(exec, args);
  }
#endif
  static_cast<void>(exec);
  return IsBlockScaled(args) ? GemmPath::kEmulated : GemmPath::kPlain;
}

const char* GemmPathName(GemmPath path) {
  switch (path) {
    case GemmPath::kNative:
      return "native";
    case GemmPath::kEmulated:
      return "emulated";
    case GemmPath::kPlain:
      break;
  }
  return "plain";
}

absl::Status CanImplement(const ColumnSumArgs& args) {
  HEARTH_RETURN_IF_ERROR(RequireFloating(args.x, "column_sum", "x"));
  HEARTH_RETURN_IF_ERROR(RequireFloating(args.out, "column_sum", "out"));
  const bool wide = args.x.dtype == DType::kF64;
  if (wide != (args.out.dtype == DType::kF64)) {
    return absl::InvalidArgumentError(
        absl::StrCat("column_sum: x is ", DebugString(args.x), ", out ", DebugString(args.out)));
  }
  return RequireCount(args.out, args.out.dtype, args.x.cols(), "column_sum", "out");
}

size_t ColumnSumWorkspaceBytes(const ColumnSumArgs& args) {
  const int64_t rows = args.x.rows();
  const int64_t cols = args.x.cols();
  const size_t gpu = DTypeBytes(DType::kF32, cuda::ColumnSumParts(rows) * cols);
  return std::max(gpu, DTypeBytes(args.x.dtype, CeilDiv(rows, kReduceRows) * cols));
}

absl::Status ColumnSum(const Exec& exec, const ColumnSumArgs& args) {
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  HEARTH_RETURN_IF_ERROR(RequireStorage(exec, args.x.dtype, "column_sum"));
  HEARTH_RETURN_IF_ERROR(RequireStorage(exec, args.out.dtype, "column_sum"));
  HEARTH_RETURN_IF_ERROR(RequireWorkspace(exec, ColumnSumWorkspaceBytes(args), "column_sum"));
  HEARTH_RUN_ON_CUDA(exec, "column_sum", ColumnSum(exec, args));
  HEARTH_RETURN_IF_ERROR(RequireCpu(exec, "column_sum"));
  return DispatchFloating(args.x.dtype, [&]<typename T>() { return ColumnSumImpl<T>(exec, args); });
}

}  // namespace hearth::kernels
