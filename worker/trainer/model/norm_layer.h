// RMSNorm or LayerNorm with its saved statistics, as the model's shape says.
#pragma once

#include "absl/status/status.h"
#include "kernels/gemm/gemm.h"
#include "kernels/norm/norm.h"
#include "worker/trainer/model/sub_block.h"

namespace hearth::trainer {

class NormLayer {
 public:
  // `input`: [N, C]; `stats`: [2, N], mean and rstd. `slot` is one of the norms' slots.
  NormLayer(const ModelContext& context,
            spec::Slot slot,
            int layer,
            const kernels::TensorView& input,
            const kernels::TensorView& stats);

  // As a product applies it; without a weight for a LayerNorm.
  kernels::InputNorm AsInputNorm() const;
  // Whether Forward can write forms with block scales.
  bool WritesBlocks(const kernels::Exec& exec) const;
  // With a delta: input = sum + delta first. Without: reads `stream.sum` and leaves the input
  // buffer as it is; in training they must be one.
  // The result goes where `output` says.
  absl::Status Forward(const kernels::Exec& exec,
                       const Stream& stream,
                       const OperandTarget& output);
  // d_stream += the gradient through the norm of `dy`, [N, C]; or = where `accumulate` is false.
  // `next`: the operand of which d_stream is the plain form, complete after this; null: none.
  absl::Status Backward(const kernels::Exec& exec,
                        const Pass& pass,
                        const kernels::TensorView& dy,
                        const kernels::TensorView& d_stream,
                        bool accumulate,
                        const Operand* next);
  size_t WorkspaceBytes(bool training) const;
  void AppendParams(const ModelContext& context, std::vector<int>& params) const;

 private:
  absl::Status RunBackward(const kernels::Exec& exec,
                           const kernels::TensorView& dy,
                           const kernels::TensorView& d_stream,
                           bool accumulate,
                           const OperandTarget& target);
  bool GradientWritesBlocks(const kernels::Exec& exec) const;

  spec::Slot slot_;
  int layer_;
  bool layer_norm_;
  bool training_;
  kernels::TensorView input_;
  kernels::RmsNormForwardArgs rms_forward_;
  kernels::RmsNormBackwardArgs rms_backward_;
  kernels::LayerNormForwardArgs layer_forward_;
  kernels::LayerNormBackwardArgs layer_backward_;
};

}  // namespace hearth::trainer
