#include "worker/trainer/precision/plain/plain_copy.h"

#include "common/base/status_macros.h"
#include "kernels/round/round.h"

namespace hearth::trainer {

using kernels::DType;
using kernels::TensorView;

absl::Status CopyPlain(const kernels::Exec& exec, const TensorView& plain, void* data) {
  if (data == nullptr) {
    return absl::OkStatus();
  }
  kernels::RoundToArgs args;
  args.x = plain;
  args.y = TensorView(data, DType::kBF16, {plain.rows(), plain.cols()});
  args.to = DType::kBF16;
  return kernels::RoundTo(exec, args);
}

absl::Status CopyPlainWeights(const kernels::Exec& exec,
                              const ScalingContext& context,
                              const WeightRange& weights) {
  for (size_t i = weights.first; i < weights.first + weights.count; ++i) {
    const QuantisedWeight& weight = context.weights[i];
    const FormOperands operands = OperandsOf(*weight.recipe, Role::kW);
    HEARTH_RETURN_IF_ERROR(
        CopyPlain(exec, weight.weight, operands.rows.quantised() ? nullptr : weight.rows));
    HEARTH_RETURN_IF_ERROR(
        CopyPlain(exec, weight.weight, operands.columns.quantised() ? nullptr : weight.columns));
  }
  return absl::OkStatus();
}

ProductOperand PlainCopy(void* data, int64_t rows, int64_t cols, bool columns) {
  ProductOperand product;
  product.values = TensorView(data, DType::kBF16, {rows, cols});
  product.transposed = columns;
  return product;
}

}  // namespace hearth::trainer
