#include "worker/trainer/model/linear.h"

#include <algorithm>

#include "common/base/status_macros.h"

namespace hearth::trainer {

using kernels::GemmArgs;
using kernels::TensorView;

Linear::Linear(
    const ModelContext& context, spec::Slot slot, int layer, const Operand& x, const Operand& dy)
    : slot_(slot),
      layer_(layer),
      numerics_(context.numerics),
      fast_fprop_(context.plan.recipe->fprop.fast_accumulation),
      fast_dgrad_(context.plan.recipe->dgrad.fast_accumulation),
      fast_wgrad_(context.plan.recipe->wgrad.fast_accumulation),
      x_(x),
      dy_(dy),
      weight_(context.parameters->FindWeight(slot, layer)),
      bias_(context.parameters->FindWeight(slot, layer, true)),
      d_weight_(context.parameters->FindGradient(slot, layer)),
      d_bias_(context.parameters->FindGradient(slot, layer, true)) {
  const QuantState* quant = context.quant;
  const int k = quant == nullptr
                    ? -1
                    : quant->Find(spec::FindParameter(context.parameters->table(), slot, layer));
  if (k >= 0) {
    weight_rows_ = quant->WeightRows(k);
    weight_columns_ = quant->WeightColumns(k);
    weight_scale_ = quant->W(k).scale_inverse;
  }
}

GemmArgs Linear::Fprop(bool quantised, const TensorView& y) const {
  GemmArgs gemm;
  gemm.a = quantised ? x_.rows() : x_.plain();
  gemm.b = quantised ? weight_rows_ : weight_;
  gemm.c = y;
  gemm.bias = bias_;
  gemm.transpose_b = true;
  gemm.round_c = numerics_.fprop;
  if (quantised) {
    gemm.scale_a = x_.scale_inverse();
    gemm.scale_b = weight_scale_;
    gemm.fast_accumulation = fast_fprop_;
  }
  return gemm;
}

GemmArgs Linear::Wgrad(bool quantised, const TensorView& dy) const {
  GemmArgs gemm;
  gemm.a = quantised ? dy_.columns() : dy;
  gemm.b = quantised ? x_.columns() : x_.plain();
  gemm.c = d_weight_;
  gemm.transpose_a = !quantised;
  gemm.transpose_b = quantised;
  gemm.round_c = numerics_.gradient;
  if (quantised) {
    gemm.scale_a = dy_.scale_inverse();
    gemm.scale_b = x_.scale_inverse();
    gemm.fast_accumulation = fast_wgrad_;
  }
  return gemm;
}

GemmArgs Linear::Dgrad(bool quantised, const TensorView& dy, const TensorView& dx) const {
  GemmArgs gemm;
  gemm.a = quantised ? dy_.rows() : dy;
  gemm.b = quantised ? weight_columns_ : weight_;
  gemm.c = dx;
  gemm.transpose_b = quantised;
  gemm.round_c = numerics_.dgrad;
  if (quantised) {
    gemm.scale_a = dy_.scale_inverse();
    gemm.scale_b = weight_scale_;
    gemm.fast_accumulation = fast_dgrad_;
  }
  return gemm;
}

absl::Status Linear::Forward(const kernels::Exec& exec,
                             const Pass& pass,
                             const TensorView& y) const {
  return kernels::Gemm(exec, Fprop(x_.Quantised(pass), y));
}

absl::Status Linear::Backward(const kernels::Exec& exec,
                              const Pass& pass,
                              const TensorView& plain_dy,
                              const TensorView& dx) const {
  const bool quantised = x_.Quantised(pass);
  GemmArgs wgrad = Wgrad(quantised, plain_dy);
  wgrad.beta = pass.accumulate ? 1.0 : 0.0;
  HEARTH_RETURN_IF_ERROR(kernels::Gemm(exec, wgrad));
  if (!d_bias_.empty()) {
    kernels::ColumnSumArgs sum;
    sum.x = plain_dy;
    sum.out = d_bias_;
    sum.beta = 1.0;
    HEARTH_RETURN_IF_ERROR(kernels::ColumnSum(exec, sum));
  }
  return kernels::Gemm(exec, Dgrad(quantised, plain_dy, dx));
}

size_t Linear::WorkspaceBytes(const kernels::Exec& exec) const {
  const auto rows = x_.plain().rows();
  const kernels::DType activation = weight_.dtype;
  const TensorView y(weight_.data, activation, {rows, weight_.dim(0)});
  const TensorView dx(weight_.data, activation, {rows, weight_.dim(1)});
  size_t bytes = 0;
  for (const bool quantised : {false, true}) {
    if (quantised && weight_rows_.empty()) {
      continue;
    }
    bytes = std::max(bytes, kernels::GemmWorkspaceBytes(exec, Fprop(quantised, y)));
    if (!d_weight_.empty()) {
      bytes = std::max({bytes, kernels::GemmWorkspaceBytes(exec, Wgrad(quantised, y)),
                        kernels::GemmWorkspaceBytes(exec, Dgrad(quantised, y, dx))});
    }
  }
  if (!d_bias_.empty()) {
    kernels::ColumnSumArgs sum;
    sum.x = y;
    sum.out = d_bias_;
    bytes = std::max(bytes, kernels::ColumnSumWorkspaceBytes(sum));
  }
  return bytes;
}

void Linear::AppendParams(const ModelContext& context, std::vector<int>& params) const {
  for (const bool is_bias : {false, true}) {
    const int i = spec::FindParameter(context.parameters->table(), slot_, layer_, is_bias);
    if (i >= 0) {
      params.push_back(i);
    }
  }
}

}  // namespace hearth::trainer
