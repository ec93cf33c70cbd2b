// The dense feed-forward block: norm, projection (gate|up or fc), activation, down projection,
// dropout. The activation functions need no scratch (their headers say so).
#include <memory>

#include "common/base/status_macros.h"
#include "kernels/block_quantize/block_quantize.h"
#include "worker/trainer/model/activation_function.h"
#include "worker/trainer/model/blocks/block_maker.h"
#include "worker/trainer/model/residual_block.h"
#include "worker/trainer/model/sub_block.h"

namespace hearth::trainer {

using kernels::TensorView;
using spec::Recompute;
using spec::Slot;

namespace {

class DenseFfn : public ResidualBlock {
 public:
  DenseFfn(const ModelContext& context,
           const spec::PlacedBlock& placed,
           const spec::DenseFfnBuffers& ids);

  absl::Status Restore(const kernels::Exec& exec, const Pass& pass, Stream& stream) override;

 private:
  absl::Status Inner(const kernels::Exec& exec,
                     const Pass& pass,
                     const FusedNormInput& input) override;
  absl::StatusOr<TensorView> InnerBackward(const kernels::Exec& exec,
                                           const Pass& pass,
                                           const TensorView& d_delta) override;
  // kColumns: of what was kept. Else of projected_, with `keep` keeping it as the plan says;
  // `project`: which the in projection writes first, of `input` if there is one.
  absl::Status Activate(const kernels::Exec& exec,
                        const Pass& pass,
                        Forms forms,
                        bool keep,
                        bool project,
                        const FusedNormInput& input = {}) const;
  // d_delta to d_activated_, and that to the gradient of projected_, whose plain form overwrites
  // projected_.
  absl::Status ActivateBackward(const kernels::Exec& exec,
                                const Pass& pass,
                                const kernels::TensorView& d_delta) const;

  bool activated_again_;  // backward makes the columns of the activation function's output
  bool with_gradient_;    // and that together with its gradient
  bool for_backward_;     // whether a pass backward may follow
  const ActivationFunction& function_;
  int64_t parts_;  // of the function's input
  kernels::DType round_;
  kernels::TensorView projected_;
  kernels::KeptInput kept_;  // projected_ as quantised passes keep it; empty: as it is
  kernels::TensorView d_activated_;
};

DenseFfn::DenseFfn(const ModelContext& c,
                   const spec::PlacedBlock& placed,
                   const spec::DenseFfnBuffers& ids)
    : ResidualBlock(
          c, placed, ids, {.norm = Slot::kFfnNorm, .in = Slot::kFfnIn, .out = Slot::kFfnDown}),
      activated_again_(c.Site(Slot::kFfnDown, placed.layer).backward_makes_columns),
      with_gradient_(c.Site(Slot::kFfnDown, placed.layer).dy_waits),
      for_backward_(c.cache == nullptr),
      function_(FunctionOf(c.shape().activation)),
      parts_(c.shape().ffn_parts()),
      round_(c.numerics.activation),
      projected_(c.Floats(ids.projected)),
      d_activated_(c.Floats(c.ids().gradients.ffn.activated)) {
  if (uint8_t* kept = c.arena->Bytes(ids.kept); kept != nullptr) {
    kept_ = kernels::KeptAt(kept, c.rows(), c.shape().ffn_in_width());
  }
}

absl::Status DenseFfn::Activate(const kernels::Exec& exec,
                                const Pass& pass,
                                Forms forms,
                                bool keep,
                                bool project,
                                const FusedNormInput& input) const {
  const Operand& x = out().x();
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
  // Backward reads what such passes keep, or else the projection itself.
  args.input_read = for_backward_ && (!narrow || kept_.empty());
  if (project) {
    HEARTH_ASSIGN_OR_RETURN(args.product, in().ForwardProduct(exec, pass, projected_, input));
  }
  HEARTH_RETURN_IF_ERROR(function_.Forward(exec, args));
  return x.Settle(exec, pass, target, forms);
}

absl::Status DenseFfn::ActivateBackward(const kernels::Exec& exec,
                                        const Pass& pass,
                                        const TensorView& d_delta) const {
  ActivationBackward args;
  HEARTH_ASSIGN_OR_RETURN(args.product,
                          out().InputGradientProduct(exec, pass, d_delta, d_activated_));
  const Operand& dy = in().dy();
  args.gradient =
      dy.Target(pass, in().NeedsPlainDy(), kernels::WholeBlockParts(projected_.cols(), parts_));
  args.input = projected_;
  args.kept = Quantised(pass) ? kept_ : kernels::KeptInput();
  args.round = round_;
  // The activation that the weights' gradient reads is made on the way, since its inputs are read
  // here anyhow. Restore leaves it out.
  if (with_gradient_ && Quantised(pass)) {
    args.output = out().x().Target(pass, false, false, Forms::kColumns).quant;
  }
  HEARTH_RETURN_IF_ERROR(function_.Backward(exec, args));
  return dy.Settle(exec, pass, args.gradient);
}

absl::Status DenseFfn::Inner(const kernels::Exec& exec,
                             const Pass& pass,
                             const FusedNormInput& input) {
  // From kFfn on backward projects again, so forward does not keep it.
  const bool keep = Level(pass) < Recompute::kFfn;
  const Forms forms = activated_again_ ? Forms::kRows : Forms::kBoth;
  return Activate(exec, pass, forms, keep, true, input);
}

absl::Status DenseFfn::Restore(const kernels::Exec& exec, const Pass& pass, Stream& stream) {
  const Recompute level = Level(pass);
  if (level >= Recompute::kNormAct) {
    HEARTH_RETURN_IF_ERROR(Normalise(exec, pass, Restored(pass, stream),
                                     level >= Recompute::kFfn ? Forms::kBoth : Forms::kColumns));
  }
  const bool project = level >= Recompute::kFfn;
  if (!Quantised(pass) || !activated_again_) {
    return level >= Recompute::kNormAct ? Activate(exec, pass, Forms::kBoth, false, project)
                                        : absl::OkStatus();
  }
  // What is kept has the same bits at each level.
  if (project && !kept_.empty()) {
    HEARTH_RETURN_IF_ERROR(Activate(exec, pass, Forms::kRows, true, true));
  } else if (project) {
    HEARTH_RETURN_IF_ERROR(in().Forward(exec, pass, projected_));
  }
  return with_gradient_ ? absl::OkStatus() : Activate(exec, pass, Forms::kColumns, false, false);
}

absl::StatusOr<TensorView> DenseFfn::InnerBackward(const kernels::Exec& exec,
                                                   const Pass& pass,
                                                   const TensorView& d_delta) {
  if (with_gradient_ && Quantised(pass)) {
    // wgrad comes last: it reads columns that the activation function's backward makes again.
    HEARTH_RETURN_IF_ERROR(ActivateBackward(exec, pass, d_delta));
    HEARTH_RETURN_IF_ERROR(out().WeightGradient(exec, pass, d_delta));
  } else {
    HEARTH_RETURN_IF_ERROR(out().WeightGradient(exec, pass, d_delta));
    HEARTH_RETURN_IF_ERROR(ActivateBackward(exec, pass, d_delta));
  }
  return projected_;
}

}  // namespace

std::unique_ptr<SubBlock> MakeDenseFfn(const ModelContext& c, const spec::PlacedBlock& placed) {
  return std::make_unique<DenseFfn>(c, placed, c.Ids(placed.layer).ffn);
}

}  // namespace hearth::trainer
