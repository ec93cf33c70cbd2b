#include "worker/trainer/model/sub_block.h"

#include "absl/strings/str_cat.h"

namespace hearth::trainer {

using kernels::TensorView;

TensorView ModelContext::Activation(int layer,
                                    std::string_view name,
                                    std::initializer_list<int64_t> shape) const {
  const absl::string_view key(name.data(), name.size());
  const std::string own = absl::StrCat("layers.", layer, ".", key);
  const std::string shared = absl::StrCat("shared.", key);
  const std::string* found = arena->Has(own) ? &own : arena->Has(shared) ? &shared : nullptr;
  if (found == nullptr) {
    return TensorView();
  }
  if ((*arena->plan().Find(*found))->format.has_value()) {
    return arena->Floats(*found, shape);
  }
  // Quantised values alone: the view has the plain form's shape and no plain memory of its own.
  return {arena->Bytes(*found, arena->BytesOf(*found)), kernels::DType::kU8, shape};
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
  buffers.rows = arena->Bytes("quant.rows", arena->BytesOf("quant.rows"));
  buffers.columns = columns;
  if (arena->Has("quant.plain")) {
    buffers.scratch = arena->Floats("quant.plain", {plain.rows(), plain.cols()});
  }
  return Operand(buffers, *quant, k);
}

Operand ModelContext::DyOperand(spec::Slot slot, int layer, const TensorView& plain) const {
  const int k =
      quant == nullptr ? -1 : quant->Find(spec::FindParameter(parameters->table(), slot, layer));
  if (k < 0) {
    return Operand(plain);
  }
  OperandBuffers buffers;
  buffers.plain = buffers.scratch = plain;
  buffers.rows = arena->Bytes("quant.dy_rows", arena->BytesOf("quant.dy_rows"));
  buffers.columns = arena->Bytes("quant.dy_columns", arena->BytesOf("quant.dy_columns"));
  return Operand(buffers, *quant, quant->size() + k);
}

TensorView StreamGradient(const ModelContext& context) {
  return context.plan.training
             ? context.arena->Floats("grad.stream", {context.rows(), context.shape().hidden})
             : TensorView();
}

kernels::QuantView StreamQuant(const Pass& pass, const Operand* next) {
  return next == nullptr ? kernels::QuantView() : next->Target(pass, true).quant;
}

}  // namespace hearth::trainer
