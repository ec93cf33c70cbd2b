#include "worker/trainer/model/norm_layer.h"

#include <algorithm>

#include "common/base/status_macros.h"

namespace hearth::trainer {

using kernels::TensorView;

namespace {

// Row `i` of a [2, N] tensor as [N].
TensorView Row(const TensorView& stats, int64_t i) {
  TensorView row;
  row.dtype = stats.dtype;
  row.rank = 1;
  row.shape[0] = stats.dim(1);
  row.data = stats.as<uint8_t>() + kernels::DTypeBytes(stats.dtype, i * stats.dim(1));
  return row;
}

}  // namespace

NormLayer::NormLayer(const ModelContext& context,
                     spec::Slot slot,
                     int layer,
                     const TensorView& input,
                     const TensorView& stats)
    : slot_(slot),
      layer_(layer),
      layer_norm_(context.shape().norm == spec::Norm::kLayerNorm),
      training_(context.plan.training),
      input_(input) {
  const ParameterStore& p = *context.parameters;
  const Numerics& n = context.numerics;
  rms_forward_.weight = layer_forward_.weight = p.FindWeight(slot, layer);
  layer_forward_.bias = p.FindWeight(slot, layer, true);
  layer_forward_.mean = Row(stats, 0);
  rms_forward_.rstd = layer_forward_.rstd = Row(stats, 1);
  rms_forward_.eps = layer_forward_.eps = context.shape().spec.norm_eps();
  rms_forward_.round_sum = layer_forward_.round_sum = n.activation;
  rms_forward_.round_y = layer_forward_.round_y = n.activation;
  rms_backward_.s = layer_backward_.s = input;
  rms_backward_.rstd = layer_backward_.rstd = Row(stats, 1);
  layer_backward_.mean = Row(stats, 0);
  rms_backward_.weight = layer_backward_.weight = p.FindWeight(slot, layer);
  rms_backward_.d_weight = layer_backward_.d_weight = p.FindGradient(slot, layer);
  layer_backward_.d_bias = p.FindGradient(slot, layer, true);
  rms_backward_.round_dx = layer_backward_.round_dx = n.activation;
}

kernels::InputNorm NormLayer::AsInputNorm() const {
  return layer_norm_ ? kernels::InputNorm()
                     : kernels::InputNorm{rms_forward_.weight, rms_forward_.eps};
}

bool NormLayer::WritesBlocks(const kernels::Exec& exec) const {
  const auto writes = [&](auto args) {
    args.x = input_;
    return kernels::WritesBlocks(exec, args);
  };
  return layer_norm_ ? writes(layer_forward_) : writes(rms_forward_);
}

absl::Status NormLayer::Forward(const kernels::Exec& exec,
                                const Stream& stream,
                                const OperandTarget& output) {
  const bool fused = !stream.delta.empty();
  if (training_ && !fused && stream.sum.data != input_.data) {
    return absl::InternalError("a norm without a delta must read its own input buffer");
  }
  // Both norms have arguments of the same names. The sum goes into the input's buffer, where the
  // backward pass reads it.
  const auto bind = [&](auto& args) {
    args.x = fused ? stream.delta : stream.sum;
    args.residual = fused ? stream.sum : TensorView();
    args.sum = fused ? input_ : TensorView();
    args.y = output.plain;
    args.y_quant = output.quant;
    args.y_blocks = output.blocks;
  };
  if (layer_norm_) {
    bind(layer_forward_);
    return kernels::LayerNormForward(exec, layer_forward_);
  }
  bind(rms_forward_);
  return kernels::RmsNormForward(exec, rms_forward_);
}

bool NormLayer::GradientWritesBlocks(const kernels::Exec& exec) const {
  const auto writes = [&](auto args) {
    args.dy = input_;
    return kernels::WritesBlocks(exec, args);
  };
  return layer_norm_ ? writes(layer_backward_) : writes(rms_backward_);
}

absl::Status NormLayer::Backward(const kernels::Exec& exec,
                                 const Pass& pass,
                                 const TensorView& dy,
                                 const TensorView& d_stream,
                                 bool accumulate,
                                 const Operand* next) {
  if (next == nullptr) {
    return RunBackward(exec, dy, d_stream, accumulate, OperandTarget());
  }
  const OperandTarget target = next->Target(pass, true, GradientWritesBlocks(exec));
  HEARTH_RETURN_IF_ERROR(RunBackward(exec, dy, d_stream, accumulate, target));
  return next->Settle(exec, pass, target);
}

absl::Status NormLayer::RunBackward(const kernels::Exec& exec,
                                    const TensorView& dy,
                                    const TensorView& d_stream,
                                    bool accumulate,
                                    const OperandTarget& target) {
  const auto bind = [&](auto& args) {
    args.dy = dy;
    // Accumulating: d_stream has the gradient that passes this sub-block by.
    args.d_sum = accumulate ? d_stream : TensorView();
    args.dx = d_stream;
    args.dx_quant = target.quant;
    args.dx_blocks = target.blocks;
  };
  if (layer_norm_) {
    bind(layer_backward_);
    return kernels::LayerNormBackward(exec, layer_backward_);
  }
  bind(rms_backward_);
  return kernels::RmsNormBackward(exec, rms_backward_);
}

size_t NormLayer::WorkspaceBytes(bool training) const {
  const auto sizes = [&](auto forward, auto backward, auto forward_bytes, auto backward_bytes) {
    forward.x = forward.y = input_;
    backward.dy = backward.dx = input_;
    const size_t f = forward_bytes(forward);
    return training ? std::max(f, backward_bytes(backward)) : f;
  };
  if (layer_norm_) {
    return sizes(layer_forward_, layer_backward_, kernels::LayerNormForwardWorkspaceBytes,
                 kernels::LayerNormBackwardWorkspaceBytes);
  }
  return sizes(rms_forward_, rms_backward_, kernels::RmsNormForwardWorkspaceBytes,
               kernels::RmsNormBackwardWorkspaceBytes);
}

void NormLayer::AppendParams(const ModelContext& context, std::vector<int>& params) const {
  context.AppendParams(slot_, layer_, params);
}

}  // namespace hearth::trainer
