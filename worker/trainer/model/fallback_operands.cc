#include "worker/trainer/model/fallback_operands.h"

#include "absl/types/span.h"
#include "common/base/status_macros.h"
#include "kernels/quantize/quantize.h"
#include "worker/trainer/model/sub_block.h"

namespace hearth::trainer {

using kernels::TensorView;

FallbackOperands::FallbackOperands(const ModelContext& context, int k) : k_(k) {
  if (context.quant->fallback().empty()) {
    return;
  }
  const int parameter = context.quant->parameter(k);
  const spec::FallbackLayout layout = spec::LayoutFallback(
      context.plan, context.parameters->table()[static_cast<size_t>(parameter)]);
  scales_ = &context.quant->fallback();
  a_ = context.Forms(layout.a);
  b_ = context.Forms(layout.b);
}

int64_t FallbackOperands::Site(Role role) const {
  return static_cast<int64_t>(role) * (scales_->sites() / 3) + k_;
}

ProductOperand FallbackOperands::View(Role role, const TensorView& plain, bool columns) const {
  const int64_t site = Site(role);
  const bool first = role == Role::kDy || (role == Role::kX && !columns);
  const int64_t lines = columns ? plain.cols() : plain.rows();
  const int64_t extent = columns ? plain.rows() : plain.cols();
  ProductOperand product;
  product.values =
      TensorView(static_cast<void*>(first ? a_ : b_), scales_->dtype(site), {lines, extent});
  product.scale = scales_->At(site).scale_inverse;
  return product;
}

absl::StatusOr<ProductOperand> FallbackOperands::Quantize(const kernels::Exec& exec,
                                                          Role role,
                                                          const TensorView& plain,
                                                          bool columns) const {
  const ProductOperand product = View(role, plain, columns);
  kernels::QuantizeTensor tensor;
  tensor.x = plain;
  tensor.quant.dtype = product.values.dtype;
  (columns ? tensor.quant.columns : tensor.quant.rows) = product.values.data;
  tensor.quant.scale = scales_->At(Site(role)).scale;
  kernels::QuantizeArgs args;
  args.tensors = absl::MakeConstSpan(&tensor, 1);
  HEARTH_RETURN_IF_ERROR(kernels::Quantize(exec, args));
  return product;
}

}  // namespace hearth::trainer
