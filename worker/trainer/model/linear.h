// y = x wT + b with the formats of the recipe; its three products.
#pragma once

#include "absl/status/status.h"
#include "kernels/gemm/gemm.h"
#include "worker/trainer/model/fallback_operands.h"
#include "worker/trainer/model/sub_block.h"

namespace hearth::trainer {

class Linear {
 public:
  // `x` and `dy` are this layer's operands; `dy` is empty without training.
  Linear(
      const ModelContext& context, spec::Slot slot, int layer, const Operand& x, const Operand& dy);

  const Operand& x() const { return x_; }
  const Operand& dy() const { return dy_; }
  // Whether somebody besides the GEMMs reads dy: the gradient of the bias.
  bool NeedsPlainDy() const { return !d_bias_.empty(); }

  // x settled; y: [N, out].
  absl::Status Forward(const kernels::Exec& exec,
                       const Pass& pass,
                       const kernels::TensorView& y) const;
  // dy settled. dw (+)= dyT x, db += column sums of dy, dx = dy w; dx [N, in] is overwritten.
  // `plain_dy` stands for dy's plain form where another buffer holds it.
  absl::Status Backward(const kernels::Exec& exec,
                        const Pass& pass,
                        const kernels::TensorView& plain_dy,
                        const kernels::TensorView& dx) const;
  // Its two halves, for callers that have something to do between them.
  absl::Status WeightGradient(const kernels::Exec& exec,
                              const Pass& pass,
                              const kernels::TensorView& plain_dy) const;
  absl::Status InputGradient(const kernels::Exec& exec,
                             const Pass& pass,
                             const kernels::TensorView& plain_dy,
                             const kernels::TensorView& dx) const;
  size_t WorkspaceBytes(const kernels::Exec& exec) const;
  void AppendParams(const ModelContext& context, std::vector<int>& params) const;

 private:
  bool InFallback(const Pass& pass) const {
    return x_.InForce(pass) == spec::LayerFormat::kFallback;
  }
  size_t FallbackWorkspaceBytes(const kernels::Exec& exec,
                                const kernels::TensorView& y,
                                const kernels::TensorView& dx) const;
  kernels::GemmArgs Fprop(bool quantised, const kernels::TensorView& y) const;
  kernels::GemmArgs Wgrad(bool quantised, const kernels::TensorView& dy) const;
  kernels::GemmArgs Dgrad(bool quantised,
                          const kernels::TensorView& dy,
                          const kernels::TensorView& dx) const;

  spec::Slot slot_;
  int layer_;
  Numerics numerics_;
  bool fast_fprop_;
  bool fast_dgrad_;
  bool fast_wgrad_;
  Operand x_;
  Operand dy_;
  // Quantised copies; empty if the weight is not quantised.
  ProductOperand weight_rows_;
  ProductOperand weight_columns_;
  FallbackOperands fallback_;
  const spec::Recipe* fallback_recipe_ = nullptr;
  kernels::TensorView weight_;
  kernels::TensorView bias_;
  kernels::TensorView d_weight_;
  kernels::TensorView d_bias_;
};

}  // namespace hearth::trainer
