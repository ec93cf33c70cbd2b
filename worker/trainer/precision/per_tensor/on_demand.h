// An operand with one scale for the tensor that is quantised right before each product that reads
// it, into bytes that the job's own recipe uses otherwise. Until then it is plain: layers that run
// so keep what plain passes keep.
#pragma once

#include <cstdint>

#include "worker/trainer/precision/per_tensor/tensor_scales.h"
#include "worker/trainer/precision/plain/plain_operand.h"

namespace hearth::trainer {

class OnDemandOperand : public PlainOperand {
 public:
  // Into fallback_rows and fallback_columns, with the scale at `site`; `amax` as PlainOperand's.
  // `scales` outlive this.
  OnDemandOperand(const OperandBuffers& buffers,
                  float* amax,
                  const TensorScales& scales,
                  int64_t site)
      : PlainOperand(buffers.plain, amax),
        rows_(buffers.fallback_rows),
        columns_(buffers.fallback_columns),
        scales_(&scales),
        site_(site) {}

  ProductOperand Rows(const kernels::TensorView& plain) const override;
  ProductOperand Columns(const kernels::TensorView& plain) const override;
  absl::Status BeforeProduct(const kernels::Exec& exec,
                             const kernels::TensorView& plain,
                             bool columns) const override;

 private:
  void* rows_;
  void* columns_;
  const TensorScales* scales_;
  int64_t site_;
};

}  // namespace hearth::trainer
