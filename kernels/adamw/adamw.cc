#include "kernels/adamw/adamw.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace hearth::kernels {
namespace {

constexpr char kOp[] = "adamw";

// `view` is present, floating and has `count` elements.
absl::Status RequireElements(const TensorView& view, int64_t count, const char* name) {
  if (view.dtype == DType::kBF16) {
    return RequireCount(view, DType::kBF16, count, kOp, name);
  }
  HEARTH_RETURN_IF_ERROR(RequireFloating(view, kOp, name));
  return RequireCount(view, view.dtype, count, kOp, name);
}

using formats::StateCodec;

// Both moments plain, or both in blocks of one size.
absl::Status RequireCodecs(const AdamWTensor& tensor) {
  const StateCodec m = tensor.m_blocks.codec;
  const StateCodec v = tensor.v_blocks.codec;
  const bool known = (m == StateCodec::kNone && v == StateCodec::kNone) ||
                     (m == StateCodec::kDynamicSigned8 && v == StateCodec::kDynamicUnsigned8) ||
                     (m == StateCodec::kDynamicSigned4 && v == StateCodec::kLinearUnsigned4);
  if (!known) {
    return absl::UnimplementedError(absl::StrCat(kOp, ": moments in ", formats::RowOf(m).name,
                                                 " and ", formats::RowOf(v).name, " blocks"));
  }
  return absl::OkStatus();
}

absl::Status RequireTensor(const AdamWTensor& tensor) {
  const int64_t count = tensor.master.numel();
  HEARTH_RETURN_IF_ERROR(RequireElements(tensor.master, count, "master"));
  HEARTH_RETURN_IF_ERROR(RequireCodecs(tensor));
  HEARTH_RETURN_IF_ERROR(RequireState(tensor.m, tensor.m_blocks, count, kOp, "m"));
  HEARTH_RETURN_IF_ERROR(RequireState(tensor.v, tensor.v_blocks, count, kOp, "v"));
  HEARTH_RETURN_IF_ERROR(RequireElements(tensor.grad, count, "grad"));
  if (!tensor.working.empty()) {
    HEARTH_RETURN_IF_ERROR(RequireElements(tensor.working, count, "working"));
  } else if (tensor.amax != nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(kOp, ": amax without a working copy"));
  }
  if (tensor.first_element % 4 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(kOp, ": first_element ", tensor.first_element, " is no multiple of 4"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CanImplement(const AdamWArgs& args) {
  for (const AdamWTensor& tensor : args.tensors) {
    HEARTH_RETURN_IF_ERROR(RequireTensor(tensor));
  }
  if ((args.inputs == nullptr && args.step < 1) || !(args.beta1 >= 0.0 && args.beta1 < 1.0) ||
      !(args.beta2 >= 0.0 && args.beta2 < 1.0)) {
    return absl::InvalidArgumentError(absl::StrCat(kOp, ": step ", args.step, ", beta1 ",
                                                   args.beta1, ", beta2 ", args.beta2,
                                                   ": step must be >= 1, betas in [0, 1)"));
  }
  return RequireRound(args.round_working, kOp);
}

size_t AdamWWorkspaceBytes(const AdamWArgs&) {
  return 0;
}

absl::Status AdamWStep(const Exec& exec, const AdamWArgs& args) {
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  return RunOnDevice<cpu::AdamWStep, cuda::AdamWStep>(exec, kOp, args);
}

}  // namespace hearth::kernels
