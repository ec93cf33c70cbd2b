#include "kernels/block_quantize/block_quantize.h"

#include <cfloat>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/core/formats.h"
#include "kernels/formats/block_scale.h"

namespace hearth::kernels {
namespace {

constexpr char kOp[] = "block_quantize";
constexpr char kBackOp[] = "block_dequantize";
constexpr char kUpdateOp[] = "update_block_amax";

bool IsAligned(const void* p) {
  return reinterpret_cast<uintptr_t>(p) % 16 == 0;
}

absl::Status Invalid(const char* op, const char* form, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(op, ": ", form, ": ", what));
}

// What a form asks for by itself. `extent`: its K.
absl::Status CheckForm(const BlockQuantView& quant,
                       const BlockForm& form,
                       const char* name,
                       int64_t extent) {
  const BlockLayoutRow& layout = RowOf(quant.layout);
  const int h = form.hadamard;
  if (h != 0 && h != 16 && h != 32 && h != 64 && h != 128) {
    return Invalid(kOp, name, absl::StrCat("a Hadamard transform of ", h));
  }
  if (h != 0 && extent % h != 0) {
    return Invalid(kOp, name, absl::StrCat("groups of ", h, " along ", extent));
  }
  if (!form.has_values()) {
    return absl::OkStatus();
  }
  if (form.scales == nullptr || !IsAligned(form.values) || !IsAligned(form.scales)) {
    return Invalid(kOp, name, "scales are absent, or not aligned to 16 bytes as the values");
  }
  if (extent % 32 != 0) {
    return Invalid(kOp, name,
                   absl::StrCat(extent, " elements along the blocks, not a multiple of 32"));
  }
  if (layout.tensor_scale != (form.amax != nullptr) ||
      layout.tensor_scale != (form.tensor_scale != nullptr)) {
    return Invalid(kOp, name,
                   absl::StrCat(layout.name, layout.tensor_scale ? " needs" : " takes no",
                                " amax and tensor_scale"));
  }
  if (layout.tensor_scale && form.amax == form.measured) {
    return Invalid(kOp, name, "amax is measured");
  }
  const bool plain = form.rounding == Rounding::kNearest || form.rounding == Rounding::kStochastic;
  if (!layout.fp4 && !plain) {
    return Invalid(kOp, name, "FP8 is rounded to nearest or by chance");
  }
  if (quant.square && (h != 0 || (!plain && form.rounding != Rounding::kStochasticUnclipped))) {
    return Invalid(kOp, name, "square blocks take no transform, four over six or EDEN");
  }
  if (form.rounding == Rounding::kEden && h == 0) {
    return Invalid(kOp, name, "EDEN needs a Hadamard transform");
  }
  return absl::OkStatus();
}

absl::Status CheckQuant(const BlockQuantView& quant, int64_t rows, int64_t cols) {
  const BlockLayoutRow& layout = RowOf(quant.layout);
  if (!HoldsValues(layout, quant.dtype) || (quant.square && !layout.square)) {
    return absl::InvalidArgumentError(absl::StrCat(kOp, ": ", layout.name, " has no such ",
                                                   quant.square ? "square " : "", "blocks"));
  }
  if (cols % kSpan != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(kOp, ": ", cols, " columns are not a multiple of 16"));
  }
  if ((quant.square || quant.columns.wanted()) && rows % kSpan != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(kOp, ": ", rows, " rows are not a multiple of 16"));
  }
  HEARTH_RETURN_IF_ERROR(CheckForm(quant, quant.rows, "rows", cols));
  return CheckForm(quant, quant.columns, "columns", rows);
}

absl::Status CheckTensor(const BlockQuantizeTensor& tensor) {
  HEARTH_RETURN_IF_ERROR(RequireFloating(tensor.x, kOp, "x"));
  if (!IsAligned(tensor.x.data)) {
    return absl::InvalidArgumentError(
        absl::StrCat(kOp, ": x ", DebugString(tensor.x), " is not aligned to 16 bytes"));
  }
  return CheckQuant(tensor.quant, tensor.x.rows(), tensor.x.cols());
}

}  // namespace

absl::Status CanImplement(const BlockQuantizeArgs& args) {
  for (const BlockQuantizeTensor& tensor : args.tensors) {
    HEARTH_RETURN_IF_ERROR(CheckTensor(tensor));
    const BlockQuantizeTensor& first = args.tensors[0];
    if (tensor.x.dtype != first.x.dtype || tensor.quant.layout != first.quant.layout) {
      return absl::InvalidArgumentError(
          absl::StrCat(kOp, ": tensors of different types or layouts in one call"));
    }
  }
  return absl::OkStatus();
}

absl::Status BlockQuantize(const Exec& exec, const BlockQuantizeArgs& args) {
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  if (args.tensors.empty()) {
    return absl::OkStatus();
  }
  HEARTH_RETURN_IF_ERROR(RequireStorage(exec, args.tensors[0].x.dtype, kOp));
  HEARTH_RETURN_IF_ERROR(RequireFormStorage(exec, args.tensors[0].x.dtype, true, kOp));
  return RunOnDevice<cpu::BlockQuantize, cuda::BlockQuantize>(exec, kOp, args);
}

absl::Status RequireBlocks(const BlockQuantView& blocks,
                           const QuantView& quant,
                           int64_t rows,
                           int64_t cols,
                           int64_t parts,
                           const char* op) {
  if (blocks.empty()) {
    return absl::OkStatus();
  }
  if (!quant.empty() || !WholeBlockParts(cols, parts)) {
    return absl::InvalidArgumentError(
        absl::StrCat(op, ": block forms beside a quantised output, or of ", parts, " parts of ",
                     cols, " columns that are not multiples of 128"));
  }
  const absl::Status checked = CheckQuant(blocks, rows, cols);
  return checked.ok() ? checked
                      : absl::InvalidArgumentError(absl::StrCat(op, ": ", checked.message()));
}

absl::Status CanImplement(const UpdateBlockAmaxArgs& args) {
  const bool power =
      args.margin >= 1.0F && (FloatBits(args.margin) & 0x7FFFFFU) == 0 && args.margin <= FLT_MAX;
  if (args.n < 0 || (args.n > 0 && (args.measured == nullptr || args.amax == nullptr)) || !power) {
    return absl::InvalidArgumentError(
        absl::StrCat(kUpdateOp, ": n = ", args.n, ", margin = ", args.margin));
  }
  return absl::OkStatus();
}

absl::Status UpdateBlockAmax(const Exec& exec, const UpdateBlockAmaxArgs& args) {
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  return RunOnDevice<cpu::UpdateBlockAmax, cuda::UpdateBlockAmax>(exec, kUpdateOp, args);
}

absl::Status CanImplement(const BlockDequantizeArgs& args) {
  HEARTH_RETURN_IF_ERROR(RequireFloating(args.y, kBackOp, "y"));
  if (!HoldsValues(RowOf(args.x.layout), args.x.dtype) || args.x.values == nullptr ||
      args.x.scales == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(kBackOp, ": x is no block-scaled form"));
  }
  if (args.y.cols() % 32 != 0 || !IsAligned(args.y.data) || !IsAligned(args.x.values)) {
    return absl::InvalidArgumentError(absl::StrCat(kBackOp, ": y ", DebugString(args.y),
                                                   " is not aligned to 32 elements and 16 bytes"));
  }
  return absl::OkStatus();
}

absl::Status BlockDequantize(const Exec& exec, const BlockDequantizeArgs& args) {
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  HEARTH_RETURN_IF_ERROR(RequireStorage(exec, args.y.dtype, kBackOp));
  return RunOnDevice<cpu::BlockDequantize, cuda::BlockDequantize>(exec, kBackOp, args);
}

}  // namespace hearth::kernels
