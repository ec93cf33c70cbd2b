#include "worker/trainer/precision/plain/plain_operand.h"

#include "absl/types/span.h"
#include "kernels/quantize/quantize.h"
#include "worker/trainer/model/pass.h"

namespace hearth::trainer {

using kernels::TensorView;

float* PlainOperand::Recorded(const Pass& pass, Forms forms) const {
  // Magnitudes of evaluation are not the training's; those of columns are forward's.
  return pass.record && forms != Forms::kColumns ? amax_ : nullptr;
}

OperandTarget PlainOperand::Target(const Pass& pass,
                                   bool /*keep_plain*/,
                                   bool /*blocks*/,
                                   Forms forms) const {
  OperandTarget target;
  target.plain = plain_;
  target.quant.amax = Recorded(pass, forms);
  return target;
}

absl::Status PlainOperand::Make(const kernels::Exec& exec,
                                const Pass& pass,
                                const TensorView& plain,
                                Forms forms) const {
  kernels::QuantizeTensor tensor;
  tensor.x = plain;
  tensor.quant.amax = Recorded(pass, forms);
  if (tensor.quant.empty()) {
    return absl::OkStatus();
  }
  kernels::QuantizeArgs args;
  args.tensors = absl::MakeConstSpan(&tensor, 1);
  return kernels::Quantize(exec, args);
}

ProductOperand PlainOperand::Rows(const TensorView& plain) const {
  return {plain};
}

ProductOperand PlainOperand::Columns(const TensorView& plain) const {
  ProductOperand product = {plain};
  product.transposed = true;
  return product;
}

}  // namespace hearth::trainer
