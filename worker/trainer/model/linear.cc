#include "worker/trainer/model/linear.h"

#include <algorithm>

#include "common/base/status_macros.h"

namespace hearth::trainer {

using kernels::GemmArgs;
using kernels::TensorView;
using spec::LayerFormat;

namespace {

Operand SiteX(const ModelContext& context, const spec::SiteBuffers& site) {
  return context.XOperand(site.weight, site.layer, context.Floats(site.x),
                          context.arena->Bytes(site.x_columns));
}

Operand SiteDy(const ModelContext& context, const spec::SiteBuffers& site) {
  return context.DyOperand(site.weight, site.layer, context.Floats(site.dy));
}

void SetInput(const FusedNormInput& input, GemmArgs& product) {
  product.a = input.x;
  product.input_norm = input.norm;
}

// a bT, summed along the rows of both.
void SetOperands(const ProductOperand& a, const ProductOperand& b, bool fast, GemmArgs& gemm) {
  gemm.a = a.values;
  gemm.b = b.values;
  gemm.scale_a = a.scale;
  gemm.scale_b = b.scale;
  gemm.block_scales_a = a.block_scales;
  gemm.block_scales_b = b.block_scales;
  gemm.block_layout_a = a.layout;
  gemm.block_layout_b = b.layout;
  gemm.transpose_a = a.transposed;
  gemm.transpose_b = !b.transposed;
  gemm.fast_accumulation = fast;
}

}  // namespace

Linear::Linear(const ModelContext& context, spec::Slot slot, int layer)
    : Linear(context,
             slot,
             layer,
             SiteX(context, context.Site(slot, layer)),
             SiteDy(context, context.Site(slot, layer))) {}

Linear::Linear(
    const ModelContext& context, spec::Slot slot, int layer, const Operand& x, const Operand& dy)
    : slot_(slot),
      layer_(layer),
      numerics_(context.numerics),
      round_gradient_(numerics_.Gradient(context.parameters->Find(slot, layer).gradient)),
      recipes_{nullptr, context.plan.precision.fallback, context.plan.precision.recipe},
      x_(x),
      dy_(dy),
      w_(context.WOperand(slot, layer)),
      weight_(context.parameters->FindWeight(slot, layer)),
      bias_(context.parameters->FindWeight(slot, layer, true)),
      d_weight_(context.parameters->FindGradient(slot, layer)),
      d_bias_(context.parameters->FindGradient(slot, layer, true)) {}

bool Linear::Fast(LayerFormat format, const spec::Gemm spec::Recipe::*product) const {
  const spec::Recipe* recipe = recipes_[static_cast<size_t>(format)];
  return recipe != nullptr && (recipe->*product).fast_accumulation;
}

GemmArgs Linear::Fprop(LayerFormat format, const TensorView& y) const {
  GemmArgs gemm;
  gemm.c = y;
  gemm.bias = bias_;
  gemm.round_c = numerics_.fprop;
  SetOperands(x_.In(format).Rows(x_.plain()), w_.In(format).Rows(weight_),
              Fast(format, &spec::Recipe::fprop), gemm);
  return gemm;
}

GemmArgs Linear::Wgrad(LayerFormat format, const TensorView& dy) const {
  GemmArgs gemm;
  gemm.c = d_weight_;
  gemm.round_c = round_gradient_;
  SetOperands(dy_.In(format).Columns(dy), x_.In(format).Columns(x_.plain()),
              Fast(format, &spec::Recipe::wgrad), gemm);
  return gemm;
}

GemmArgs Linear::Dgrad(LayerFormat format, const TensorView& dy, const TensorView& dx) const {
  GemmArgs gemm;
  gemm.c = dx;
  gemm.round_c = numerics_.dgrad;
  SetOperands(dy_.In(format).Rows(dy), w_.In(format).Columns(weight_),
              Fast(format, &spec::Recipe::dgrad), gemm);
  return gemm;
}

bool Linear::TakesNorm(const kernels::Exec& exec, const FusedNormInput& input) const {
  // Shapes and alignment decide; every buffer is aligned alike.
  TensorView y = input.x;
  y.shape[y.rank - 1] = weight_.rows();
  GemmArgs product = Fprop(LayerFormat::kPlain, y);
  SetInput(input, product);
  return kernels::TakesInputNorm(exec, product);
}

absl::StatusOr<GemmArgs> Linear::ForwardProduct(const kernels::Exec& exec,
                                                const Pass& pass,
                                                const TensorView& y,
                                                const FusedNormInput& input) const {
  const LayerFormat format = x_.InForce(pass);
  HEARTH_RETURN_IF_ERROR(x_.In(format).BeforeProduct(exec, x_.plain(), false));
  HEARTH_RETURN_IF_ERROR(w_.In(format).BeforeProduct(exec, weight_, false));
  GemmArgs product = Fprop(format, y);
  if (!input.empty()) {
    SetInput(input, product);
  }
  return product;
}

absl::Status Linear::Forward(const kernels::Exec& exec,
                             const Pass& pass,
                             const TensorView& y,
                             const FusedNormInput& input) const {
  HEARTH_ASSIGN_OR_RETURN(const GemmArgs product, ForwardProduct(exec, pass, y, input));
  return kernels::Gemm(exec, product);
}

absl::Status Linear::ForwardSum(const kernels::Exec& exec,
                                const Pass& pass,
                                const TensorView& addend,
                                const TensorView& y) const {
  HEARTH_ASSIGN_OR_RETURN(GemmArgs product, ForwardProduct(exec, pass, y));
  product.beta = 1.0;
  product.addend = addend.data == y.data ? TensorView() : addend;
  return kernels::Gemm(exec, product);
}

absl::Status Linear::Backward(const kernels::Exec& exec,
                              const Pass& pass,
                              const TensorView& plain_dy,
                              const TensorView& dx) const {
  // wgrad first: an x that backward makes again may lie in the buffer that dgrad writes
  // (ActivationRow::stand_in).
  HEARTH_RETURN_IF_ERROR(WeightGradient(exec, pass, plain_dy));
  return InputGradient(exec, pass, plain_dy, dx);
}

absl::Status Linear::WeightGradient(const kernels::Exec& exec,
                                    const Pass& pass,
                                    const TensorView& plain_dy) const {
  const LayerFormat format = x_.InForce(pass);
  HEARTH_RETURN_IF_ERROR(dy_.In(format).BeforeProduct(exec, plain_dy, true));
  HEARTH_RETURN_IF_ERROR(x_.In(format).BeforeProduct(exec, x_.plain(), true));
  GemmArgs wgrad = Wgrad(format, plain_dy);
  // The first micro-batch overwrites, which saves a pass that zeroes the largest gradients.
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

absl::StatusOr<GemmArgs> Linear::InputGradientProduct(const kernels::Exec& exec,
                                                      const Pass& pass,
                                                      const TensorView& plain_dy,
                                                      const TensorView& dx) const {
  const LayerFormat format = x_.InForce(pass);
  HEARTH_RETURN_IF_ERROR(dy_.In(format).BeforeProduct(exec, plain_dy, false));
  HEARTH_RETURN_IF_ERROR(w_.In(format).BeforeProduct(exec, weight_, true));
  return Dgrad(format, plain_dy, dx);
}

absl::Status Linear::InputGradient(const kernels::Exec& exec,
                                   const Pass& pass,
                                   const TensorView& plain_dy,
                                   const TensorView& dx) const {
  HEARTH_ASSIGN_OR_RETURN(const GemmArgs product, InputGradientProduct(exec, pass, plain_dy, dx));
  return kernels::Gemm(exec, product);
}

size_t Linear::WorkspaceBytes(const kernels::Exec& exec) const {
  const auto rows = x_.plain().rows();
  const kernels::DType activation = weight_.dtype;
  // Only shapes and formats count here: no data is read.
  const TensorView y(weight_.data, activation, {rows, weight_.dim(0)});
  const TensorView dx(weight_.data, activation, {rows, weight_.dim(1)});
  size_t bytes = 0;
  for (const LayerFormat format :
       {LayerFormat::kPlain, LayerFormat::kFallback, LayerFormat::kOwn}) {
    if (!x_.Has(format)) {
      continue;
    }
    bytes = std::max(bytes, kernels::GemmWorkspaceBytes(exec, Fprop(format, y)));
    if (!d_weight_.empty()) {
      bytes = std::max({bytes, kernels::GemmWorkspaceBytes(exec, Wgrad(format, y)),
                        kernels::GemmWorkspaceBytes(exec, Dgrad(format, y, dx))});
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
  context.AppendParams(slot_, layer_, params);
}

}  // namespace hearth::trainer
