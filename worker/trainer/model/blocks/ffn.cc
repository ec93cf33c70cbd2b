// The dense feed-forward block: norm, projection (gate|up or fc), activation, down projection,
// dropout.
#include <memory>
#include <vector>

#include "common/base/status_macros.h"
#include "kernels/block_quantize/block_quantize.h"
#include "worker/trainer/model/activation_function.h"
#include "worker/trainer/model/blocks/block_maker.h"
#include "worker/trainer/model/residual_branch.h"
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
  const Operand* OutputGradient() const override { return branch_.OutputGradient(); }
  absl::Status Backward(const kernels::Exec& exec,
                        const Pass& pass,
                        const kernels::TensorView& d_stream,
                        const Operand* next) override;

 private:
  DenseFfn(const ModelContext& context,
           const spec::PlacedBlock& placed,
           const spec::DenseFfnBuffers& ids,
           const spec::GradientBuffers& gradients);
  // kColumns: of what was kept. Else of projected_, with `keep` keeping it as the plan says;
  // `project`: which the in projection writes first.
  absl::Status Activate(
      const kernels::Exec& exec, const Pass& pass, Forms forms, bool keep, bool project) const;
  // d_delta to d_activated_, and that to the gradient of projected_, whose plain form overwrites
  // projected_.
  absl::Status ActivateBackward(const kernels::Exec& exec,
                                const Pass& pass,
                                const kernels::TensorView& d_delta) const;

  ResidualBranch branch_;
  bool activated_again_;  // backward makes the columns of the activation function's output
  bool with_gradient_;    // and that together with its gradient
  const ActivationFunction& function_;
  int64_t parts_;  // of the function's input
  kernels::DType round_;
  kernels::TensorView projected_;
  kernels::KeptInput kept_;  // projected_ as quantised passes keep it; empty: as it is
  kernels::TensorView d_activated_;
  std::vector<int> params_;
};

DenseFfn::DenseFfn(const ModelContext& c, const spec::PlacedBlock& placed)
    : DenseFfn(c, placed, c.Ids(placed.layer).ffn, c.ids().gradients) {}

DenseFfn::DenseFfn(const ModelContext& c,
                   const spec::PlacedBlock& placed,
                   const spec::DenseFfnBuffers& ids,
                   const spec::GradientBuffers& gradients)
    : branch_(c, placed, ids, {Slot::kFfnNorm, Slot::kFfnIn, Slot::kFfnDown}),
      activated_again_(c.Site(Slot::kFfnDown, placed.layer).backward_makes_columns),
      with_gradient_(c.Site(Slot::kFfnDown, placed.layer).dy_waits),
      function_(FunctionOf(c.shape().activation)),
      parts_(c.shape().ffn_parts()),
      round_(c.numerics.activation),
      projected_(c.Floats(ids.projected)),
      d_activated_(c.Floats(gradients.ffn.activated)) {
  if (uint8_t* kept = c.arena->Bytes(ids.kept); kept != nullptr) {
    kept_ = kernels::KeptAt(kept, c.rows(), c.shape().ffn_in_width());
  }
  branch_.AppendFirst(c, params_);
  branch_.AppendLast(c, params_);
}

size_t DenseFfn::WorkspaceBytes(const kernels::Exec& exec) const {
  // The activation functions need none (their headers say so).
  return branch_.WorkspaceBytes(exec);
}

absl::Status DenseFfn::Activate(
    const kernels::Exec& exec, const Pass& pass, Forms forms, bool keep, bool project) const {
  const Operand& x = branch_.out().x();
  const OperandTarget target = x.Target(pass, false, true, forms);
  // Evaluation keeps nothing.
  const bool narrow = branch_.Quantised(pass) && pass.record;
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
    HEARTH_ASSIGN_OR_RETURN(args.product, branch_.in().ForwardProduct(exec, pass, projected_));
  }
  HEARTH_RETURN_IF_ERROR(function_.Forward(exec, args));
  return x.Settle(exec, pass, target, forms);
}

absl::Status DenseFfn::ActivateBackward(const kernels::Exec& exec,
                                        const Pass& pass,
                                        const TensorView& d_delta) const {
  ActivationBackward args;
  HEARTH_ASSIGN_OR_RETURN(args.product,
                          branch_.out().InputGradientProduct(exec, pass, d_delta, d_activated_));
  const Operand& dy = branch_.in().dy();
  args.gradient = dy.Target(pass, branch_.in().NeedsPlainDy(),
                            kernels::WholeBlockParts(projected_.cols(), parts_));
  args.input = projected_;
  args.kept = branch_.Quantised(pass) ? kept_ : kernels::KeptInput();
  args.round = round_;
  // The activation that the weights' gradient reads is made on the way, since its inputs are read
  // here anyhow. Restore leaves it out.
  if (with_gradient_ && branch_.Quantised(pass)) {
    args.output = branch_.out().x().Target(pass, false, false, Forms::kColumns).quant;
  }
  HEARTH_RETURN_IF_ERROR(function_.Backward(exec, args));
  return dy.Settle(exec, pass, args.gradient);
}

absl::Status DenseFfn::Forward(const kernels::Exec& exec, const Pass& pass, Stream& stream) {
  HEARTH_RETURN_IF_ERROR(branch_.Normalise(exec, pass, stream, branch_.NormForms(pass)));
  // From kFfn on backward projects again, so forward does not keep it.
  const bool keep = branch_.Level(pass) < Recompute::kFfn;
  HEARTH_RETURN_IF_ERROR(
      Activate(exec, pass, activated_again_ ? Forms::kRows : Forms::kBoth, keep, true));
  return branch_.Leave(exec, pass, stream);
}

absl::Status DenseFfn::Restore(const kernels::Exec& exec, const Pass& pass, Stream& stream) {
  const Recompute level = branch_.Level(pass);
  if (level >= Recompute::kNormAct) {
    HEARTH_RETURN_IF_ERROR(
        branch_.Normalise(exec, pass, branch_.Restored(pass, stream),
                          level >= Recompute::kFfn ? Forms::kBoth : Forms::kColumns));
  }
  const bool project = level >= Recompute::kFfn;
  if (!branch_.Quantised(pass) || !activated_again_) {
    return level >= Recompute::kNormAct ? Activate(exec, pass, Forms::kBoth, false, project)
                                        : absl::OkStatus();
  }
  // What is kept has the same bits at each level.
  if (project && !kept_.empty()) {
    HEARTH_RETURN_IF_ERROR(Activate(exec, pass, Forms::kRows, true, true));
  } else if (project) {
    HEARTH_RETURN_IF_ERROR(branch_.in().Forward(exec, pass, projected_));
  }
  return with_gradient_ ? absl::OkStatus() : Activate(exec, pass, Forms::kColumns, false, false);
}

absl::Status DenseFfn::Backward(const kernels::Exec& exec,
                                const Pass& pass,
                                const TensorView& d_stream,
                                const Operand* next) {
  HEARTH_ASSIGN_OR_RETURN(const TensorView d_delta, branch_.LeaveBackward(exec, pass, d_stream));
  if (with_gradient_ && branch_.Quantised(pass)) {
    // wgrad comes last: it reads columns that the activation function's backward makes again.
    HEARTH_RETURN_IF_ERROR(ActivateBackward(exec, pass, d_delta));
    HEARTH_RETURN_IF_ERROR(branch_.out().WeightGradient(exec, pass, d_delta));
  } else {
    HEARTH_RETURN_IF_ERROR(branch_.out().WeightGradient(exec, pass, d_delta));
    HEARTH_RETURN_IF_ERROR(ActivateBackward(exec, pass, d_delta));
  }
  return branch_.NormaliseBackward(exec, pass, projected_, d_stream, next);
}

}  // namespace

std::unique_ptr<SubBlock> MakeDenseFfn(const ModelContext& context,
                                       const spec::PlacedBlock& placed) {
  return std::make_unique<DenseFfn>(context, placed);
}

}  // namespace hearth::trainer
