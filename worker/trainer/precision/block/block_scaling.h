// One scale for each block, in any layout (common/formats/block_layout.h). Where the layout has a
// scale of the tensor too, it is made for kBlockMargin times the largest magnitude of the step
// before (QuantSite::carried), or for the tensor's own (spec::Operand::own_tensor_scale).
#pragma once

#include "absl/types/span.h"
#include "kernels/block_quantize/block_quantize.h"
#include "worker/trainer/precision/scaling.h"

namespace hearth::trainer {

// Room for growth from one step to the next: it costs the blocks' scales no precision.
inline constexpr float kBlockMargin = 8.0F;

class BlockScaling : public Scaling {
 public:
  explicit BlockScaling(const ScalingContext& context);

  std::shared_ptr<const OperandForm> Bind(Role role,
                                          int k,
                                          const OperandBuffers& buffers) const override;
  absl::Status Reset(const kernels::Exec& exec) const override;
  void BindStep(uint64_t seed, const kernels::StepInputs* position) override;
  absl::Status BeginStep(const kernels::Exec& exec, const WeightRange& weights) const override;
  absl::Status UpdateActivations(const kernels::Exec& exec, const int32_t* skip) const override;
  absl::Status UpdateWeights(const kernels::Exec& exec, const int32_t* skip) const override;
  absl::Status QuantizeWeights(const kernels::Exec& exec,
                               const WeightRange& weights,
                               const int32_t* skip,
                               uint64_t* counter) const override;
  size_t underflow() const override { return 1; }  // BlockForm::counts

  const ScalingContext& context() const { return context_; }
  // How a form of `operand`, lines x extent, that begins at `data` is made at the site, and how a
  // product reads it. `columns`: the transposed one; as the two may be rounded in different ways,
  // each has a scale of the tensor of its own.
  kernels::BlockForm Form(const spec::Operand& operand,
                          int64_t site,
                          bool columns,
                          void* data,
                          int64_t lines,
                          int64_t extent) const;
  ProductOperand Product(const spec::Operand& operand,
                         int64_t site,
                         bool columns,
                         void* data,
                         int64_t lines,
                         int64_t extent) const;
  // The tensor's scale for its own magnitude, before its forms are made.
  absl::Status ScaleTensor(const kernels::Exec& exec,
                           int64_t site,
                           const kernels::TensorView& plain) const;

 private:
  // Forms of weights that one call writes, at most one entry a weight.
  struct WeightForms {
    std::vector<kernels::BlockQuantizeTensor> tensors;
    std::vector<size_t> ends = {0};  // behind each weight's, by number
    // The next weight's; empty: it has none here.
    void Add(const kernels::BlockQuantizeTensor& tensor);
    absl::Span<const kernels::BlockQuantizeTensor> Of(const WeightRange& weights) const;
  };

  void AddWeight(int k);
  // A tensor's scale is made for its magnitude times this.
  float Margin() const;
  absl::Status UpdateAmax(const kernels::Exec& exec,
                          int64_t first,
                          int64_t count,
                          const int32_t* skip) const;
  float* TensorScale(int64_t site, bool columns) const;

  ScalingContext context_;
  float* column_scale_inverse_;  // [3 n], in steps of kScaleInverseStride
  WeightForms rows_;             // and columns that are written in the same pass
  WeightForms columns_;          // in another layout than the rows
  WeightForms each_step_;        // columns whose signs are new in each step
};

}  // namespace hearth::trainer
