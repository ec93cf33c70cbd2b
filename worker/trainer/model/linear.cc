#include "worker/trainer/model/linear.h"

#include <algorithm>

#include "common/base/status_macros.h"

namespace hearth::trainer {

using kernels::GemmArgs;
using kernels::TensorView;
using Role = FallbackOperands::Role;

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
    fallback_ = FallbackOperands(context, k);
  }
  fallback_recipe_ = context.plan.precision.fallback;
}

namespace {

// Contracted along the rows of both.
void SetOperands(const ProductOperand& a, const ProductOperand& b, bool fast, GemmArgs& gemm) {
  gemm.a = a.values;
  gemm.b = b.values;
  gemm.scale_a = a.scale;
  gemm.scale_b = b.scale;
  gemm.block_scales_a = a.block_scales;
  gemm.block_scales_b = b.block_scales;
  gemm.transpose_a = false;
  gemm.transpose_b = true;
  gemm.fast_accumulation = fast;
}

}  // namespace

GemmArgs Linear::Fprop(bool quantised, const TensorView& y) const {
  GemmArgs gemm;
  gemm.a = x_.plain();
  gemm.b = weight_;
  gemm.c = y;
  gemm.bias = bias_;
  gemm.transpose_b = true;
  gemm.round_c = numerics_.fprop;
  if (quantised) {
    SetOperands(x_.Rows(), weight_rows_, fast_fprop_, gemm);
  }
  return gemm;
}

GemmArgs Linear::Wgrad(bool quantised, const TensorView& dy) const {
  GemmArgs gemm;
  gemm.a = dy;
  gemm.b = x_.plain();
  gemm.c = d_weight_;
  gemm.transpose_a = true;
  gemm.round_c = numerics_.gradient;
  if (quantised) {
    SetOperands(dy_.Columns(), x_.Columns(), fast_wgrad_, gemm);
  }
  return gemm;
}

GemmArgs Linear::Dgrad(bool quantised, const TensorView& dy, const TensorView& dx) const {
  GemmArgs gemm;
  gemm.a = dy;
  gemm.b = weight_;
  gemm.c = dx;
  gemm.round_c = numerics_.dgrad;
  if (quantised) {
    SetOperands(dy_.Rows(), weight_columns_, fast_dgrad_, gemm);
  }
  return gemm;
}

absl::Status Linear::Forward(const kernels::Exec& exec,
                             const Pass& pass,
                             const TensorView& y) const {
  GemmArgs fprop = Fprop(x_.Quantised(pass), y);
  if (InFallback(pass)) {
    HEARTH_ASSIGN_OR_RETURN(const ProductOperand x,
                            fallback_.Quantize(exec, Role::kX, x_.plain(), false));
    HEARTH_ASSIGN_OR_RETURN(const ProductOperand w,
                            fallback_.Quantize(exec, Role::kW, weight_, false));
    SetOperands(x, w, fallback_recipe_->fprop.fast_accumulation, fprop);
  }
  return kernels::Gemm(exec, fprop);
}

absl::Status Linear::Backward(const kernels::Exec& exec,
                              const Pass& pass,
                              const TensorView& plain_dy,
                              const TensorView& dx) const {
  HEARTH_RETURN_IF_ERROR(WeightGradient(exec, pass, plain_dy));
  return InputGradient(exec, pass, plain_dy, dx);
}

absl::Status Linear::WeightGradient(const kernels::Exec& exec,
                                    const Pass& pass,
                                    const TensorView& plain_dy) const {
  GemmArgs wgrad = Wgrad(x_.Quantised(pass), plain_dy);
  if (InFallback(pass)) {
    HEARTH_ASSIGN_OR_RETURN(const ProductOperand dy,
                            fallback_.Quantize(exec, Role::kDy, plain_dy, true));
    HEARTH_ASSIGN_OR_RETURN(const ProductOperand x,
                            fallback_.Quantize(exec, Role::kX, x_.plain(), true));
    SetOperands(dy, x, fallback_recipe_->wgrad.fast_accumulation, wgrad);
  }
  wgrad.beta = pass.accumulate ? 1.0 : 0.0;
  HEARTH_RETURN_IF_ERROR(kernels::Gemm(exec, wgrad));
  if (d_bias_.empty()) {
    return absl::OkStatus();
  }
  kernels::ColumnSumArgs sum;
  sum.x = plain_dy;
  sum.out = d_bias_;
  sum.beta = 1.0;
  return kernels::ColumnSum(exec, sum);
}

absl::Status Linear::InputGradient(const kernels::Exec& exec,
                                   const Pass& pass,
                                   const TensorView& plain_dy,
                                   const TensorView& dx) const {
  GemmArgs dgrad = Dgrad(x_.Quantised(pass), plain_dy, dx);
  if (InFallback(pass)) {
    HEARTH_ASSIGN_OR_RETURN(const ProductOperand dy,
                            fallback_.Quantize(exec, Role::kDy, plain_dy, false));
    HEARTH_ASSIGN_OR_RETURN(const ProductOperand w,
                            fallback_.Quantize(exec, Role::kW, weight_, true));
    SetOperands(dy, w, fallback_recipe_->dgrad.fast_accumulation, dgrad);
  }
  return kernels::Gemm(exec, dgrad);
}

size_t Linear::FallbackWorkspaceBytes(const kernels::Exec& exec,
                                      const TensorView& y,
                                      const TensorView& dx) const {
  const TensorView& x = x_.plain();
  const spec::Recipe& recipe = *fallback_recipe_;
  GemmArgs fprop = Fprop(false, y);
  SetOperands(fallback_.View(Role::kX, x, false), fallback_.View(Role::kW, weight_, false),
              recipe.fprop.fast_accumulation, fprop);
  size_t bytes = kernels::GemmWorkspaceBytes(exec, fprop);
  if (d_weight_.empty()) {
    return bytes;
  }
  GemmArgs wgrad = Wgrad(false, y);
  SetOperands(fallback_.View(Role::kDy, y, true), fallback_.View(Role::kX, x, true),
              recipe.wgrad.fast_accumulation, wgrad);
  GemmArgs dgrad = Dgrad(false, y, dx);
  SetOperands(fallback_.View(Role::kDy, y, false), fallback_.View(Role::kW, weight_, true),
              recipe.dgrad.fast_accumulation, dgrad);
  return std::max(
      {bytes, kernels::GemmWorkspaceBytes(exec, wgrad), kernels::GemmWorkspaceBytes(exec, dgrad)});
}

size_t Linear::WorkspaceBytes(const kernels::Exec& exec) const {
  const auto rows = x_.plain().rows();
  const kernels::DType activation = weight_.dtype;
  const TensorView y(weight_.data, activation, {rows, weight_.dim(0)});
  const TensorView dx(weight_.data, activation, {rows, weight_.dim(1)});
  size_t bytes = 0;
  for (const bool quantised : {false, true}) {
    if (quantised && weight_rows_.values.empty()) {
      continue;
    }
    bytes = std::max(bytes, kernels::GemmWorkspaceBytes(exec, Fprop(quantised, y)));
    if (!d_weight_.empty()) {
      bytes = std::max({bytes, kernels::GemmWorkspaceBytes(exec, Wgrad(quantised, y)),
                        kernels::GemmWorkspaceBytes(exec, Dgrad(quantised, y, dx))});
    }
  }
  if (!fallback_.empty()) {
    bytes = std::max(bytes, FallbackWorkspaceBytes(exec, y, dx));
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
