#include "kernels/cuda/norm_blocks.cuh"
#include "kernels/cuda/norm_gradient_blocks.cuh"
#include "kernels/cuda/norm_launch.cuh"
#include "kernels/rmsnorm/rmsnorm.h"

namespace hearth::kernels::cuda {
namespace {

constexpr char kOp[] = "rmsnorm";

template <typename A>
absl::Status Forward(const Exec& exec, const RmsNormForwardArgs& args) {
  NormForwardParams<A> p = {};
  const bool aligned = Aligned16(args.x.data) && Aligned16(args.residual.data) &&
                       Aligned16(args.weight.data) && Aligned16(args.sum.data) &&
                       Aligned16(args.y.data);
  const int operands = args.residual.empty() ? 1 : 2;
  p.shape =
      NormShapeOf<A>(exec, args.x.rows(), args.x.cols(), args.y_quant, aligned, operands, false);
  p.x = args.x.as<A>();
  p.residual = args.residual.as<A>();
  p.weight = args.weight.as<A>();
  p.sum = args.sum.as<A>();
  p.y = args.y.as<A>();
  p.rstd = args.rstd.as<float>();
  p.quant = args.y_quant;
  p.eps = static_cast<float>(args.eps);
  if constexpr (kHasForms<A>) {
    if (!args.y_blocks.empty()) {
      return LaunchNormForwardBlocks<A, false>(exec, p, args.y_blocks, kOp);
    }
  }
  return LaunchNormForward<A, false>(exec, p, kOp);
}

template <typename A>
absl::Status Backward(const Exec& exec, const RmsNormBackwardArgs& args) {
  NormBackwardParams<A> p = {};
  const bool aligned = Aligned16(args.dy.data) && Aligned16(args.s.data) &&
                       Aligned16(args.weight.data) && Aligned16(args.d_sum.data) &&
                       Aligned16(args.dx.data);
  const int operands = args.d_sum.empty() ? 2 : 3;
  p.shape =
      NormShapeOf<A>(exec, args.dy.rows(), args.dy.cols(), args.dx_quant, aligned, operands, true);
  p.dy = args.dy.as<A>();
  p.s = args.s.as<A>();
  p.weight = args.weight.as<A>();
  p.d_sum = args.d_sum.as<A>();
  p.rstd = args.rstd.as<float>();
  p.dx = args.dx.as<A>();
  p.quant = args.dx_quant;
  if constexpr (kHasForms<A>) {
    if (!args.dx_blocks.empty()) {
      return LaunchNormBackwardBlocks<A, false>(exec, p, args.dx_blocks, args.d_weight,
                                                TensorView(), kOp);
    }
  }
  return LaunchNormBackward<A, false>(exec, p, args.d_weight, TensorView(), kOp);
}

}  // namespace

absl::Status RmsNormForward(const Exec& exec, const RmsNormForwardArgs& args) {
  if (args.x.numel() == 0) {
    return absl::OkStatus();
  }
  return args.x.dtype == DType::kBF16 ? Forward<Bf16>(exec, args) : Forward<float>(exec, args);
}

absl::Status RmsNormBackward(const Exec& exec, const RmsNormBackwardArgs& args) {
  if (args.dy.numel() == 0) {
    return absl::OkStatus();
  }
  return args.dy.dtype == DType::kBF16 ? Backward<Bf16>(exec, args) : Backward<float>(exec, args);
}

}  // namespace hearth::kernels::cuda
