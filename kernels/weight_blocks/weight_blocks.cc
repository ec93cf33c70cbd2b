#include "kernels/weight_blocks/weight_blocks.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace hearth::kernels {
namespace {

constexpr char kOp[] = "weight_blocks";

absl::Status RequireBlocks(formats::WeightCodec codec, const TensorView& blocks, int64_t count) {
  const formats::WeightCodecRow& row = formats::RowOf(codec);
  if (codec == formats::WeightCodec::kNone || count % row.block != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(kOp, ": ", count, " elements in blocks of ", row.name));
  }
  return RequireCount(blocks, DType::kU8, row.Bytes(count), kOp, "blocks");
}

absl::Status RequireTarget(DType to) {
  return to == DType::kF32 || to == DType::kBF16 || to == DType::kF64
             ? absl::OkStatus()
             : absl::InvalidArgumentError(absl::StrCat(kOp, ": values are rounded to bf16 or not"));
}

}  // namespace

absl::Status CanImplement(const DecodeWeightsArgs& args) {
  HEARTH_RETURN_IF_ERROR(RequireTarget(args.to));
  HEARTH_RETURN_IF_ERROR(RequireCount(args.y, args.y.dtype == DType::kBF16 ? args.to : args.y.dtype,
                                      args.y.numel(), kOp, "y"));
  return RequireBlocks(args.codec, args.blocks, args.y.numel());
}

absl::Status CanImplement(const EncodeWeightsArgs& args) {
  HEARTH_RETURN_IF_ERROR(RequireTarget(args.to));
  HEARTH_RETURN_IF_ERROR(RequireFloating(args.x, kOp, "x"));
  if (args.inputs == nullptr && args.step < 0) {
    return absl::InvalidArgumentError(absl::StrCat(kOp, ": step ", args.step));
  }
  if (args.first_element % 4 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(kOp, ": first_element ", args.first_element, " is no multiple of 4"));
  }
  return RequireBlocks(args.codec, args.blocks, args.x.numel());
}

absl::Status DecodeWeights(const Exec& exec, const DecodeWeightsArgs& args) {
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  return RunOnDevice<cpu::DecodeWeights, cuda::DecodeWeights>(exec, kOp, args);
}

absl::Status EncodeWeights(const Exec& exec, const EncodeWeightsArgs& args) {
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  return RunOnDevice<cpu::EncodeWeights, cuda::EncodeWeights>(exec, kOp, args);
}

}  // namespace hearth::kernels
