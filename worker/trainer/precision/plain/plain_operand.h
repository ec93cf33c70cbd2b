// An operand that products read as its producer wrote it.
#pragma once

#include "worker/trainer/precision/operand.h"

namespace hearth::trainer {

class PlainOperand : public OperandForm {
 public:
  // `amax`: one float on the tensors' device that passes of training raise to the largest
  // magnitude, for scales of later steps; null: nobody needs it.
  PlainOperand(const kernels::TensorView& plain, float* amax) : plain_(plain), amax_(amax) {}

  OperandTarget Target(const Pass& pass, bool keep_plain, bool blocks, Forms forms) const override;
  absl::Status Make(const kernels::Exec& exec,
                    const Pass& pass,
                    const kernels::TensorView& plain,
                    Forms forms) const override;
  ProductOperand Rows(const kernels::TensorView& plain) const override;
  ProductOperand Columns(const kernels::TensorView& plain) const override;

 private:
  // Where this pass records the magnitude; null: it does not.
  float* Recorded(const Pass& pass, Forms forms) const;

  kernels::TensorView plain_;
  float* amax_;
};

}  // namespace hearth::trainer
