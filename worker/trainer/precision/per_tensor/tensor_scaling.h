// One scale for each tensor: what the ways of making it have in common.
#pragma once

#include "worker/trainer/precision/per_tensor/tensor_scales.h"
#include "worker/trainer/precision/scaling.h"

namespace hearth::trainer {

// Not movable: operands point at it.
class TensorScaling : public Scaling {
 public:
  explicit TensorScaling(const ScalingContext& context);

  std::shared_ptr<const OperandForm> Bind(Role role,
                                          int k,
                                          const OperandBuffers& buffers) const override;
  absl::Status UpdateWeights(const kernels::Exec& exec, const int32_t* skip) const override;
  absl::Status QuantizeWeights(const kernels::Exec& exec,
                               const WeightRange& weights,
                               const int32_t* skip,
                               uint64_t* counter) const override;
  absl::Status CountWeights(const kernels::Exec& exec, const WeightRange& weights) const override;
  size_t underflow() const override { return 0; }

  const TensorScales& scales() const { return scales_; }
  const ScalingContext& context() const { return context_; }
  // How a product reads the form of `operand`, lines x extent, at `data`.
  ProductOperand Product(const spec::Operand& operand,
                         int64_t site,
                         bool columns,
                         void* data,
                         int64_t lines,
                         int64_t extent) const;
  // The site's zeros and largest magnitudes among its quantised values into its place of the
  // counts, which the plan has.
  absl::Status Count(const kernels::Exec& exec,
                     int64_t site,
                     const kernels::TensorView& values) const;

 private:
  // x or dy.
  virtual std::shared_ptr<const OperandForm> BindActivation(
      Role role, int k, const OperandBuffers& buffers) const = 0;
  ProductOperand WeightRows(int k) const;

  ScalingContext context_;
  TensorScales scales_;
  std::vector<kernels::QuantizeTensor> weights_;  // rows and columns
};

// x or dy.
class TensorOperand : public StoredForm {
 public:
  // An operand of weight `k`. `scaling` outlives this.
  TensorOperand(const TensorScaling& scaling, Role role, int k, const OperandBuffers& buffers);

 protected:
  // What the producer writes if the scale is known, since it comes from an earlier step or from
  // forward.
  OperandTarget Values(bool keep_plain, Forms forms) const;
  kernels::QuantView View(Forms forms) const;
  // What measures the tensor alone.
  kernels::QuantView Measurement() const;
  static absl::Status Quantize(const kernels::Exec& exec,
                               const kernels::TensorView& plain,
                               const kernels::QuantView& quant);
  // Writes the wanted forms that are copies of the plain tensor.
  absl::Status Copy(const kernels::Exec& exec,
                    const Pass& pass,
                    const kernels::TensorView& plain,
                    Forms forms) const;
  // Counts the values of passes that count.
  absl::Status Count(const kernels::Exec& exec, const Pass& pass) const;
  // The scale that follows from the tensor's own magnitude.
  absl::Status UpdateScale(const kernels::Exec& exec) const;
  const OperandBuffers& buffers() const { return buffers_; }
  // Whether a wanted form is a copy of the plain tensor.
  bool Copies(Forms forms) const {
    return (forms != Forms::kColumns && !operands_.rows.quantised()) ||
           (forms != Forms::kRows && !operands_.columns.quantised());
  }
  float* amax() const { return scaling_.scales().sites().At(site_).amax; }

 private:
  const TensorScaling& scaling_;
  FormOperands operands_;
  int64_t site_;
  OperandBuffers buffers_;
};

}  // namespace hearth::trainer
