#include "worker/trainer/precision/per_tensor/on_demand.h"

#include "absl/types/span.h"
#include "kernels/quantize/quantize.h"

namespace hearth::trainer {

using kernels::TensorView;

ProductOperand OnDemandOperand::Rows(const TensorView& plain) const {
  return scales_->Product(site_, rows_, plain.rows(), plain.cols());
}

ProductOperand OnDemandOperand::Columns(const TensorView& plain) const {
  return scales_->Product(site_, columns_, plain.cols(), plain.rows());
}

absl::Status OnDemandOperand::BeforeProduct(const kernels::Exec& exec,
                                            const TensorView& plain,
                                            bool columns) const {
  kernels::QuantizeTensor tensor;
  tensor.x = plain;
  tensor.quant = scales_->View(site_, columns ? nullptr : rows_, columns ? columns_ : nullptr);
  kernels::QuantizeArgs args;
  args.tensors = absl::MakeConstSpan(&tensor, 1);
  return kernels::Quantize(exec, args);
}

}  // namespace hearth::trainer
