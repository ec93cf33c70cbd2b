// The dense feed-forward block: norm, projection (gate|up or fc), activation, down projection,
// dropout.
#pragma once

#include "kernels/dropout/dropout.h"
#include "kernels/gelu/gelu.h"
#include "kernels/swiglu/swiglu.h"
#include "worker/trainer/model/linear.h"
#include "worker/trainer/model/norm_layer.h"
#include "worker/trainer/model/sub_block.h"

namespace hearth::trainer {

class DenseFfn : public SubBlock {
 public:
  DenseFfn(const ModelContext& context, int layer);

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
           int layer,
           const spec::FfnBuffers& ids,
           const spec::GradientBuffers& gradients);
  // Norm and projection, or what the recomputation level leaves of them, and activation.
  absl::Status Normalise(const kernels::Exec& exec,
                         const Pass& pass,
                         const Stream& stream,
                         Forms forms);
  // kColumns: of what was kept. Else of projected_, with `keep` keeping it as the plan says.
  absl::Status Activate(const kernels::Exec& exec, const Pass& pass, Forms forms, bool keep) const;
  // d_activated_ to the gradient of projected_, whose plain form overwrites projected_.
  absl::Status ActivateBackward(const kernels::Exec& exec, const Pass& pass) const;
  bool Quantised(const Pass& pass) const { return in_projection_.x().Quantised(pass); }

  RecomputeLevels levels_;
  bool activated_again_;  // backward makes the columns of the activation function's output
  bool with_gradient_;    // and that together with its gradient
  spec::Activation activation_;
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

}  // namespace hearth::trainer
