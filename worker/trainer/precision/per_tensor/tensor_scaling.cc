#include "worker/trainer/precision/per_tensor/tensor_scaling.h"

#include "absl/types/span.h"
#include "common/base/status_macros.h"
#include "kernels/count_codes/count_codes.h"
#include "worker/trainer/model/pass.h"

namespace hearth::trainer {

using kernels::QuantView;
using kernels::TensorView;

TensorOperand::TensorOperand(const TensorScaling& scaling,
                             int64_t site,
                             const OperandBuffers& buffers)
    : StoredForm(
          scaling.scales().Product(site, buffers.rows, buffers.plain.rows(), buffers.plain.cols()),
          scaling.scales().Product(
              site, buffers.columns, buffers.plain.cols(), buffers.plain.rows())),
      scaling_(scaling),
      site_(site),
      buffers_(buffers) {}

OperandTarget TensorOperand::Values(bool keep_plain, Forms forms) const {
  OperandTarget target;
  target.plain = keep_plain ? buffers_.plain : TensorView();
  target.quant = View(forms);
  return target;
}

QuantView TensorOperand::View(Forms forms) const {
  return scaling_.scales().View(site_, forms == Forms::kColumns ? nullptr : buffers_.rows,
                                forms == Forms::kRows ? nullptr : buffers_.columns);
}

QuantView TensorOperand::Measurement() const {
  QuantView measured = scaling_.scales().View(site_, nullptr, nullptr);
  measured.amax = amax();
  return measured;
}

absl::Status TensorOperand::Quantize(const kernels::Exec& exec,
                                     const TensorView& plain,
                                     const QuantView& quant) {
  const kernels::QuantizeTensor tensor = {plain, quant};
  kernels::QuantizeArgs args;
  args.tensors = absl::MakeConstSpan(&tensor, 1);
  return kernels::Quantize(exec, args);
}

absl::Status TensorOperand::Count(const kernels::Exec& exec, const Pass& pass) const {
  return pass.count ? scaling_.Count(exec, site_, Rows(buffers_.plain).values) : absl::OkStatus();
}

absl::Status TensorOperand::UpdateScale(const kernels::Exec& exec) const {
  return scaling_.scales().UpdateOne(exec, site_);
}

TensorScaling::TensorScaling(const ScalingContext& context)
    : context_(context), scales_(context.sites, *context.precision->recipe) {
  for (int k = 0; k < context_.size(); ++k) {
    const QuantisedWeight& weight = context_.weights[static_cast<size_t>(k)];
    weights_.push_back(
        {weight.weight, scales().View(context_.Site(Role::kW, k), weight.rows, weight.columns)});
  }
}

std::shared_ptr<const OperandForm> TensorScaling::Bind(Role role,
                                                       int k,
                                                       const OperandBuffers& buffers) const {
  const int64_t site = context_.Site(role, k);
  if (role != Role::kW) {
    return BindActivation(site, buffers);
  }
  const QuantisedWeight& weight = context_.weights[static_cast<size_t>(k)];
  return std::make_shared<StoredForm>(
      WeightRows(k),
      scales().Product(site, weight.columns, weight.weight.cols(), weight.weight.rows()));
}

ProductOperand TensorScaling::WeightRows(int k) const {
  const QuantisedWeight& weight = context_.weights[static_cast<size_t>(k)];
  return scales().Product(context_.Site(Role::kW, k), weight.rows, weight.weight.rows(),
                          weight.weight.cols());
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
  return kernels::Quantize(exec, args);
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
    HEARTH_RETURN_IF_ERROR(Count(exec, context_.Site(Role::kW, k), WeightRows(k).values));
  }
  return absl::OkStatus();
}

}  // namespace hearth::trainer
