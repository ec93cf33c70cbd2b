#include "kernels/gradient_parts/gradient_parts.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/formats/reduce_formats.h"

namespace hearth::kernels {
namespace {

using formats::kReduceBlock;

constexpr char kEncode[] = "encode_parts";
constexpr char kSum[] = "sum_parts";

absl::Status RequireBlocks(const TensorView& view, const char* op, const char* name) {
  if (view.cols() % kReduceBlock != 0) {
    return absl::InvalidArgumentError(absl::StrCat(op, ": ", name, " ", DebugString(view),
                                                   " is not in blocks of ", kReduceBlock));
  }
  if (reinterpret_cast<uintptr_t>(view.data) % 16 != 0) {
    return absl::InvalidArgumentError(absl::StrCat(op, ": ", name, " is not aligned to 16 bytes"));
  }
  return absl::OkStatus();
}

// Codes in blocks, and a scale for each.
absl::Status RequireCodes(const TensorView& codes, const TensorView& scales, const char* op) {
  HEARTH_RETURN_IF_ERROR(RequireCount(codes, DType::kE4M3, codes.numel(), op, "codes"));
  HEARTH_RETURN_IF_ERROR(RequireBlocks(codes, op, "codes"));
  return RequireCount(scales, DType::kE8M0, codes.numel() / kReduceBlock, op, "scales");
}

}  // namespace

absl::Status CanImplement(const EncodePartsArgs& args) {
  HEARTH_RETURN_IF_ERROR(RequireFloating(args.x, kEncode, "x"));
  HEARTH_RETURN_IF_ERROR(RequireBlocks(args.x, kEncode, "x"));
  HEARTH_RETURN_IF_ERROR(RequireCodes(args.codes, args.scales, kEncode));
  if (args.x.numel() > args.codes.numel()) {
    return absl::InvalidArgumentError(absl::StrCat(kEncode, ": codes ", DebugString(args.codes),
                                                   " are too few for ", DebugString(args.x)));
  }
  return absl::OkStatus();
}

absl::Status CanImplement(const SumPartsArgs& args) {
  HEARTH_RETURN_IF_ERROR(RequireCodes(args.codes, args.scales, kSum));
  HEARTH_RETURN_IF_ERROR(RequireFloating(args.y, kSum, "y"));
  HEARTH_RETURN_IF_ERROR(RequireBlocks(args.y, kSum, "y"));
  return RequireCount(args.y, args.y.dtype, args.codes.cols(), kSum, "y");
}

absl::Status EncodeParts(const Exec& exec, const EncodePartsArgs& args) {
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  HEARTH_RETURN_IF_ERROR(RequireStorage(exec, args.x.dtype, kEncode));
  return RunOnDevice<cpu::EncodeParts, cuda::EncodeParts>(exec, kEncode, args);
}

absl::Status SumParts(const Exec& exec, const SumPartsArgs& args) {
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  HEARTH_RETURN_IF_ERROR(RequireStorage(exec, args.y.dtype, kSum));
  return RunOnDevice<cpu::SumParts, cuda::SumParts>(exec, kSum, args);
}

}  // namespace hearth::kernels
