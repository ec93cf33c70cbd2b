#include "worker/trainer/precision/per_tensor/tensor_scales.h"

#include <utility>

#include "absl/types/span.h"
#include "kernels/quantize/quantize.h"
#include "worker/trainer/precision/scaling.h"

namespace hearth::trainer {

TensorScales::TensorScales(QuantSites sites, const spec::Recipe& recipe)
    : sites_(std::move(sites)) {
  // One scale serves both forms of a tensor, and so does one format: tables_test.cc. Where one form
  // stays in BF16 the other one's counts; where both do, nothing reads the scales.
  for (const Role role : {Role::kX, Role::kDy, Role::kW}) {
    const FormOperands operands = OperandsOf(recipe, role);
    const spec::Operand& operand = operands.rows.quantised() ? operands.rows : operands.columns;
    dtypes_.insert(dtypes_.end(), static_cast<size_t>(sites_.weights()),
                   operand.quantised() ? operand.dtype : kernels::DType::kE4M3);
  }
}

kernels::QuantView TensorScales::View(int64_t index, void* rows, void* columns) const {
  kernels::QuantView quant;
  quant.dtype = dtypes_[static_cast<size_t>(index)];
  quant.rows = rows;
  quant.columns = columns;
  quant.scale = quant.has_values() ? sites_.At(index).carried : nullptr;
  return quant;
}

ProductOperand TensorScales::Product(int64_t index,
                                     void* data,
                                     int64_t lines,
                                     int64_t extent) const {
  ProductOperand product;
  product.values = kernels::TensorView(data, dtypes_[static_cast<size_t>(index)], {lines, extent});
  product.scale = sites_.At(index).scale_inverse;
  return product;
}

absl::Status TensorScales::Update(
    const kernels::Exec& exec, int64_t first, int64_t count, int group, const int32_t* skip) const {
  const QuantSite site = sites_.At(first);
  const int history = sites_.history();
  kernels::UpdateScalesArgs args;
  args.n = count;
  args.history = history;
  args.amax = site.amax;
  args.ring = history > 0 ? sites_.ring() + first * history : nullptr;
  args.scale = site.carried;
  args.scale_inverse = site.scale_inverse;
  args.dtypes =
      absl::MakeConstSpan(dtypes_).subspan(static_cast<size_t>(first), static_cast<size_t>(count));
  args.cursor = history > 0 ? sites_.cursors() + group : nullptr;
  args.skip = skip;
  return kernels::UpdateScales(exec, args);
}

absl::Status TensorScales::UpdateActivations(const kernels::Exec& exec, const int32_t* skip) const {
  return Update(exec, 0, 2 * sites_.weights(), 0, skip);
}

absl::Status TensorScales::UpdateWeights(const kernels::Exec& exec, const int32_t* skip) const {
  return Update(exec, 2 * sites_.weights(), sites_.weights(), 1, skip);
}

absl::Status TensorScales::UpdateOne(const kernels::Exec& exec, int64_t index) const {
  const QuantSite site = sites_.At(index);
  kernels::UpdateScalesArgs args;
  args.n = 1;
  args.amax = site.amax;
  args.scale = site.carried;
  args.scale_inverse = site.scale_inverse;
  args.dtypes = absl::MakeConstSpan(dtypes_).subspan(static_cast<size_t>(index), 1);
  return kernels::UpdateScales(exec, args);
}

}  // namespace hearth::trainer
