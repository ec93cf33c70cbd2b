// Causal self-attention: norm, fused q|k|v projection, QK-norm and rope, attention, output
// projection, dropout.
#pragma once

#include "kernels/attention/attention.h"
#include "kernels/dropout/dropout.h"
#include "kernels/qk_norm_rope/qk_norm_rope.h"
#include "worker/trainer/model/linear.h"
#include "worker/trainer/model/norm_layer.h"
#include "worker/trainer/model/sub_block.h"

namespace hearth::trainer {

class AttentionMixer : public SubBlock {
 public:
  AttentionMixer(const ModelContext& context, int layer);

  const std::vector<int>& Params() const override { return params_; }
  size_t WorkspaceBytes(const kernels::Exec& exec) const override;
  // For a training plan alone: forward and backward are bound.
  absl::StatusOr<kernels::AttentionEngines> CheckAttention(const kernels::Exec& exec,
                                                           double tolerance) const override {
    return kernels::CheckAttention(exec, attention_forward_, attention_backward_, tolerance);
  }
  absl::Status Forward(const kernels::Exec& exec, const Pass& pass, Stream& stream) override;
  absl::Status Restore(const kernels::Exec& exec, const Pass& pass, Stream& stream) override;
  const Operand* OutputGradient() const override {
    return d_delta_.empty() ? &output_projection_.dy() : nullptr;
  }
  absl::Status Backward(const kernels::Exec& exec,
                        const Pass& pass,
                        const kernels::TensorView& d_stream,
                        const Operand* next) override;

 private:
  AttentionMixer(const ModelContext& context,
                 int layer,
                 const spec::AttentionBuffers& ids,
                 const spec::GradientBuffers& gradients);
  absl::Status Normalise(const kernels::Exec& exec,
                         const Pass& pass,
                         const Stream& stream,
                         Forms forms);
  // All of Forward, with these forms of the norm's output.
  absl::Status Run(const kernels::Exec& exec, const Pass& pass, Stream& stream, Forms forms);
  // Normed input to attention output, in every form.
  absl::Status Attend(const kernels::Exec& exec, const Pass& pass);
  void BindAttention(const ModelContext& context);

  RecomputeLevels levels_;
  bool attention_again_;  // backward makes the columns of attention's output
  bool training_;
  int64_t rows_;
  kernels::TensorView input_;
  kernels::TensorView qkv_;
  kernels::TensorView rotated_;  // qkv_ itself without QK-norm
  kernels::TensorView attention_;
  kernels::TensorView delta_;
  kernels::TensorView d_normed_;
  kernels::TensorView d_qkv_;
  kernels::TensorView d_attention_;
  kernels::TensorView d_delta_;  // empty without dropout
  NormLayer norm_;
  Linear qkv_projection_;
  Linear output_projection_;
  kernels::QkNormRopeForwardArgs rope_forward_;
  kernels::QkNormRopeBackwardArgs rope_backward_;
  kernels::AttentionForwardArgs attention_forward_;
  kernels::AttentionBackwardArgs attention_backward_;
  kernels::DropoutArgs dropout_;
  std::vector<int> params_;
};

}  // namespace hearth::trainer
