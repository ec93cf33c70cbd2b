// y = x wT + b with the formats of the recipe; its three products.
#pragma once

#include <array>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/gemm/gemm.h"
#include "worker/trainer/model/sub_block.h"

namespace hearth::trainer {

// What a layer reads where its product applies the norm of its input (kernels::TakesInputNorm): the
// values before the norm. Without a weight: nothing.
struct FusedNormInput {
  kernels::TensorView x;
  kernels::InputNorm norm;

  bool empty() const { return norm.weight.empty(); }
};

class Linear {
 public:
  // Bound to the buffers that the plan has for its GEMM sites.
  Linear(const ModelContext& context, spec::Slot slot, int layer);
  // `x` and `dy` are this layer's operands; `dy` is empty without training.
  Linear(
      const ModelContext& context, spec::Slot slot, int layer, const Operand& x, const Operand& dy);

  const Operand& x() const { return x_; }
  const Operand& dy() const { return dy_; }
  // Whether something other than the GEMMs reads dy: the gradient of the bias.
  bool NeedsPlainDy() const { return !d_bias_.empty(); }

  // x settled, or `input` in its place; y: [N, out].
  absl::Status Forward(const kernels::Exec& exec,
                       const Pass& pass,
                       const kernels::TensorView& y,
                       const FusedNormInput& input = {}) const;
  // The same with `addend` added, which may be y.
  absl::Status ForwardSum(const kernels::Exec& exec,
                          const Pass& pass,
                          const kernels::TensorView& addend,
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
  // The products of Forward and InputGradient, for callers that run more than them in one
  // operation: their operands are ready.
  absl::StatusOr<kernels::GemmArgs> ForwardProduct(const kernels::Exec& exec,
                                                   const Pass& pass,
                                                   const kernels::TensorView& y,
                                                   const FusedNormInput& input = {}) const;
  absl::StatusOr<kernels::GemmArgs> InputGradientProduct(const kernels::Exec& exec,
                                                         const Pass& pass,
                                                         const kernels::TensorView& plain_dy,
                                                         const kernels::TensorView& dx) const;
  // Whether Forward and ForwardProduct take `input`.
  bool TakesNorm(const kernels::Exec& exec, const FusedNormInput& input) const;
  size_t WorkspaceBytes(const kernels::Exec& exec) const;
  void AppendParams(const ModelContext& context, std::vector<int>& params) const;

 private:
  // Its products with the operands of one precision. `y` and `dy`, `dx`: what they write, or the
  // plain form of what they read.
  kernels::GemmArgs Fprop(spec::LayerFormat format, const kernels::TensorView& y) const;
  kernels::GemmArgs Wgrad(spec::LayerFormat format, const kernels::TensorView& dy) const;
  kernels::GemmArgs Dgrad(spec::LayerFormat format,
                          const kernels::TensorView& dy,
                          const kernels::TensorView& dx) const;
  // Whether the recipe of that precision says so of the product.
  bool Fast(spec::LayerFormat format, const spec::Gemm spec::Recipe::*product) const;

  spec::Slot slot_;
  int layer_;
  Numerics numerics_;
  kernels::DType round_gradient_;               // of the weight
  std::array<const spec::Recipe*, 3> recipes_;  // by LayerFormat; null: plain
  Operand x_;
  Operand dy_;
  Operand w_;
  kernels::TensorView weight_;
  kernels::TensorView bias_;
  kernels::TensorView d_weight_;
  kernels::TensorView d_bias_;
};

}  // namespace hearth::trainer
