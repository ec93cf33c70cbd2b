// Causal self-attention: norm, fused q|k|v projection, QK-norm and rope, attention, output
// projection, dropout.
#include "kernels/attention/attention.h"

#include <algorithm>
#include <memory>

#include "common/base/status_macros.h"
#include "kernels/qk_norm_rope/qk_norm_rope.h"
#include "worker/trainer/model/blocks/block_maker.h"
#include "worker/trainer/model/residual_block.h"
#include "worker/trainer/model/sub_block.h"

namespace hearth::trainer {

using kernels::TensorView;
using spec::Recompute;
using spec::Slot;

namespace {

class Attention : public ResidualBlock {
 public:
  Attention(const ModelContext& context,
            const spec::PlacedBlock& placed,
            const spec::AttentionBuffers& ids);

  size_t WorkspaceBytes(const kernels::Exec& exec) const override;
  // For a training plan alone: forward and backward are bound.
  absl::StatusOr<kernels::AttentionEngines> CheckAttention(const kernels::Exec& exec,
                                                           int64_t documents,
                                                           double tolerance) const override {
    return kernels::CheckAttention(exec, With(attention_forward_, documents),
                                   With(attention_backward_, documents), tolerance);
  }
  std::vector<int64_t> DocumentBounds(const kernels::Exec& exec) const override {
    return training() ? kernels::AttentionDocumentBounds(exec, attention_forward_)
                      : std::vector<int64_t>();
  }
  absl::Status Restore(const kernels::Exec& exec, const Pass& pass, Stream& stream) override;

 private:
  template <typename Args>
  static Args With(Args args, int64_t documents) {
    args.documents = documents;
    return args;
  }
  // What the projection made to attention output, plain.
  absl::Status AttendPlain(const kernels::Exec& exec, int64_t documents);
  absl::Status Inner(const kernels::Exec& exec,
                     const Pass& pass,
                     const FusedNormInput& input) override;
  absl::StatusOr<TensorView> InnerBackward(const kernels::Exec& exec,
                                           const Pass& pass,
                                           const TensorView& d_delta) override;
  void BindAttention(const ModelContext& context);

  int layer_;
  KeyValueCache* cache_;  // null: none
  bool attention_again_;  // backward makes the columns of attention's output
  kernels::TensorView qkv_;
  kernels::TensorView rotated_;  // qkv_ itself without QK-norm
  kernels::TensorView attention_;
  kernels::TensorView d_qkv_;
  kernels::TensorView d_attention_;
  kernels::QkNormRopeForwardArgs rope_forward_;
  kernels::QkNormRopeBackwardArgs rope_backward_;
  kernels::AttentionForwardArgs attention_forward_;
  kernels::AttentionBackwardArgs attention_backward_;
};

kernels::RopeConfig MakeRope(const spec::ModelShape& shape) {
  kernels::RopeConfig rope;
  rope.enabled = shape.position == spec::Position::kRope;
  rope.theta = shape.spec.rope_theta();
  rope.scaling = shape.rope_scaling;
  return rope;
}

Attention::Attention(const ModelContext& c,
                     const spec::PlacedBlock& placed,
                     const spec::AttentionBuffers& ids)
    : ResidualBlock(c,
                    placed,
                    ids,
                    {.norm = Slot::kAttnNorm,
                     .in = Slot::kQkv,
                     .out = Slot::kAttnOut,
                     .between = {Slot::kQNorm, Slot::kKNorm}}),
      layer_(placed.layer),
      cache_(c.cache),
      attention_again_(c.Site(Slot::kAttnOut, placed.layer).backward_makes_columns),
      qkv_(c.Floats(ids.qkv)),
      rotated_(c.Floats(ids.rotated)),
      attention_(c.Floats(ids.attention)),
      d_qkv_(c.Floats(c.ids().gradients.attention.qkv)),
      d_attention_(c.Floats(c.ids().gradients.attention.attention)) {
  // Only the norms of q and k need the values before the rotation again; without them it is in
  // place.
  if (rotated_.empty()) {
    rotated_ = qkv_;
  }
  rope_forward_.rstd = rope_backward_.rstd = c.Floats(ids.qk_stats);
  attention_forward_.lse = attention_backward_.lse = c.Floats(ids.lse);
  rope_forward_.q_weight = rope_backward_.q_weight =
      c.parameters->FindWeight(Slot::kQNorm, placed.layer);
  rope_forward_.k_weight = rope_backward_.k_weight =
      c.parameters->FindWeight(Slot::kKNorm, placed.layer);
  rope_backward_.d_q_weight = c.parameters->FindGradient(Slot::kQNorm, placed.layer);
  rope_backward_.d_k_weight = c.parameters->FindGradient(Slot::kKNorm, placed.layer);
  BindAttention(c);
}

void Attention::BindAttention(const ModelContext& c) {
  const spec::ModelShape& s = c.shape();
  rope_forward_.dims = rope_backward_.dims = {s.heads, s.kv_heads, s.head_dim};
  rope_forward_.rope = rope_backward_.rope = MakeRope(s);
  rope_forward_.positions = rope_backward_.positions =
      c.arena->Typed(c.ids().batch.positions, kernels::DType::kI32);
  rope_forward_.qkv = rope_backward_.qkv = qkv_;
  rope_forward_.out = rotated_;
  rope_forward_.eps = s.spec.norm_eps();
  rope_forward_.round_out = c.numerics.activation;
  rope_backward_.d_out = rope_backward_.d_qkv = d_qkv_;
  rope_backward_.round_d_qkv = c.numerics.activation;
  attention_forward_.dims = attention_backward_.dims = {c.plan.micro_batch, c.plan.sequence_length,
                                                        s.heads, s.kv_heads, s.head_dim};
  attention_forward_.qkv = attention_backward_.qkv = rotated_;
  if (c.documents) {
    attention_forward_.starts = attention_backward_.starts =
        c.arena->Typed(c.ids().batch.starts, kernels::DType::kI32);
  }
  attention_forward_.out = attention_backward_.out = attention_;
  attention_backward_.d_out = d_attention_;
  attention_backward_.d_qkv = d_qkv_;
  attention_forward_.round = attention_backward_.round = c.numerics.activation;
}

size_t Attention::WorkspaceBytes(const kernels::Exec& exec) const {
  const size_t attention = cache_ == nullptr
                               ? kernels::AttentionForwardWorkspaceBytes(exec, attention_forward_)
                               : cache_->WorkspaceBytes(exec, rope_forward_, attention_forward_);
  size_t bytes = std::max({ResidualBlock::WorkspaceBytes(exec), attention,
                           kernels::QkNormRopeForwardWorkspaceBytes(rope_forward_)});
  if (training()) {
    bytes = std::max({bytes, kernels::QkNormRopeBackwardWorkspaceBytes(rope_backward_),
                      kernels::AttentionBackwardWorkspaceBytes(exec, attention_backward_)});
  }
  for (const int64_t documents : DocumentBounds(exec)) {
    bytes = std::max(
        {bytes, kernels::AttentionForwardWorkspaceBytes(exec, With(attention_forward_, documents)),
         kernels::AttentionBackwardWorkspaceBytes(exec, With(attention_backward_, documents))});
  }
  return bytes;
}

absl::Status Attention::AttendPlain(const kernels::Exec& exec, int64_t documents) {
  if (cache_ != nullptr) {
    return cache_->Attend(exec, layer_, rope_forward_, attention_forward_);
  }
  HEARTH_RETURN_IF_ERROR(kernels::QkNormRopeForward(exec, rope_forward_));
  return kernels::AttentionForward(exec, With(attention_forward_, documents));
}

absl::Status Attention::Inner(const kernels::Exec& exec,
                              const Pass& pass,
                              const FusedNormInput& input) {
  HEARTH_RETURN_IF_ERROR(in().Forward(exec, pass, qkv_, input));
  HEARTH_RETURN_IF_ERROR(AttendPlain(exec, pass.documents));
  // Attention writes no quantised forms: they take a pass of their own.
  return out().x().Make(exec, pass, attention_, attention_again_ ? Forms::kRows : Forms::kBoth);
}

absl::Status Attention::Restore(const kernels::Exec& exec, const Pass& pass, Stream& stream) {
  const Recompute level = Level(pass);
  const Stream own = Restored(pass, stream);
  if (level == Recompute::kBlock) {
    HEARTH_RETURN_IF_ERROR(Run(exec, pass, stream, Forms::kBoth));
  } else if (level == Recompute::kAttention) {
    HEARTH_RETURN_IF_ERROR(Normalise(exec, pass, own, Forms::kBoth));
    HEARTH_RETURN_IF_ERROR(Inner(exec, pass, {}));
  } else if (level >= Recompute::kNormAct) {
    HEARTH_RETURN_IF_ERROR(Normalise(exec, pass, own, Forms::kColumns));
  }
  const Operand& x = out().x();
  return attention_again_ && x.Quantised(pass) ? x.Make(exec, pass, attention_, Forms::kColumns)
                                               : absl::OkStatus();
}

absl::StatusOr<TensorView> Attention::InnerBackward(const kernels::Exec& exec,
                                                    const Pass& pass,
                                                    const TensorView& d_delta) {
  HEARTH_RETURN_IF_ERROR(out().Backward(exec, pass, d_delta, d_attention_));
  HEARTH_RETURN_IF_ERROR(
      kernels::AttentionBackward(exec, With(attention_backward_, pass.documents)));
  const Operand& d_qkv = in().dy();
  const OperandTarget target =
      d_qkv.Target(pass, in().NeedsPlainDy(), kernels::WritesBlocks(exec, rope_backward_));
  // In place where the plain form is wanted; without it only the quantised forms are written.
  rope_backward_.d_qkv = target.plain;
  rope_backward_.d_qkv_quant = target.quant;
  rope_backward_.d_qkv_blocks = target.blocks;
  HEARTH_RETURN_IF_ERROR(kernels::QkNormRopeBackward(exec, rope_backward_));
  HEARTH_RETURN_IF_ERROR(d_qkv.Settle(exec, pass, target));
  return d_qkv_;
}

}  // namespace

std::unique_ptr<SubBlock> MakeAttention(const ModelContext& c, const spec::PlacedBlock& placed) {
  return std::make_unique<Attention>(c, placed, c.Ids(placed.layer).attention);
}

}  // namespace hearth::trainer
