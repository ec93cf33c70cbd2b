#include "worker/trainer/model/linear.h"

#include <algorithm>

#include "common/base/status_macros.h"

namespace hearth::trainer {

using kernels::TensorView;

Linear::Linear(const ModelContext& context, spec::Slot slot, int layer)
    : slot_(slot),
      layer_(layer),
      numerics_(context.numerics),
      weight_(context.parameters->FindWeight(slot, layer)),
      bias_(context.parameters->FindWeight(slot, layer, true)),
      d_weight_(context.parameters->FindGradient(slot, layer)),
      d_bias_(context.parameters->FindGradient(slot, layer, true)) {}

absl::Status Linear::Forward(const kernels::Exec& exec,
                             const TensorView& x,
                             const TensorView& y) const {
  kernels::GemmArgs gemm;
  gemm.a = x;
  gemm.b = weight_;
  gemm.c = y;
  gemm.bias = bias_;
  gemm.transpose_b = true;
  gemm.round_c = numerics_.fprop;
  return kernels::Gemm(exec, gemm);
}

absl::Status Linear::Backward(const kernels::Exec& exec,
                              const TensorView& dy,
                              const TensorView& x,
                              const TensorView& dx) const {
  kernels::GemmArgs wgrad;
  wgrad.a = dy;
  wgrad.b = x;
  wgrad.c = d_weight_;
  wgrad.transpose_a = true;
  wgrad.beta = 1.0;
  wgrad.round_c = numerics_.gradient;
  HEARTH_RETURN_IF_ERROR(kernels::Gemm(exec, wgrad));
  if (!bias_.empty()) {
    kernels::ColumnSumArgs sum;
    sum.x = dy;
    sum.out = d_bias_;
    sum.beta = 1.0;
    HEARTH_RETURN_IF_ERROR(kernels::ColumnSum(exec, sum));
  }
  kernels::GemmArgs dgrad;
  dgrad.a = dy;
  dgrad.b = weight_;
  dgrad.c = dx;
  dgrad.round_c = numerics_.dgrad;
  return kernels::Gemm(exec, dgrad);
}

size_t Linear::WorkspaceBytes(int64_t rows) const {
  kernels::ColumnSumArgs sum;
  sum.x = TensorView(weight_.data, weight_.dtype, {rows, weight_.dim(0)});
  sum.out = d_bias_;
  return bias_.empty() || d_bias_.empty() ? 0 : kernels::ColumnSumWorkspaceBytes(sum);
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
