#include "worker/trainer/model/operand.h"

#include "common/base/status_macros.h"
#include "kernels/block_quantize/block_quantize.h"
#include "kernels/quantize/quantize.h"
#include "worker/trainer/model/pass.h"
#include "worker/trainer/recipe/numerics.h"

namespace hearth::trainer {

using kernels::DType;
using kernels::QuantView;
using kernels::TensorView;

Operand::Operand(const OperandBuffers& buffers, const QuantState& state, int64_t index)
    : buffers_(buffers), state_(&state), index_(index) {
  const auto n = state.size();
  layer_ = state.LayerOf(index);
  site_ = index < n ? state.X(static_cast<int>(index)) : state.Dy(static_cast<int>(index - n));
}

// Of scales of tensors; where magnitudes alone are recorded it means nothing.
DType Operand::Format() const {
  return is_x() ? DType::kE4M3 : DType::kE5M2;
}

const spec::Operand& Operand::RowsFormat() const {
  const spec::Recipe& recipe = *state_->precision().recipe;
  return is_x() ? recipe.fprop.a : recipe.dgrad.a;
}

const spec::Operand& Operand::ColumnsFormat() const {
  const spec::Gemm& wgrad = state_->precision().recipe->wgrad;
  return is_x() ? wgrad.a : wgrad.b;
}

kernels::BlockQuantView Operand::Blocks(const Pass& pass, Forms forms) const {
  const int64_t rows = buffers_.plain.rows();
  const int64_t cols = buffers_.plain.cols();
  kernels::BlockQuantView quant;
  quant.dtype = StorageType(RowsFormat().dtype);
  if (forms != Forms::kColumns) {
    quant.rows = state_->Form(RowsFormat(), index_, false, buffers_.rows, rows, cols);
    quant.amax = pass.record ? site_.amax : nullptr;
  }
  if (forms != Forms::kRows && pass.record) {
    quant.columns = state_->Form(ColumnsFormat(), index_, true, buffers_.columns, cols, rows);
  }
  if (pass.count && forms != Forms::kColumns) {
    quant.rows.counts = state_->CountsOf(index_);
  }
  quant.key.seed = pass.seed;
  quant.key.step = pass.step;
  quant.key.micro_batch = pass.micro_batch;
  quant.key.tensor = static_cast<uint32_t>(index_);
  quant.position = pass.position;
  quant.rotation = static_cast<uint32_t>(index_ % state_->size());
  return quant;
}

absl::Status Operand::QuantizeBlocks(const kernels::Exec& exec,
                                     const Pass& pass,
                                     const TensorView& plain,
                                     Forms forms) const {
  kernels::BlockQuantizeTensor tensor;
  tensor.x = plain;
  tensor.quant = Blocks(pass, forms);
  kernels::BlockQuantizeArgs args;
  args.tensors = absl::MakeConstSpan(&tensor, 1);
  return kernels::BlockQuantize(exec, args);
}

spec::LayerFormat Operand::InForce(const Pass& pass) const {
  return state_ == nullptr ? spec::LayerFormat::kPlain
                           : state_->precision().FormatOf(pass.format, layer_);
}

QuantView Operand::Values(Forms forms) const {
  QuantView quant;
  quant.dtype = Format();
  quant.rows = forms == Forms::kColumns ? nullptr : buffers_.rows;
  quant.columns = forms == Forms::kRows ? nullptr : buffers_.columns;
  quant.scale = site_.scale;
  return quant;
}

OperandTarget Operand::Target(const Pass& pass, bool keep_plain, bool blocks, Forms forms) const {
  OperandTarget target;
  target.plain = buffers_.plain;
  if (state_ == nullptr) {
    return target;
  }
  const bool delayed = state_->precision().delayed;
  const bool quantised = Quantised(pass);
  if (quantised && state_->precision().block) {
    if (blocks) {
      target.blocks = Blocks(pass, forms);
      target.plain = keep_plain ? target.plain : TensorView();
    }
    return target;
  }
  // The scale is known: that of an earlier step, or forward's.
  if (quantised && (delayed || forms == Forms::kColumns)) {
    target.quant = Values(forms);
    target.plain = keep_plain ? target.plain : TensorView();
  }
  // Magnitudes of evaluation are not the training's.
  if (forms != Forms::kColumns && (delayed ? pass.record : quantised)) {
    target.quant.amax = site_.amax;
    target.quant.dtype = Format();
  }
  return target;
}

absl::Status Operand::Settle(const kernels::Exec& exec,
                             const Pass& pass,
                             const OperandTarget& target,
                             Forms forms) const {
  if (!Quantised(pass) || !target.blocks.empty()) {
    return absl::OkStatus();
  }
  if (state_->precision().block) {
    return QuantizeBlocks(exec, pass, buffers_.plain, forms);
  }
  if (forms == Forms::kColumns) {
    return absl::OkStatus();
  }
  if (state_->precision().delayed) {
    return Count(exec, pass);
  }
  HEARTH_RETURN_IF_ERROR(state_->UpdateOne(exec, index_));
  const kernels::QuantizeTensor tensor = {buffers_.plain, Values(forms)};
  kernels::QuantizeArgs args;
  args.tensors = absl::MakeConstSpan(&tensor, 1);
  HEARTH_RETURN_IF_ERROR(kernels::Quantize(exec, args));
  return Count(exec, pass);
}

absl::Status Operand::Count(const kernels::Exec& exec, const Pass& pass) const {
  return pass.count ? state_->Count(exec, index_, Rows().values) : absl::OkStatus();
}

absl::Status Operand::Make(const kernels::Exec& exec,
                           const Pass& pass,
                           const TensorView& plain,
                           Forms forms) const {
  if (state_ == nullptr) {
    return absl::OkStatus();
  }
  const bool quantised = Quantised(pass);
  if (quantised && state_->precision().block) {
    return QuantizeBlocks(exec, pass, plain, forms);
  }
  const bool delayed = state_->precision().delayed;
  const bool measured = forms != Forms::kColumns && (delayed ? pass.record : quantised);
  kernels::QuantizeTensor tensor;
  tensor.x = plain;
  tensor.quant.dtype = Format();
  tensor.quant.amax = measured ? site_.amax : nullptr;
  kernels::QuantizeArgs args;
  args.tensors = absl::MakeConstSpan(&tensor, 1);
  if (quantised && !delayed && measured) {
    HEARTH_RETURN_IF_ERROR(kernels::Quantize(exec, args));
    HEARTH_RETURN_IF_ERROR(state_->UpdateOne(exec, index_));
    tensor.quant.amax = nullptr;
  }
  if (quantised) {
    float* const amax = tensor.quant.amax;
    tensor.quant = Values(forms);
    tensor.quant.amax = amax;
  }
  if (tensor.quant.empty()) {
    return absl::OkStatus();
  }
  HEARTH_RETURN_IF_ERROR(kernels::Quantize(exec, args));
  return quantised && forms != Forms::kColumns ? Count(exec, pass) : absl::OkStatus();
}

ProductOperand Operand::Rows() const {
  const TensorView& p = buffers_.plain;
  return state_->Product(RowsFormat(), index_, false, buffers_.rows, p.rows(), p.cols());
}

ProductOperand Operand::Columns() const {
  const TensorView& p = buffers_.plain;
  return state_->Product(ColumnsFormat(), index_, true, buffers_.columns, p.cols(), p.rows());
}

}  // namespace hearth::trainer
