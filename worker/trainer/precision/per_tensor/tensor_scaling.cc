#include "worker/trainer/precision/per_tensor/tensor_scaling.h"

#include "absl/types/span.h"
#include "common/base/status_macros.h"
#include "kernels/count_codes/count_codes.h"
#include "worker/trainer/model/pass.h"
#include "worker/trainer/precision/plain/plain_copy.h"

namespace hearth::trainer {

using kernels::QuantView;
using kernels::TensorView;

TensorOperand::TensorOperand(const TensorScaling& scaling,
                             Role role,
                             int k,
                             const OperandBuffers& buffers)
    : StoredForm(scaling.Product(scaling.context().Operands(role, k).rows,
                                 scaling.context().Site(role, k),
                                 false,
                                 buffers.rows,
                                 buffers.plain.rows(),
                                 buffers.plain.cols()),
                 scaling.Product(scaling.context().Operands(role, k).columns,
                                 scaling.context().Site(role, k),
                                 true,
                                 buffers.columns,
                                 buffers.plain.cols(),
                                 buffers.plain.rows())),
      scaling_(scaling),
      operands_(scaling.context().Operands(role, k)),
      site_(scaling.context().Site(role, k)),
      buffers_(buffers) {}

OperandTarget TensorOperand::Values(bool keep_plain, Forms forms) const {
  OperandTarget target;
  target.plain = keep_plain || Copies(forms) ? buffers_.plain : TensorView();
  target.quant = View(forms);
  return target;
}

QuantView TensorOperand::View(Forms forms) const {
  const bool rows = forms != Forms::kColumns && operands_.rows.quantised();
  const bool columns = forms != Forms::kRows && operands_.columns.quantised();
  return scaling_.scales().View(site_, rows ? buffers_.rows : nullptr,
                                columns ? buffers_.columns : nullptr);
}

absl::Status TensorOperand::Copy(const kernels::Exec& exec,
                                 const Pass& pass,
                                 const TensorView& plain,
                                 Forms forms) const {
  if (forms != Forms::kColumns && !operands_.rows.quantised()) {
    HEARTH_RETURN_IF_ERROR(CopyPlain(exec, plain, buffers_.rows));
  }
  // Evaluation has no use for columns.
  const bool columns = forms != Forms::kRows && !operands_.columns.quantised() && pass.record;
  return columns ? CopyPlain(exec, plain, buffers_.columns) : absl::OkStatus();
}

QuantView TensorOperand::Measurement() const {
  QuantView measured = scaling_.scales().View(site_, nullptr, nullptr);
  measured.amax = amax();
  return measured;
}

absl::Status TensorOperand::Quantize(const kernels::Exec& exec,
                                     const TensorView& plain,
                                     const QuantView& quant) {
  if (quant.empty()) {
    return absl::OkStatus();
  }
  const kernels::QuantizeTensor tensor = {plain, quant};
  kernels::QuantizeArgs args;
  args.tensors = absl::MakeConstSpan(&tensor, 1);
  return kernels::Quantize(exec, args);
}

absl::Status TensorOperand::Count(const kernels::Exec& exec, const Pass& pass) const {
  return pass.count && operands_.rows.quantised()
             ? scaling_.Count(exec, site_, Rows(buffers_.plain).values)
             : absl::OkStatus();
}

absl::Status TensorOperand::UpdateScale(const kernels::Exec& exec) const {
  return scaling_.scales().UpdateOne(exec, site_);
}

TensorScaling::TensorScaling(const ScalingContext& context)
    : context_(context), scales_(context.sites, *context.precision->recipe) {
  for (int k = 0; k < context_.size(); ++k) {
    const QuantisedWeight& weight = context_.weights[static_cast<size_t>(k)];
    const FormOperands operands = context_.Operands(Role::kW, k);
    weights_.push_back(
        {weight.weight, scales().View(context_.Site(Role::kW, k),
                                      operands.rows.quantised() ? weight.rows : nullptr,
                                      operands.columns.quantised() ? weight.columns : nullptr)});
  }
}

std::shared_ptr<const OperandForm> TensorScaling::Bind(Role role,
                                                       int k,
                                                       const OperandBuffers& buffers) const {
  if (role != Role::kW) {
    return BindActivation(role, k, buffers);
  }
  const QuantisedWeight& weight = context_.weights[static_cast<size_t>(k)];
  return std::make_shared<StoredForm>(
      WeightRows(k), Product(context_.Operands(role, k).columns, context_.Site(role, k), true,
                             weight.columns, weight.weight.cols(), weight.weight.rows()));
}

ProductOperand TensorScaling::WeightRows(int k) const {
  const QuantisedWeight& weight = context_.weights[static_cast<size_t>(k)];
  return Product(context_.Operands(Role::kW, k).rows, context_.Site(Role::kW, k), false,
                 weight.rows, weight.weight.rows(), weight.weight.cols());
}

ProductOperand TensorScaling::Product(const spec::Operand& operand,
                                      int64_t site,
                                      bool columns,
                                      void* data,
                                      int64_t lines,
                                      int64_t extent) const {
  if (operand.quantised()) {
    return scales().Product(site, data, lines, extent);
  }
  return columns ? PlainCopy(data, extent, lines, true) : PlainCopy(data, lines, extent, false);
}

absl::Status TensorScaling::UpdateWeights(const kernels::Exec& exec, const int32_t* skip) const {
  return scales().UpdateWeights(exec, skip);
}

absl::Status TensorScaling::QuantizeWeights(const kernels::Exec& exec,
                                            const WeightRange& weights,
                                            const int32_t* skip,
                                            uint64_t* counter) const {
  kernels::QuantizeArgs args;
  args.tensors = absl::MakeConstSpan(weights_).subspan(weights.first, weights.count);
  args.skip = skip;
  args.counter = counter;
  HEARTH_RETURN_IF_ERROR(kernels::Quantize(exec, args));
  return CopyPlainWeights(exec, context_, weights);
}

absl::Status TensorScaling::Count(const kernels::Exec& exec,
                                  int64_t site,
                                  const TensorView& values) const {
  kernels::CountCodesArgs args;
  args.x = values;
  args.counts = context_.counts + 2 * site;
  return kernels::CountCodes(exec, args);
}

absl::Status TensorScaling::CountWeights(const kernels::Exec& exec,
                                         const WeightRange& weights) const {
  for (size_t i = weights.first; i < weights.first + weights.count; ++i) {
    const auto k = static_cast<int>(i);
    if (context_.Operands(Role::kW, k).rows.quantised()) {
      HEARTH_RETURN_IF_ERROR(Count(exec, context_.Site(Role::kW, k), WeightRows(k).values));
    }
  }
  return absl::OkStatus();
}

}  // namespace hearth::trainer
