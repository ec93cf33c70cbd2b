#include "worker/trainer/precision/per_tensor/delayed_scaling.h"

#include "common/base/status_macros.h"
#include "worker/trainer/model/pass.h"

namespace hearth::trainer {

using kernels::QuantView;
using kernels::TensorView;

namespace {

class DelayedOperand : public TensorOperand {
 public:
  using TensorOperand::TensorOperand;

  OperandTarget Target(const Pass& pass,
                       bool keep_plain,
                       bool /*blocks*/,
                       Forms forms) const override {
    OperandTarget target = Values(keep_plain, forms);
    target.quant.amax = Recorded(pass, forms);
    return target;
  }

  absl::Status Settle(const kernels::Exec& exec,
                      const Pass& pass,
                      const OperandTarget& /*target*/,
                      Forms forms) const override {
    HEARTH_RETURN_IF_ERROR(Copy(exec, pass, buffers().plain, forms));
    return forms == Forms::kColumns ? absl::OkStatus() : Count(exec, pass);  // forward counted
  }

  absl::Status Make(const kernels::Exec& exec,
                    const Pass& pass,
                    const TensorView& plain,
                    Forms forms) const override {
    QuantView quant = View(forms);
    quant.amax = Recorded(pass, forms);
    HEARTH_RETURN_IF_ERROR(Quantize(exec, plain, quant));
    HEARTH_RETURN_IF_ERROR(Copy(exec, pass, plain, forms));
    return forms == Forms::kColumns ? absl::OkStatus() : Count(exec, pass);
  }

 private:
  // Where this pass records the magnitude; null: it does not. Magnitudes of evaluation are not the
  // training's; those of columns are forward's.
  float* Recorded(const Pass& pass, Forms forms) const {
    return pass.record && forms != Forms::kColumns ? amax() : nullptr;
  }
};

}  // namespace

absl::Status DelayedScaling::UpdateActivations(const kernels::Exec& exec,
                                               const int32_t* skip) const {
  return scales().UpdateActivations(exec, skip);
}

std::shared_ptr<const OperandForm> DelayedScaling::BindActivation(
    Role role, int k, const OperandBuffers& buffers) const {
  return std::make_shared<DelayedOperand>(*this, role, k, buffers);
}

}  // namespace hearth::trainer
