#include "common/base/status_macros.h"
#include "kernels/swiglu/swiglu.h"
#include "kernels/thin_gemm/thin_gemm.h"

namespace hearth::kernels::cpu {

absl::Status ThinGemm(const Exec& exec, const ThinGemmArgs& args) {
  HEARTH_RETURN_IF_ERROR(RequireWorkspace(exec, ThinGemmWorkspaceBytes(args), "thin_gemm"));
  GemmArgs product;
  product.a = args.x;
  product.input_norm = args.input_norm;
  product.b = args.w;
  product.c = args.y;
  product.bias = args.bias;
  if (!args.addend.empty()) {
    product.beta = 1.0;
    product.addend = args.addend.data == args.y.data ? TensorView() : args.addend;
  }
  product.transpose_b = true;
  product.round_c = args.round;
  if (!args.swiglu) {
    return kernels::Gemm(exec, product);
  }
  product.c = args.gate_up.empty()
                  ? TensorView(exec.workspace.data, args.x.dtype, {args.x.rows(), args.w.rows()})
                  : args.gate_up;
  HEARTH_RETURN_IF_ERROR(kernels::Gemm(exec, product));
  SwigluForwardArgs activation;
  activation.gate_up = product.c;
  activation.y = args.y;
  activation.round_y = args.round;
  return kernels::SwigluForward(exec, activation);
}

}  // namespace hearth::kernels::cpu
