#include "worker/trainer/model/ffn.h"

#include <algorithm>

#include "common/base/status_macros.h"
#include "worker/trainer/model/residual_dropout.h"

namespace hearth::trainer {

using kernels::TensorView;
using spec::Recompute;
using spec::Slot;

DenseFfn::DenseFfn(const ModelContext& c, int layer)
    : recompute_(c.plan.recompute),
      activation_(c.shape().activation),
      round_(c.numerics.activation),
      training_(c.plan.training),
      rows_(c.rows()),
      input_(c.Activation(layer, "ffn.input", {rows_, c.shape().hidden})),
      normed_(c.Activation(layer, "ffn.norm", {rows_, c.shape().hidden})),
      projected_(c.Activation(layer, "ffn.projected", {rows_, c.shape().ffn_in_width()})),
      activated_(c.Activation(layer, "ffn.activated", {rows_, c.shape().ffn_hidden})),
      delta_(c.arena->Floats("stream.delta", {rows_, c.shape().hidden})),
      norm_(c,
            Slot::kFfnNorm,
            layer,
            input_,
            normed_,
            c.Activation(layer, "ffn.norm_stats", {2, rows_})),
      in_projection_(c, Slot::kFfnIn, layer),
      down_projection_(c, Slot::kFfnDown, layer),
      dropout_(ResidualDropout(c, 2 + 2 * layer)) {
  if (training_) {
    d_normed_ = c.arena->Floats("grad.norm", {rows_, c.shape().hidden});
    d_activated_ = c.arena->Floats("grad.ffn_act", {rows_, c.shape().ffn_hidden});
    if (c.arena->Has("grad.delta")) {
      d_delta_ = c.arena->Floats("grad.delta", {rows_, c.shape().hidden});
    }
  }
  norm_.AppendParams(c, params_);
  in_projection_.AppendParams(c, params_);
  down_projection_.AppendParams(c, params_);
}

size_t DenseFfn::WorkspaceBytes(int /*threads*/) const {
  // The activation functions need none (their headers say so).
  return std::max({norm_.WorkspaceBytes(training_), in_projection_.WorkspaceBytes(rows_),
                   down_projection_.WorkspaceBytes(rows_)});
}

absl::Status DenseFfn::Activate(const kernels::Exec& exec) const {
  if (activation_ == spec::Activation::kSwiglu) {
    kernels::SwigluForwardArgs args;
    args.gate_up = projected_;
    args.y = activated_;
    args.round_y = round_;
    return kernels::SwigluForward(exec, args);
  }
  kernels::GeluForwardArgs args;
  args.x = projected_;
  args.y = activated_;
  args.kind =
      activation_ == spec::Activation::kGelu ? kernels::GeluKind::kErf : kernels::GeluKind::kTanh;
  args.round_y = round_;
  return kernels::GeluForward(exec, args);
}

absl::Status DenseFfn::ActivateBackward(const kernels::Exec& exec) const {
  if (activation_ == spec::Activation::kSwiglu) {
    kernels::SwigluBackwardArgs args;
    args.dy = d_activated_;
    args.gate_up = projected_;
    args.d_gate_up = projected_;
    args.round_d_gate_up = round_;
    return kernels::SwigluBackward(exec, args);
  }
  kernels::GeluBackwardArgs args;
  args.dy = d_activated_;
  args.x = projected_;
  args.dx = projected_;
  args.kind =
      activation_ == spec::Activation::kGelu ? kernels::GeluKind::kErf : kernels::GeluKind::kTanh;
  args.round_dx = round_;
  return kernels::GeluBackward(exec, args);
}

absl::Status DenseFfn::Forward(const kernels::Exec& exec, const Pass& pass, Stream& stream) {
  HEARTH_RETURN_IF_ERROR(norm_.Forward(exec, stream));
  HEARTH_RETURN_IF_ERROR(in_projection_.Forward(exec, normed_, projected_));
  HEARTH_RETURN_IF_ERROR(Activate(exec));
  HEARTH_RETURN_IF_ERROR(down_projection_.Forward(exec, activated_, delta_));
  HEARTH_RETURN_IF_ERROR(DropForward(exec, pass, dropout_, delta_));
  stream = {input_, delta_};
  return absl::OkStatus();
}

absl::Status DenseFfn::Restore(const kernels::Exec& exec, const Pass& /*pass*/, Stream& stream) {
  if (recompute_ == Recompute::kNone) {
    return absl::OkStatus();
  }
  // Whole blocks are recomputed from the mixer's result; else this sub-block kept its own input.
  const Stream own = {input_, TensorView()};
  HEARTH_RETURN_IF_ERROR(norm_.Forward(exec, recompute_ == Recompute::kBlock ? stream : own));
  if (recompute_ >= Recompute::kFfn) {
    HEARTH_RETURN_IF_ERROR(in_projection_.Forward(exec, normed_, projected_));
  }
  return Activate(exec);
}

absl::Status DenseFfn::Backward(const kernels::Exec& exec,
                                const Pass& pass,
                                const TensorView& d_stream) {
  TensorView d_delta = d_stream;
  HEARTH_RETURN_IF_ERROR(DropBackward(exec, pass, dropout_, d_delta_, d_delta));
  HEARTH_RETURN_IF_ERROR(down_projection_.Backward(exec, d_delta, activated_, d_activated_));
  HEARTH_RETURN_IF_ERROR(ActivateBackward(exec));
  HEARTH_RETURN_IF_ERROR(in_projection_.Backward(exec, projected_, normed_, d_normed_));
  return norm_.Backward(exec, d_normed_, d_stream, true);
}

}  // namespace hearth::trainer
