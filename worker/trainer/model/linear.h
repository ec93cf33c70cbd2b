// y = x wT + b with the formats of the recipe; its three products.
#pragma once

#include "absl/status/status.h"
#include "kernels/gemm/gemm.h"
#include "worker/trainer/model/sub_block.h"

namespace hearth::trainer {

class Linear {
 public:
  Linear(const ModelContext& context, spec::Slot slot, int layer);

  // x: [N, in] in the activation format; y: [N, out].
  absl::Status Forward(const kernels::Exec& exec,
                       const kernels::TensorView& x,
                       const kernels::TensorView& y) const;
  // dw += dyT x, db += column sums of dy, dx = dy w; dx [N, in] is overwritten.
  absl::Status Backward(const kernels::Exec& exec,
                        const kernels::TensorView& dy,
                        const kernels::TensorView& x,
                        const kernels::TensorView& dx) const;
  // For `rows` rows.
  size_t WorkspaceBytes(int64_t rows) const;
  void AppendParams(const ModelContext& context, std::vector<int>& params) const;

 private:
  spec::Slot slot_;
  int layer_;
  Numerics numerics_;
  kernels::TensorView weight_;
  kernels::TensorView bias_;
  kernels::TensorView d_weight_;
  kernels::TensorView d_bias_;
};

}  // namespace hearth::trainer
