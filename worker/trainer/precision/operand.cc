#include "worker/trainer/precision/operand.h"

#include <utility>

#include "worker/trainer/model/pass.h"
#include "worker/trainer/precision/plain/plain_operand.h"

namespace hearth::trainer {

using kernels::TensorView;
using spec::LayerFormat;

OperandTarget OperandForm::Target(const Pass& /*pass*/,
                                  bool /*keep_plain*/,
                                  bool /*blocks*/,
                                  Forms /*forms*/) const {
  return {};
}

absl::Status OperandForm::Settle(const kernels::Exec& /*exec*/,
                                 const Pass& /*pass*/,
                                 const OperandTarget& /*target*/,
                                 Forms /*forms*/) const {
  return absl::OkStatus();
}

absl::Status OperandForm::Make(const kernels::Exec& /*exec*/,
                               const Pass& /*pass*/,
                               const TensorView& /*plain*/,
                               Forms /*forms*/) const {
  return absl::OkStatus();
}

absl::Status OperandForm::BeforeProduct(const kernels::Exec& /*exec*/,
                                        const TensorView& /*plain*/,
                                        bool /*columns*/) const {
  return absl::OkStatus();
}

ProductOperand StoredForm::Rows(const TensorView& /*plain*/) const {
  return rows_;
}

ProductOperand StoredForm::Columns(const TensorView& /*plain*/) const {
  return columns_;
}

Operand::Operand(const TensorView& plain) : plain_(plain) {
  forms_[static_cast<size_t>(LayerFormat::kPlain)] = std::make_shared<PlainOperand>(plain, nullptr);
}

Operand::Operand(const TensorView& plain,
                 FormTable forms,
                 const spec::PrecisionPlan& precision,
                 int layer)
    : plain_(plain), forms_(std::move(forms)), precision_(&precision), layer_(layer) {}

LayerFormat Operand::InForce(const Pass& pass) const {
  return precision_ == nullptr ? LayerFormat::kPlain : precision_->FormatOf(pass.format, layer_);
}

OperandTarget Operand::Target(const Pass& pass, bool keep_plain, bool blocks, Forms forms) const {
  return In(pass).Target(pass, keep_plain, blocks, forms);
}

absl::Status Operand::Settle(const kernels::Exec& exec,
                             const Pass& pass,
                             const OperandTarget& target,
                             Forms forms) const {
  return In(pass).Settle(exec, pass, target, forms);
}

absl::Status Operand::Make(const kernels::Exec& exec,
                           const Pass& pass,
                           const TensorView& plain,
                           Forms forms) const {
  return In(pass).Make(exec, pass, plain, forms);
}

}  // namespace hearth::trainer
