// One scale for each tensor, from the magnitudes of earlier steps (delayed) or from its own
// (current).
#pragma once

#include "worker/trainer/precision/per_tensor/tensor_scales.h"
#include "worker/trainer/precision/scaling.h"

namespace hearth::trainer {

class TensorScaling : public Scaling {
 public:
  explicit TensorScaling(const ScalingContext& context);

  std::shared_ptr<const OperandForm> Bind(Role role,
                                          int k,
                                          const OperandBuffers& buffers) const override;
  absl::Status UpdateActivations(const kernels::Exec& exec, const int32_t* skip) const override;
  absl::Status UpdateWeights(const kernels::Exec& exec, const int32_t* skip) const override;
  absl::Status QuantizeWeights(const kernels::Exec& exec,
                               const int32_t* skip,
                               uint64_t* counter) const override;
  absl::Status CountWeights(const kernels::Exec& exec) const override;
  size_t underflow() const override { return 0; }

  bool delayed() const { return context_.precision->delayed; }
  const TensorScales& scales() const { return scales_; }
  // The site's zeros and largest magnitudes among its quantised values into its place of the
  // counts, which the plan has.
  absl::Status Count(const kernels::Exec& exec,
                     int64_t site,
                     const kernels::TensorView& values) const;

 private:
  ProductOperand WeightRows(int k) const;

  ScalingContext context_;
  TensorScales scales_;
  std::vector<kernels::QuantizeTensor> weights_;  // rows and columns
};

}  // namespace hearth::trainer
