#include "worker/trainer/model/activation_function.h"

#include "common/base/status_macros.h"
#include "common/base/table_rows.h"
#include "kernels/gated_gemm/gated_gemm.h"
#include "kernels/gelu/gelu.h"
#include "kernels/swiglu/swiglu.h"

namespace hearth::trainer {

using formats::Activation;
using kernels::Exec;

namespace {

absl::Status ForwardSwiglu(const Exec& exec, Activation /*kind*/, const ActivationForward& f) {
  const kernels::SwigluForwardArgs args = {f.outputs, f.input};
  return f.product.has_value() ? kernels::GatedGemmForward(exec, {*f.product, args, f.input_read})
                               : kernels::SwigluForward(exec, args);
}

absl::Status BackwardSwiglu(const Exec& exec, Activation /*kind*/, const ActivationBackward& b) {
  kernels::SwigluBackwardArgs args;
  args.dy = b.product.c;
  args.gate_up = b.input;
  args.d_gate_up = b.gradient.plain;
  args.d_gate_up_quant = b.gradient.quant;
  args.d_gate_up_blocks = b.gradient.blocks;
  args.round_d_gate_up = b.round;
  args.kept = b.kept;
  args.y_quant = b.output;
  args.round_y = b.round;
  return kernels::GatedGemmBackward(exec, {b.product, args});
}

absl::Status ForwardGelu(const Exec& exec, Activation kind, const ActivationForward& f) {
  if (f.product.has_value()) {
    HEARTH_RETURN_IF_ERROR(kernels::Gemm(exec, *f.product));
  }
  return kernels::GeluForward(exec, {f.outputs, f.input, kernels::TensorView(), kind});
}

absl::Status BackwardGelu(const Exec& exec, Activation kind, const ActivationBackward& b) {
  HEARTH_CHECK(b.output.empty(), "the plan asks for the output only where a function makes it");
  HEARTH_RETURN_IF_ERROR(kernels::Gemm(exec, b.product));
  kernels::GeluBackwardArgs args;
  args.dy = b.product.c;
  args.x = b.input;
  args.dx = b.gradient.plain;
  args.dx_quant = b.gradient.quant;
  args.dx_blocks = b.gradient.blocks;
  args.kind = kind;
  args.round_dx = b.round;
  args.kept = b.kept;
  return kernels::GeluBackward(exec, args);
}

constexpr ActivationFunction kFunctions[] = {
    {Activation::kSwiglu, ForwardSwiglu, BackwardSwiglu},
    {Activation::kGelu, ForwardGelu, BackwardGelu},
    {Activation::kGeluTanh, ForwardGelu, BackwardGelu},
};

}  // namespace

const ActivationFunction& FunctionOf(Activation kind) {
  const ActivationFunction* row = FindRow(kFunctions, &ActivationFunction::kind, kind);
  HEARTH_CHECK(row != nullptr, "every activation function has a row");
  return *row;
}

}  // namespace hearth::trainer
