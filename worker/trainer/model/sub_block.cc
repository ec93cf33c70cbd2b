#include "worker/trainer/model/sub_block.h"

namespace hearth::trainer {

using kernels::TensorView;

uint8_t* ModelContext::Forms(int64_t offset) const {
  return arena->Bytes(ids().quant.forms) + offset;
}

Operand ModelContext::Bind(Role role, spec::Slot slot, int layer, OperandBuffers buffers) const {
  const int parameter = spec::FindParameter(parameters->table(), slot, layer);
  if (plan.precision.fallback != nullptr && quant->Quantises(parameter) && layer >= 0) {
    // The products read only what was quantised last of x, dy, weights and columns of x.
    const spec::FallbackLayout layout =
        spec::LayoutFallback(plan, parameters->table()[static_cast<size_t>(parameter)]);
    buffers.fallback_rows = Forms(role == Role::kW ? layout.b : layout.a);
    buffers.fallback_columns = Forms(role == Role::kDy ? layout.a : layout.b);
  }
  return quant->Bind(role, parameter, buffers);
}

void ModelContext::AppendParams(spec::Slot slot, int layer, std::vector<int>& params) const {
  for (const bool is_bias : {false, true}) {
    const int i = spec::FindParameter(parameters->table(), slot, layer, is_bias);
    if (i >= 0) {
      params.push_back(i);
    }
  }
}

Operand ModelContext::XOperand(spec::Slot slot,
                               int layer,
                               const TensorView& plain,
                               void* columns) const {
  OperandBuffers buffers;
  buffers.plain = plain;
  if (!quant->empty()) {
    const spec::FormsLayout& layout = ids().quant.layout;
    buffers.rows = Forms(ids().Site(slot, layer).x_rows_apart ? layout.rows_apart : layout.rows);
  }
  buffers.columns = columns;
  return Bind(Role::kX, slot, layer, buffers);
}

Operand ModelContext::DyOperand(spec::Slot slot, int layer, const TensorView& plain) const {
  OperandBuffers buffers;
  buffers.plain = plain;
  if (!quant->empty()) {
    const spec::FormsLayout& layout = ids().quant.layout;
    const bool waits = ids().Site(slot, layer).dy_waits;
    buffers.rows = Forms(waits ? layout.waiting_dy_rows : layout.dy_rows);
    buffers.columns = Forms(waits ? layout.waiting_dy_columns : layout.dy_columns);
  }
  return Bind(Role::kDy, slot, layer, buffers);
}

Operand ModelContext::WOperand(spec::Slot slot, int layer) const {
  OperandBuffers buffers;
  buffers.plain = parameters->FindWeight(slot, layer);
  return Bind(Role::kW, slot, layer, buffers);
}

}  // namespace hearth::trainer
