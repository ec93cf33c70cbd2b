#include "kernels/norm/implementation.h"
#include "kernels/norm/norm_blocks.cuh"
#include "kernels/norm/norm_gradient_blocks.cuh"
#include "kernels/norm/norm_launch.cuh"

namespace hearth::kernels::cuda {
namespace {

template <typename A, bool kCentred>
absl::Status Forward(const Exec& exec, const NormForwardCall& call) {
  const NormForwardArgs& args = call.args;
  NormForwardParams<A> p = {};
  const bool aligned = Aligned16(args.x.data) && Aligned16(args.residual.data) &&
                       Aligned16(args.weight.data) && Aligned16(call.bias.data) &&
                       Aligned16(args.sum.data) && Aligned16(args.y.data);
  const int operands = args.residual.empty() ? 1 : 2;
  p.shape =
      NormShapeOf<A>(exec, args.x.rows(), args.x.cols(), args.y_quant, aligned, operands, false);
  p.x = args.x.as<A>();
  p.residual = args.residual.as<A>();
  p.weight = args.weight.as<A>();
  p.bias = call.bias.as<A>();
  p.sum = args.sum.as<A>();
  p.y = args.y.as<A>();
  p.mean = call.mean.as<float>();
  p.rstd = args.rstd.as<float>();
  p.quant = args.y_quant;
  p.eps = static_cast<float>(args.eps);
  if constexpr (kHasForms<A>) {
    if (!args.y_blocks.empty()) {
      return LaunchNormForwardBlocks<A, kCentred>(exec, p, args.y_blocks, call.op);
    }
  }
  return LaunchNormForward<A, kCentred>(exec, p, call.op);
}

template <typename A, bool kCentred>
absl::Status Backward(const Exec& exec, const NormBackwardCall& call) {
  const NormBackwardArgs& args = call.args;
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
  p.mean = call.mean.as<float>();
  p.rstd = args.rstd.as<float>();
  p.dx = args.dx.as<A>();
  p.quant = args.dx_quant;
  if constexpr (kHasForms<A>) {
    if (!args.dx_blocks.empty()) {
      return LaunchNormBackwardBlocks<A, kCentred>(exec, p, args.dx_blocks, args.d_weight,
                                                   call.d_bias, call.op);
    }
  }
  return LaunchNormBackward<A, kCentred>(exec, p, args.d_weight, call.d_bias, call.op);
}

template <bool kCentred>
absl::Status ForwardOf(const Exec& exec, const NormForwardCall& call) {
  return call.args.x.dtype == DType::kBF16 ? Forward<Bf16, kCentred>(exec, call)
                                           : Forward<float, kCentred>(exec, call);
}
template <bool kCentred>
absl::Status BackwardOf(const Exec& exec, const NormBackwardCall& call) {
  return call.args.dy.dtype == DType::kBF16 ? Backward<Bf16, kCentred>(exec, call)
                                            : Backward<float, kCentred>(exec, call);
}

}  // namespace

absl::Status NormForward(const Exec& exec, const NormForwardCall& call) {
  if (call.args.x.numel() == 0) {
    return absl::OkStatus();
  }
  return call.centred ? ForwardOf<true>(exec, call) : ForwardOf<false>(exec, call);
}

absl::Status NormBackward(const Exec& exec, const NormBackwardCall& call) {
  if (call.args.dy.numel() == 0) {
    return absl::OkStatus();
  }
  return call.centred ? BackwardOf<true>(exec, call) : BackwardOf<false>(exec, call);
}

}  // namespace hearth::kernels::cuda
