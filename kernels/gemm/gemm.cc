#include "kernels/gemm/gemm.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/table_rows.h"
#include "kernels/core/cpu.h"
#include "kernels/thin_gemm/thin_gemm.h"

namespace hearth::kernels {
namespace {

constexpr char kOp[] = "gemm";

bool EightBits(DType dtype) {
  return dtype == DType::kE4M3 || dtype == DType::kE5M2;
}
// Formats that are contracted along their rows and have scales.
bool IsNarrow(DType dtype) {
  return EightBits(dtype) || dtype == DType::kE2M1;
}
bool IsBlockScaled(const GemmArgs& args) {
  return args.block_scales_a != nullptr || args.block_scales_b != nullptr;
}

// An operand and what belongs to it.
struct Side {
  const TensorView& values;
  const float* scale;
  const uint8_t* block_scales;
  const BlockLayoutRow& layout;

  bool narrow() const { return IsNarrow(values.dtype); }
  bool blocks() const { return block_scales != nullptr; }
  // Block scales where the values are in blocks, and only there.
  bool FitsBlocks() const {
    return blocks() ? HoldsValues(layout, values.dtype) : values.dtype != DType::kE2M1;
  }
  // Blocks of a layout without a scale of the tensor may have one all the same.
  bool FitsScale() const {
    const bool required = narrow() && (!blocks() || layout.tensor_scale);
    return scale == nullptr ? !required : narrow();
  }
};
Side SideA(const GemmArgs& args) {
  return {args.a, args.scale_a, args.block_scales_a, RowOf(args.block_layout_a)};
}
Side SideB(const GemmArgs& args) {
  return {args.b, args.scale_b, args.block_scales_b, RowOf(args.block_layout_b)};
}

// Which dtypes go together.
absl::Status CheckTypes(const GemmArgs& args) {
  const Side a = SideA(args);
  const Side b = SideB(args);
  const DType c = args.c.dtype;
  if (!a.FitsBlocks() || !b.FitsBlocks()) {
    if (!IsBlockScaled(args)) {
      return absl::InvalidArgumentError(
          absl::StrCat(kOp, ": block scales are those of both operands, and E2M1 comes with them"));
    }
    return absl::InvalidArgumentError(absl::StrCat(kOp, ": block scales of ", a.layout.name,
                                                   " with a ", DebugString(args.a), " and of ",
                                                   b.layout.name, " with b ", DebugString(args.b)));
  }
  const bool narrow = a.narrow() && b.narrow();
  const bool mixed = IsMixed(args);
  if (narrow ? args.a.dtype == DType::kE5M2 && args.b.dtype == DType::kE5M2
             : !mixed && args.a.dtype != args.b.dtype) {
    return absl::InvalidArgumentError(absl::StrCat(kOp, ": a ", DebugString(args.a), " and b ",
                                                   DebugString(args.b), " do not go together"));
  }
  const bool summed = c == DType::kF32 && (narrow || mixed || args.a.dtype == DType::kBF16);
  if (!summed && c != (narrow || mixed ? DType::kBF16 : args.a.dtype)) {
    return absl::InvalidArgumentError(
        absl::StrCat(kOp, ": c is ", DebugString(args.c), ", a is ", DebugString(args.a)));
  }
  if (narrow && a.blocks() != b.blocks()) {
    return absl::InvalidArgumentError(
        absl::StrCat(kOp, ": block scales are those of both operands, and E2M1 comes with them"));
  }
  if (!a.FitsScale() || !b.FitsScale()) {
    return absl::InvalidArgumentError(
        absl::StrCat(kOp, ": scale_a and scale_b come with FP8 operands and only with them"));
  }
  const bool narrow_bias = c == DType::kF32 && args.bias.dtype == DType::kBF16;
  if (!args.bias.empty() && args.bias.dtype != c && !narrow_bias) {
    return absl::InvalidArgumentError(absl::StrCat(kOp, ": bias is ", DebugString(args.bias)));
  }
  return absl::OkStatus();
}

// What the narrow operand of a product with a bf16 one asks for.
absl::Status CheckMixedLayout(const GemmArgs& args, const GemmExtents& e) {
  const bool along_rows = IsNarrow(args.a.dtype) ? !args.transpose_a : args.transpose_b;
  const bool contiguous = e.lda == args.a.cols() && e.ldb == args.b.cols();
  if (!along_rows || !contiguous || e.k % (IsBlockScaled(args) ? 32 : 16) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        kOp,
        ": beside a bf16 operand a narrow one sums along its rows, of 16 elements, or 32 in "
        "blocks, and both are contiguous: k = ",
        e.k, ", lda = ", e.lda, ", ldb = ", e.ldb));
  }
  return absl::OkStatus();
}

// How many bytes behind a boundary a tensor's scale lies.
uintptr_t BehindBoundary(const float* scale) {
  return reinterpret_cast<uintptr_t>(scale) % kScaleBoundary;
}

absl::Status CheckScaleBoundaries(const GemmArgs& args) {
  const uintptr_t a = BehindBoundary(args.scale_a);
  const uintptr_t b = BehindBoundary(args.scale_b);
  if (a != 0 || b != 0) {
    return absl::InvalidArgumentError(absl::StrCat(kOp, ": FP8 scales lie on boundaries of ",
                                                   kScaleBoundary, " bytes: scale_a is ", a,
                                                   " behind one, scale_b ", b));
  }
  return absl::OkStatus();
}

absl::Status CheckFp8Layout(const GemmArgs& args, const GemmExtents& e) {
  // cuBLASLt on sm_90 and sm_120 takes FP8 only with both operands contiguous along k.
  if (args.transpose_a || !args.transpose_b) {
    return absl::InvalidArgumentError(
        absl::StrCat(kOp, ": FP8 operands need transpose_b and no transpose_a"));
  }
  // 32 elements are a block of MXFP8, two of NVFP4, and 16 bytes of FP4.
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
  // The scales of tensors in blocks go into alpha.
  return IsBlockScaled(args) ? absl::OkStatus() : CheckScaleBoundaries(args);
}

// What a product reads beside its operands, and several products at once.
absl::Status CheckAddendAndBatch(const GemmArgs& args) {
  if (!args.addend.empty() &&
      (args.addend.dtype != args.c.dtype || args.addend.rows() != args.c.rows() ||
       args.addend.cols() != args.c.cols() || args.addend.data == args.c.data)) {
    return absl::InvalidArgumentError(
        absl::StrCat(kOp, ": addend is ", DebugString(args.addend), ", c ", DebugString(args.c)));
  }
  const bool plain = !IsNarrow(args.a.dtype) && !IsNarrow(args.b.dtype) && args.bias.empty() &&
                     args.scalars == nullptr &&
                     (args.round_c == DType::kF32 || args.round_c == DType::kF64);
  if (args.batch < 1 || (args.batch > 1 && !plain)) {
    return absl::InvalidArgumentError(absl::StrCat(
        kOp, ": batch ", args.batch, " needs plain operands without bias, scalars and rounding"));
  }
  return absl::OkStatus();
}

// What input_norm asks of the product.
absl::Status CheckInputNorm(const GemmArgs& args, const GemmExtents& e) {
  if (IsNarrow(args.a.dtype) || IsNarrow(args.b.dtype) || args.transpose_a || !args.transpose_b ||
      args.alpha != 1.0 || args.batch != 1 || args.scalars != nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(kOp, ": input_norm is for y = x wT of plain operands"));
  }
  return RequireCount(args.input_norm.weight, args.a.dtype, e.k, kOp, "the norm's weight");
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
  if (IsMixed(args)) {
    HEARTH_RETURN_IF_ERROR(CheckMixedLayout(args, e));
  } else if (IsNarrow(args.a.dtype)) {
    HEARTH_RETURN_IF_ERROR(CheckFp8Layout(args, e));
  }
  if (!args.bias.empty()) {
    HEARTH_RETURN_IF_ERROR(RequireCount(args.bias, args.bias.dtype, e.n, kOp, "bias"));
  }
  if (!args.input_norm.weight.empty()) {
    HEARTH_RETURN_IF_ERROR(CheckInputNorm(args, e));
  }
  HEARTH_RETURN_IF_ERROR(CheckAddendAndBatch(args));
  return RequireRound(args.round_c, kOp);
}

size_t GemmWorkspaceBytes(const Exec& exec, const GemmArgs& args) {
  const GemmExtents e = ExtentsOf(args);
  if (exec.device == Device::kCuda) {
    return cuda::kGemmWorkspaceBytes + cuda::EmulationBytes(args);
  }
  const bool wide = args.a.dtype == DType::kF32 || args.a.dtype == DType::kF64;
  return wide ? 0 : DTypeBytes(DType::kF32, (e.m + e.n) * e.k);
}

size_t GemmWorkspaceBytes(const GemmArgs& args) {
  const size_t cpu = GemmWorkspaceBytes(Exec(), args);
  return args.a.dtype == DType::kF32 || args.a.dtype == DType::kF64
             ? cpu
             : std::max(cpu, cuda::kGemmWorkspaceBytes + cuda::EmulationBytes(args));
}

bool IsMixed(const GemmArgs& args) {
  return (IsNarrow(args.a.dtype) && args.b.dtype == DType::kBF16) ||
         (args.a.dtype == DType::kBF16 && IsNarrow(args.b.dtype));
}

bool TakesInputNorm(const Exec& exec, const GemmArgs& args) {
  if constexpr (kBuiltWithCuda) {
    if (exec.device == Device::kCuda) {
      return cuda::GainsByInputNorm(exec, args);
    }
  }
  // The widths that a GPU would take.
  const GemmExtents e = ExtentsOf(args);
  return exec.thin_products && ThinGemmAsked("always") && e.n % 8 == 0 && e.k % 8 == 0;
}

absl::Status Gemm(const Exec& exec, const GemmArgs& args) {
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  return RunOnDevice<cpu::Gemm, cuda::Gemm>(exec, kOp, args);
}

size_t cuda::EmulationBytes(const GemmArgs& args) {
  if (!IsBlockScaled(args) && !IsMixed(args)) {
    return 0;
  }
  const GemmExtents e = ExtentsOf(args);
  return static_cast<size_t>(formats::EmulatedProductBytes(e.m, e.n, e.k));
}

bool cuda::SuitsUnitScales(const GemmArgs& args, size_t workspace_bytes) {
  return args.scale_a != nullptr && args.scale_b != nullptr && !IsBlockScaled(args) &&
         args.scalars == nullptr && ExtentsOf(args).k % 32 == 0 &&
         workspace_bytes >= kScalarBytes + kScalarAlignment + kGemmWorkspaceBytes / 2;
}

size_t cuda::UnitScaleBytes(const GemmArgs& args) {
  const GemmExtents e = ExtentsOf(args);
  return static_cast<size_t>(BlockScaleBytes(BlockLayout::kMxfp8, std::max(e.m, e.n), e.k));
}

GemmPath GemmPathOf(const Exec& exec, const GemmArgs& args) {
#ifdef HEARTH_WITH_CUDA
  if (exec.device == Device::kCuda && exec.cuda != nullptr) {
    return cuda::GemmPathOf(exec, args);
  }
#endif
  static_cast<void>(exec);
  return IsBlockScaled(args) || IsMixed(args) ? GemmPath::kEmulated : GemmPath::kPlain;
}

const char* GemmPathName(GemmPath path) {
  static constexpr EnumNames<GemmPath, GemmPath::kEmulated> kNames = {"plain", "native",
                                                                      "emulated"};
  return kNames[path].data();  // a literal: it ends in 0
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
  const int64_t gpu = DTypeBytes(DType::kF32, cuda::ColumnSumParts(rows) * cols);
  return std::max(gpu, DTypeBytes(args.x.dtype, CeilDiv(rows, kReduceRows) * cols));
}

absl::Status ColumnSum(const Exec& exec, const ColumnSumArgs& args) {
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  HEARTH_RETURN_IF_ERROR(RequireStorage(exec, args.x.dtype, "column_sum"));
  HEARTH_RETURN_IF_ERROR(RequireStorage(exec, args.out.dtype, "column_sum"));
  HEARTH_RETURN_IF_ERROR(RequireWorkspace(exec, ColumnSumWorkspaceBytes(args), "column_sum"));
  return RunOnDevice<cpu::ColumnSum, cuda::ColumnSum>(exec, "column_sum", args);
}

}  // namespace hearth::kernels
