#include "kernels/muon/muon.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace hearth::kernels {
namespace {

constexpr char kOp[] = "muon";

// Present, of a storage type, with as many elements as `like`.
absl::Status RequireLike(const TensorView& view, const TensorView& like, const char* name) {
  HEARTH_RETURN_IF_ERROR(RequireFloating(view, kOp, name));
  return RequireCount(view, view.dtype, like.numel(), kOp, name);
}

}  // namespace

absl::Status CanImplement(const MuonMomentumArgs& args) {
  if (!(args.mu >= 0.0 && args.mu < 1.0)) {
    return absl::InvalidArgumentError(absl::StrCat(kOp, ": mu ", args.mu, " must be in [0, 1)"));
  }
  for (const MuonMomentumTensor& tensor : args.tensors) {
    HEARTH_RETURN_IF_ERROR(RequireLike(tensor.grad, tensor.grad, "grad"));
    HEARTH_RETURN_IF_ERROR(
        RequireState(tensor.momentum, tensor.blocks, tensor.grad.numel(), kOp, "momentum"));
    const formats::StateCodec codec = tensor.blocks.codec;
    if (codec != formats::StateCodec::kNone && codec != formats::StateCodec::kLinearSigned8) {
      const formats::StateCodecRow& row = formats::RowOf(codec);
      return absl::UnimplementedError(
          absl::StrCat(kOp, ": a momentum in ", row.name, " blocks of ", row.bits, " bits"));
    }
  }
  return absl::OkStatus();
}

absl::Status CanImplement(const MuonUpdateArgs& args) {
  for (const MuonUpdateTensor& tensor : args.tensors) {
    HEARTH_RETURN_IF_ERROR(RequireLike(tensor.master, tensor.master, "master"));
    HEARTH_RETURN_IF_ERROR(RequireLike(tensor.o, tensor.master, "o"));
    if (!tensor.working.empty()) {
      HEARTH_RETURN_IF_ERROR(RequireLike(tensor.working, tensor.master, "working"));
    } else if (tensor.amax != nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(kOp, ": amax without a working copy"));
    }
  }
  return RequireRound(args.round_working, kOp);
}

absl::Status MuonMomentum(const Exec& exec, const MuonMomentumArgs& args) {
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  return RunOnDevice<cpu::MuonMomentum, cuda::MuonMomentum>(exec, kOp, args);
}

absl::Status MuonUpdate(const Exec& exec, const MuonUpdateArgs& args) {
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  return RunOnDevice<cpu::MuonUpdate, cuda::MuonUpdate>(exec, kOp, args);
}

}  // namespace hearth::kernels
