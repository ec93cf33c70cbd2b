#include "worker/trainer/model/sub_block.h"

#include "absl/strings/str_cat.h"

namespace hearth::trainer {

using kernels::TensorView;

std::string ModelContext::ActivationBuffer(int layer, std::string_view name) const {
  const absl::string_view key(name.data(), name.size());
  for (std::string buffer :
       {absl::StrCat("layers.", layer, ".", key), absl::StrCat("shared.", key)}) {
    if (arena->Has(buffer)) {
      return buffer;
    }
  }
  for (const spec::ActivationSpec& activation : spec::LayerActivations(plan)) {
    if (activation.name == name) {
      return std::string(spec::StandIn(activation, plan));
    }
  }
  return "";
}

TensorView ModelContext::Activation(int layer,
                                    std::string_view name,
                                    std::initializer_list<int64_t> shape) const {
  const std::string buffer = ActivationBuffer(layer, name);
  return buffer.empty() ? TensorView() : arena->Floats(buffer, shape);
}

void* ModelContext::ActivationBytes(int layer, std::string_view name) const {
  const std::string buffer = ActivationBuffer(layer, name);
  return buffer.empty() ? nullptr : arena->Bytes(buffer, arena->BytesOf(buffer));
}

uint8_t* ModelContext::Forms(int64_t offset) const {
  return static_cast<uint8_t*>(arena->Bytes("quant.forms", arena->BytesOf("quant.forms"))) + offset;
}

Operand ModelContext::XOperand(spec::Slot slot,
                               int layer,
                               const TensorView& plain,
                               void* columns) const {
  const int k =
      quant == nullptr ? -1 : quant->Find(spec::FindParameter(parameters->table(), slot, layer));
  if (k < 0) {
    return Operand(plain);
  }
  OperandBuffers buffers;
  buffers.plain = plain;
  buffers.rows = Forms(spec::LayoutForms(plan).rows);
  buffers.columns = columns;
  return Operand(buffers, *quant, k);
}

Operand ModelContext::DyOperand(spec::Slot slot, int layer, const TensorView& plain) const {
  const int k =
      quant == nullptr ? -1 : quant->Find(spec::FindParameter(parameters->table(), slot, layer));
  if (k < 0) {
    return Operand(plain);
  }
  OperandBuffers buffers;
  buffers.plain = plain;
  const spec::FormsLayout layout = spec::LayoutForms(plan);
  buffers.rows = Forms(layout.dy_rows);
  buffers.columns =
      Forms(slot == spec::Slot::kFfnDown ? layout.down_dy_columns : layout.dy_columns);
  return Operand(buffers, *quant, quant->size() + k);
}

TensorView StreamGradient(const ModelContext& context) {
  return context.plan.training
             ? context.arena->Floats("grad.stream", {context.rows(), context.shape().hidden})
             : TensorView();
}

}  // namespace hearth::trainer
