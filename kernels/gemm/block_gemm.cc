// Products on a GPU: which way those with block-scaled operands take, and the emulated one.
#include <algorithm>
#include <optional>

#include "common/base/status_macros.h"
#include "kernels/block_quantize/block_quantize.h"
#include "kernels/core/cpu.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/gemm/cublaslt.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/native_error.h"
#include "kernels/gemm/product_check.h"
#include "kernels/round/round.h"
#include "kernels/thin_gemm/thin_gemm.h"

namespace hearth::kernels::cuda {
namespace {

constexpr char kOp[] = "gemm";
constexpr size_t kAlignment = kScalarAlignment;
// Pieces of a workspace, each aligned to 256 bytes; the rest is the library's.
class Pieces {
 public:
  explicit Pieces(const Exec& exec) : rest_(exec) {
    const uintptr_t begin = reinterpret_cast<uintptr_t>(exec.workspace.data);
    Take((kAlignment - begin % kAlignment) % kAlignment);
  }
  void* Take(size_t bytes) {
    unsigned char* piece = static_cast<unsigned char*>(rest_.workspace.data);
    const size_t taken = std::min(bytes, rest_.workspace.bytes);
    rest_.workspace = {piece + taken, rest_.workspace.bytes - taken};
    return piece;
  }
  const Exec& rest() const { return rest_; }

 private:
  Exec rest_;
};

// Tensors' scales into alpha, for a product that takes its scalars from the device.
absl::Status FoldScales(const Exec& exec, GemmArgs& args, float* out) {
  if (args.scale_a != nullptr || args.scale_b != nullptr) {
    HEARTH_RETURN_IF_ERROR(
        ProductScalars(exec, args.alpha, args.scale_a, args.scale_b, args.beta, out));
    args.scalars = out;
    args.scale_a = args.scale_b = nullptr;
  }
  return absl::OkStatus();
}

absl::Status Native(const Exec& exec, GemmArgs args) {
  HEARTH_RETURN_IF_ERROR(RequireWorkspace(exec, kScalarBytes + kAlignment, kOp));
  // cuBLASLt's pointers to scales are those of the blocks here, so the tensors' scales go into
  // alpha.
  Pieces pieces(exec);
  HEARTH_RETURN_IF_ERROR(FoldScales(exec, args, static_cast<float*>(pieces.Take(kScalarBytes))));
  return exec.cuda->gemm().Run(pieces.rest(), args);
}

// How the library is asked: for a product of steps, or for one that is run once.
using RunProduct = absl::Status (GemmPlans::*)(const Exec&, const GemmArgs&);

absl::Status Emulated(const Exec& exec, GemmArgs args, RunProduct run) {
  HEARTH_RETURN_IF_ERROR(RequireWorkspace(exec, EmulationBytes(args), kOp));
  const GemmExtents e = ExtentsOf(args);
  Pieces pieces(exec);
  HEARTH_RETURN_IF_ERROR(FoldScales(exec, args, static_cast<float*>(pieces.Take(kScalarBytes))));
  // bf16 holds a value times its block's scale exactly. The scales of tensors are fp32: they are in
  // alpha.
  const auto widen = [&](BlockLayout layout, TensorView& operand, const uint8_t*& scales,
                         int64_t lines) {
    if (operand.dtype == DType::kBF16) {
      return absl::OkStatus();
    }
    const TensorView narrow = operand;
    const uint8_t* const block_scales = scales;
    void* const wide = pieces.Take(AlignUp(DTypeBytes(DType::kBF16, lines * e.k), kAlignment));
    operand = TensorView(wide, DType::kBF16, {lines, e.k});
    scales = nullptr;
    return block_scales == nullptr
               ? cuda::Widen(exec, {narrow, operand})
               : cuda::BlockDequantize(
                     exec, {{layout, narrow.dtype, narrow.data, block_scales, nullptr}, operand});
  };
  HEARTH_RETURN_IF_ERROR(widen(args.block_layout_a, args.a, args.block_scales_a, e.m));
  HEARTH_RETURN_IF_ERROR(widen(args.block_layout_b, args.b, args.block_scales_b, e.n));
  args.lda = args.ldb = 0;
  return (exec.cuda->gemm().*run)(pieces.rest(), args);
}

bool TakesUnitScales(const Exec& exec, const GemmArgs& args) {
  return exec.cuda->gemm().native_blocks().unit_scale_fp8 &&
         SuitsUnitScales(args, exec.workspace.bytes);
}

absl::Status UnitScaleFp8(const Exec& exec, GemmArgs args) {
  GemmPlans& plans = exec.cuda->gemm();
  HEARTH_ASSIGN_OR_RETURN(const uint8_t* const scales,
                          plans.UnitScales(exec, UnitScaleBytes(args)));
  if (scales == nullptr) {
    return plans.Run(exec, args);  // the same bits at half the rate
  }
  Pieces pieces(exec);
  HEARTH_RETURN_IF_ERROR(FoldScales(exec, args, static_cast<float*>(pieces.Take(kScalarBytes))));
  args.block_scales_a = args.block_scales_b = scales;
  args.block_layout_a = args.block_layout_b = BlockLayout::kMxfp8;
  return exec.cuda->gemm().Run(pieces.rest(), args);
}

absl::Status OnUnits(const Exec& exec, const GemmArgs& args) {
  return args.block_scales_a != nullptr ? Native(exec, args) : UnitScaleFp8(exec, args);
}

// What a product on block-scaled units stands for.
absl::Status InOtherWay(const Exec& exec, const GemmArgs& args) {
  return args.block_scales_a != nullptr ? Emulated(exec, args, &GemmPlans::RunOnce)
                                        : exec.cuda->gemm().RunOnce(exec, args);
}

}  // namespace

GemmPath GemmPathOf(const Exec& exec, const GemmArgs& args) {
  if (IsMixed(args)) {
    return GemmPath::kEmulated;
  }
  const NativeBlocks& native = exec.cuda->gemm().native_blocks();
  if (args.block_scales_a == nullptr) {
    return TakesUnitScales(exec, args) ? GemmPath::kNative : GemmPath::kPlain;
  }
  const bool alike = args.block_layout_a == args.block_layout_b;
  return alike && native.layouts[static_cast<size_t>(args.block_layout_a)] ? GemmPath::kNative
                                                                           : GemmPath::kEmulated;
}

absl::Status Gemm(const Exec& exec, const GemmArgs& args) {
  const GemmPath path = cuda::GemmPathOf(exec, args);
  if (path == GemmPath::kPlain) {
    const std::optional<ThinGemmArgs> thin = ThinFormOf(exec, args);
    if (thin.has_value()) {
      return cuda::ThinGemm(exec, *thin);
    }
    return args.input_norm.weight.empty()
               ? exec.cuda->gemm().Run(exec, args)
               : absl::UnimplementedError("gemm: input_norm of a product that is no thin one");
  }
  if (path == GemmPath::kEmulated) {
    return Emulated(exec, args, &GemmPlans::Run);
  }
  ProductCheck* const check = exec.cuda->gemm().product_check();
  const absl::Status done =
      check == nullptr ? OnUnits(exec, args) : check->Run(exec, args, OnUnits, InOtherWay);
  return done.ok() ? done : NativeGemmError(done);
}

}  // namespace hearth::kernels::cuda
