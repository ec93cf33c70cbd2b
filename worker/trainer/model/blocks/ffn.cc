// The dense feed-forward block: norm, projection (gate|up or fc), activation, down projection,
// dropout.
#include <algorithm>
#include <memory>
#include <vector>

#include "common/base/status_macros.h"
#include "kernels/block_quantize/block_quantize.h"
#include "kernels/dropout/dropout.h"
#include "worker/trainer/model/activation_function.h"
#include "worker/trainer/model/blocks/block_maker.h"
#include "worker/trainer/model/linear.h"
#include "worker/trainer/model/norm_layer.h"
#include "worker/trainer/model/residual_dropout.h"
#include "worker/trainer/model/sub_block.h"

namespace hearth::trainer {

using kernels::TensorView;
using spec::Recompute;
using spec::Slot;

namespace {

class DenseFfn : public SubBlock {
 public:
  DenseFfn(const ModelContext& context, const spec::PlacedBlock& placed);

  const std::vector<int>& Params() const override { return params_; }
  size_t WorkspaceBytes(const kernels::Exec& exec) const override;
  absl::Status Forward(const kernels::Exec& exec, const Pass& pass, Stream& stream) override;
  absl::Status Restore(const kernels::Exec& exec, const Pass& pass, Stream& stream) override;
  const Operand* OutputGradient() const override {
    return d_delta_.empty() ? &down_projection_.dy() : nullptr;
  }
  absl::Status Backward(const kernels::Exec& exec,
                        const Pass& pass,
                        const kernels::TensorView& d_stream,
                        const Operand* next) override;

 private:
  DenseFfn(const ModelContext& context,
           const spec::PlacedBlock& placed,
           const spec::DenseFfnBuffers& ids,
           const spec::GradientBuffers& gradients);
  // Norm and projection, or what the recomputation level leaves of them, and activation.
  absl::Status Normalise(const kernels::Exec& exec,
                         const Pass& pass,
                         const Stream& stream,
                         Forms forms);
  // kColumns: of what was kept. Else of projected_, with `keep` keeping it as the plan says;
  // `project`: which the in projection writes first.
  absl::Status Activate(
      const kernels::Exec& exec, const Pass& pass, Forms forms, bool keep, bool project) const;
  // d_delta to d_activated_, and that to the gradient of projected_, whose plain form overwrites
  // projected_.
  absl::Status ActivateBackward(const kernels::Exec& exec,
                                const Pass& pass,
                                const kernels::TensorView& d_delta) const;
  bool Quantised(const Pass& pass) const { return in_projection_.x().Quantised(pass); }

  RecomputeLevels levels_;
  bool activated_again_;  // backward makes the columns of the activation function's output
  bool with_gradient_;    // and that together with its gradient
  const ActivationFunction& function_;
  int64_t parts_;  // of the function's input
  kernels::DType round_;
  bool training_;
  int64_t rows_;
  kernels::TensorView input_;
  kernels::TensorView projected_;
  kernels::KeptInput kept_;  // projected_ as quantised passes keep it; empty: as it is
  kernels::TensorView delta_;
  kernels::TensorView d_normed_;
  kernels::TensorView d_activated_;
  kernels::TensorView d_delta_;  // empty without dropout
  NormLayer norm_;
  Linear in_projection_;
  Linear down_projection_;
  kernels::DropoutArgs dropout_;
  std::vector<int> params_;
};

DenseFfn::DenseFfn(const ModelContext& c, const spec::PlacedBlock& placed)
    : DenseFfn(c, placed, c.Ids(placed.layer).ffn, c.ids().gradients) {}

DenseFfn::DenseFfn(const ModelContext& c,
                   const spec::PlacedBlock& placed,
                   const spec::DenseFfnBuffers& ids,
                   const spec::GradientBuffers& gradients)
    : levels_(c.plan),
      activated_again_(c.Site(Slot::kFfnDown, placed.layer).backward_makes_columns),
      with_gradient_(c.Site(Slot::kFfnDown, placed.layer).dy_waits),
      function_(FunctionOf(c.shape().activation)),
      parts_(c.shape().ffn_parts()),
      round_(c.numerics.activation),
      training_(c.plan.training),
      rows_(c.rows()),
      input_(c.Floats(ids.input)),
      projected_(c.Floats(ids.projected)),
      delta_(c.Floats(c.ids().delta)),
      d_normed_(c.Floats(gradients.norm)),
      d_activated_(c.Floats(gradients.ffn.activated)),
      d_delta_(c.Floats(gradients.delta)),
      norm_(c, Slot::kFfnNorm, placed.layer, input_, c.Floats(ids.norm_stats)),
      in_projection_(c, Slot::kFfnIn, placed.layer),
      down_projection_(c, Slot::kFfnDown, placed.layer),
      dropout_(ResidualDropout(c, placed.number)) {
  if (uint8_t* kept = c.arena->Bytes(ids.kept); kept != nullptr) {
    kept_ = kernels::KeptAt(kept, rows_, c.shape().ffn_in_width());
  }
  norm_.AppendParams(c, params_);
  in_projection_.AppendParams(c, params_);
  down_projection_.AppendParams(c, params_);
}

size_t DenseFfn::WorkspaceBytes(const kernels::Exec& exec) const {
  // The activation functions need none (their headers say so).
  return std::max({norm_.WorkspaceBytes(training_), in_projection_.WorkspaceBytes(exec),
                   down_projection_.WorkspaceBytes(exec)});
}

absl::Status DenseFfn::Activate(
    const kernels::Exec& exec, const Pass& pass, Forms forms, bool keep, bool project) const {
  const Operand& x = down_projection_.x();
  const OperandTarget target = x.Target(pass, false, true, forms);
  // Evaluation keeps nothing.
  const bool narrow = Quantised(pass) && pass.record;
  const kernels::KeptInput none;
  ActivationForward args;
  args.outputs.y = target.plain;
  args.outputs.y_quant = target.quant;
  args.outputs.y_blocks = target.blocks;
  args.outputs.round_y = round_;
  args.outputs.keep = narrow && keep ? kept_ : none;
  args.outputs.kept = narrow && forms == Forms::kColumns ? kept_ : none;
  args.input = projected_;
  if (project) {
    HEARTH_ASSIGN_OR_RETURN(args.product, in_projection_.ForwardProduct(exec, pass, projected_));
  }
  HEARTH_RETURN_IF_ERROR(function_.Forward(exec, args));
  return x.Settle(exec, pass, target, forms);
}

absl::Status DenseFfn::ActivateBackward(const kernels::Exec& exec,
                                        const Pass& pass,
                                        const TensorView& d_delta) const {
  ActivationBackward args;
  HEARTH_ASSIGN_OR_RETURN(args.product,
                          down_projection_.InputGradientProduct(exec, pass, d_delta, d_activated_));
  const Operand& dy = in_projection_.dy();
  args.gradient = dy.Target(pass, in_projection_.NeedsPlainDy(),
                            kernels::WholeBlockParts(projected_.cols(), parts_));
  args.input = projected_;
  args.kept = Quantised(pass) ? kept_ : kernels::KeptInput();
  args.round = round_;
  // The activation that the weights' gradient reads is made on the way, since its inputs are read
  // here anyhow. Restore leaves it out.
  if (with_gradient_ && Quantised(pass)) {
    args.output = down_projection_.x().Target(pass, false, false, Forms::kColumns).quant;
  }
  HEARTH_RETURN_IF_ERROR(function_.Backward(exec, args));
  return dy.Settle(exec, pass, args.gradient);
}

absl::Status DenseFfn::Normalise(const kernels::Exec& exec,
                                 const Pass& pass,
                                 const Stream& stream,
                                 Forms forms) {
  const Operand& x = in_projection_.x();
  const OperandTarget target = x.Target(pass, false, norm_.WritesBlocks(exec), forms);
  HEARTH_RETURN_IF_ERROR(norm_.Forward(exec, stream, target));
  return x.Settle(exec, pass, target, forms);
}

absl::Status DenseFfn::Forward(const kernels::Exec& exec, const Pass& pass, Stream& stream) {
  HEARTH_RETURN_IF_ERROR(
      Normalise(exec, pass, stream, levels_.NormForms(in_projection_.x(), pass)));
  // From kFfn on backward projects again, so forward does not keep it.
  const bool keep = levels_.Of(in_projection_.x(), pass) < Recompute::kFfn;
  HEARTH_RETURN_IF_ERROR(
      Activate(exec, pass, activated_again_ ? Forms::kRows : Forms::kBoth, keep, true));
  HEARTH_RETURN_IF_ERROR(down_projection_.Forward(exec, pass, delta_));
  HEARTH_RETURN_IF_ERROR(DropForward(exec, pass, dropout_, delta_));
  stream = {input_, delta_};
  return absl::OkStatus();
}

absl::Status DenseFfn::Restore(const kernels::Exec& exec, const Pass& pass, Stream& stream) {
  const Recompute level = levels_.Of(in_projection_.x(), pass);
  const bool quantised = Quantised(pass);
  if (level >= Recompute::kNormAct) {
    // Whole blocks are recomputed from what the one before them left; else this sub-block kept its
    // own input.
    const Stream own = {input_, TensorView()};
    HEARTH_RETURN_IF_ERROR(Normalise(exec, pass, level == Recompute::kBlock ? stream : own,
                                     level >= Recompute::kFfn ? Forms::kBoth : Forms::kColumns));
  }
  const bool project = level >= Recompute::kFfn;
  if (!quantised || !activated_again_) {
    return level >= Recompute::kNormAct ? Activate(exec, pass, Forms::kBoth, false, project)
                                        : absl::OkStatus();
  }
  // What is kept has the same bits at each level.
  if (project && !kept_.empty()) {
    HEARTH_RETURN_IF_ERROR(Activate(exec, pass, Forms::kRows, true, true));
  } else if (project) {
    HEARTH_RETURN_IF_ERROR(in_projection_.Forward(exec, pass, projected_));
  }
  return with_gradient_ ? absl::OkStatus() : Activate(exec, pass, Forms::kColumns, false, false);
}

absl::Status DenseFfn::Backward(const kernels::Exec& exec,
                                const Pass& pass,
                                const TensorView& d_stream,
                                const Operand* next) {
  TensorView d_delta = d_stream;
  HEARTH_RETURN_IF_ERROR(DropBackward(exec, pass, dropout_, d_delta_, d_delta));
  if (OutputGradient() == nullptr) {
    HEARTH_RETURN_IF_ERROR(down_projection_.dy().Make(exec, pass, d_delta));
  }
  if (with_gradient_ && Quantised(pass)) {
    // wgrad comes last: it reads columns that the activation function's backward makes again.
    HEARTH_RETURN_IF_ERROR(ActivateBackward(exec, pass, d_delta));
    HEARTH_RETURN_IF_ERROR(down_projection_.WeightGradient(exec, pass, d_delta));
  } else {
    HEARTH_RETURN_IF_ERROR(down_projection_.WeightGradient(exec, pass, d_delta));
    HEARTH_RETURN_IF_ERROR(ActivateBackward(exec, pass, d_delta));
  }
  HEARTH_RETURN_IF_ERROR(in_projection_.Backward(exec, pass, projected_, d_normed_));
  return norm_.Backward(exec, pass, d_normed_, d_stream, true, next);
}

}  // namespace

std::unique_ptr<SubBlock> MakeDenseFfn(const ModelContext& context,
                                       const spec::PlacedBlock& placed) {
  return std::make_unique<DenseFfn>(context, placed);
}

}  // namespace hearth::trainer
