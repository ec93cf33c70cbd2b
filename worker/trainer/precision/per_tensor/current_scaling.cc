#include "worker/trainer/precision/per_tensor/current_scaling.h"

#include "common/base/status_macros.h"

namespace hearth::trainer {

using kernels::TensorView;

namespace {

class CurrentOperand : public TensorOperand {
 public:
  using TensorOperand::TensorOperand;

  OperandTarget Target(const Pass& /*pass*/,
                       bool keep_plain,
                       bool /*blocks*/,
                       Forms forms) const override {
    if (forms == Forms::kColumns) {
      return Values(keep_plain, forms);
    }
    OperandTarget target;
    target.plain = buffers().plain;
    target.quant = Measurement();
    return target;
  }

  absl::Status Settle(const kernels::Exec& exec,
                      const Pass& pass,
                      const OperandTarget& /*target*/,
                      Forms forms) const override {
    if (forms == Forms::kColumns) {
      // The producer wrote them with forward's scale, and forward counted.
      return Copy(exec, pass, buffers().plain, forms);
    }
    return QuantizeMeasured(exec, pass, buffers().plain, forms);
  }

  absl::Status Make(const kernels::Exec& exec,
                    const Pass& pass,
                    const TensorView& plain,
                    Forms forms) const override {
    if (forms == Forms::kColumns) {
      HEARTH_RETURN_IF_ERROR(Quantize(exec, plain, View(forms)));
      return Copy(exec, pass, plain, forms);
    }
    // Its own scale comes first, from a pass over the tensor that measures it.
    HEARTH_RETURN_IF_ERROR(Quantize(exec, plain, Measurement()));
    return QuantizeMeasured(exec, pass, plain, forms);
  }

 private:
  absl::Status QuantizeMeasured(const kernels::Exec& exec,
                                const Pass& pass,
                                const TensorView& plain,
                                Forms forms) const {
    HEARTH_RETURN_IF_ERROR(UpdateScale(exec));
    // The maximum is recorded already; a second pass would count it again.
    HEARTH_RETURN_IF_ERROR(Quantize(exec, plain, View(forms)));
    HEARTH_RETURN_IF_ERROR(Copy(exec, pass, plain, forms));
    return Count(exec, pass);
  }
};

}  // namespace

std::shared_ptr<const OperandForm> CurrentScaling::BindActivation(
    Role role, int k, const OperandBuffers& buffers) const {
  return std::make_shared<CurrentOperand>(*this, role, k, buffers);
}

}  // namespace hearth::trainer
