#include "worker/trainer/model/residual_block.h"

#include <algorithm>

#include "common/base/status_macros.h"
#include "worker/trainer/model/residual_dropout.h"

namespace hearth::trainer {

using kernels::TensorView;
using spec::Recompute;

ResidualBlock::ResidualBlock(const ModelContext& c,
                             const spec::PlacedBlock& placed,
                             const spec::NormedBuffers& ids,
                             const Slots& slots)
    : levels_(c.plan),
      training_(c.plan.training),
      input_(c.Floats(ids.input)),
      delta_(c.Floats(c.ids().delta)),
      d_normed_(c.Floats(c.ids().gradients.norm)),
      d_delta_(c.Floats(c.ids().gradients.delta)),
      norm_(c, slots.norm, placed.layer, input_, c.Floats(ids.norm_stats)),
      in_(c, slots.in, placed.layer),
      out_(c, slots.out, placed.layer),
      dropout_(ResidualDropout(c, placed.number)) {
  // In the order of the parameter table.
  norm_.AppendParams(c, params_);
  in_.AppendParams(c, params_);
  for (const spec::Slot slot : slots.between) {
    c.AppendParams(slot, placed.layer, params_);
  }
  out_.AppendParams(c, params_);
}

Stream ResidualBlock::Restored(const Pass& pass, const Stream& stream) const {
  return Level(pass) == Recompute::kBlock ? stream : Stream{input_, TensorView()};
}

absl::Status ResidualBlock::Normalise(const kernels::Exec& exec,
                                      const Pass& pass,
                                      const Stream& stream,
                                      Forms forms) {
  const Operand& x = in_.x();
  const OperandTarget target = x.Target(pass, false, norm_.WritesBlocks(exec), forms);
  HEARTH_RETURN_IF_ERROR(norm_.Forward(exec, stream, target));
  return x.Settle(exec, pass, target, forms);
}

FusedNormInput ResidualBlock::InputForFusedNorm(const kernels::Exec& exec,
                                                const Pass& pass,
                                                const Stream& stream) const {
  // A pass that quantises x, or records its magnitudes, reads what the norm writes.
  const bool plain = in_.x().InForce(pass) == spec::LayerFormat::kPlain && !pass.record;
  if (training_ || !exec.thin_products || !stream.delta.empty() || !plain) {
    return {};
  }
  const FusedNormInput input = {stream.sum, norm_.AsInputNorm()};
  return !input.empty() && in_.TakesNorm(exec, input) ? input : FusedNormInput();
}

absl::Status ResidualBlock::Run(const kernels::Exec& exec,
                                const Pass& pass,
                                Stream& stream,
                                Forms forms) {
  const FusedNormInput input = InputForFusedNorm(exec, pass, stream);
  // Where a block before has added, the whole stream lies where this one's delta goes.
  const bool adds = !input.empty() || stream.sum.data == delta_.data;
  if (input.empty()) {
    HEARTH_RETURN_IF_ERROR(Normalise(exec, pass, stream, forms));
  }
  HEARTH_RETURN_IF_ERROR(Inner(exec, pass, input));
  if (adds) {
    HEARTH_RETURN_IF_ERROR(out_.ForwardSum(exec, pass, stream.sum, delta_));
    stream = {delta_, TensorView()};
    return absl::OkStatus();
  }
  HEARTH_RETURN_IF_ERROR(out_.Forward(exec, pass, delta_));
  HEARTH_RETURN_IF_ERROR(DropForward(exec, pass, dropout_, delta_));
  stream = {input_, delta_};
  return absl::OkStatus();
}

absl::Status ResidualBlock::Backward(const kernels::Exec& exec,
                                     const Pass& pass,
                                     const TensorView& d_stream,
                                     const Operand* next) {
  TensorView d_delta = d_stream;
  HEARTH_RETURN_IF_ERROR(DropBackward(exec, pass, dropout_, d_delta_, d_delta));
  // Dropout changes the gradient that the layer above left, so its forms are made here.
  if (OutputGradient() == nullptr) {
    HEARTH_RETURN_IF_ERROR(out_.dy().Make(exec, pass, d_delta));
  }
  HEARTH_ASSIGN_OR_RETURN(const TensorView d_projected, InnerBackward(exec, pass, d_delta));
  HEARTH_RETURN_IF_ERROR(in_.Backward(exec, pass, d_projected, d_normed_));
  return norm_.Backward(exec, pass, d_normed_, d_stream, true, next);
}

size_t ResidualBlock::WorkspaceBytes(const kernels::Exec& exec) const {
  return std::max(
      {norm_.WorkspaceBytes(training_), in_.WorkspaceBytes(exec), out_.WorkspaceBytes(exec)});
}

}  // namespace hearth::trainer
