#include "worker/trainer/precision/per_tensor/tensor_scaling.h"

#include "absl/types/span.h"
#include "common/base/status_macros.h"
#include "kernels/count_codes/count_codes.h"
#include "worker/trainer/model/pass.h"

namespace hearth::trainer {

using kernels::QuantView;
using kernels::TensorView;

namespace {

// x or dy.
class TensorOperand : public StoredForm {
 public:
  TensorOperand(const TensorScaling& scaling, int64_t site, const OperandBuffers& b)
      : StoredForm(scaling.scales().Product(site, b.rows, b.plain.rows(), b.plain.cols()),
                   scaling.scales().Product(site, b.columns, b.plain.cols(), b.plain.rows())),
        scaling_(scaling),
        site_(site),
        buffers_(b) {}

  OperandTarget Target(const Pass& pass,
                       bool keep_plain,
                       bool /*blocks*/,
                       Forms forms) const override {
    // That of an earlier step, or forward's.
    const bool scale_is_known = scaling_.delayed() || forms == Forms::kColumns;
    OperandTarget target;
    target.plain = keep_plain || !scale_is_known ? buffers_.plain : TensorView();
    target.quant = scale_is_known ? Values(forms) : scaling_.scales().View(site_, nullptr, nullptr);
    target.quant.amax = Measured(pass, forms);
    return target;
  }

  absl::Status Settle(const kernels::Exec& exec,
                      const Pass& pass,
                      const OperandTarget& /*target*/,
                      Forms forms) const override {
    if (forms == Forms::kColumns) {
      return absl::OkStatus();  // the producer wrote them with forward's scale, and forward counted
    }
    if (scaling_.delayed()) {
      return Count(exec, pass);
    }
    HEARTH_RETURN_IF_ERROR(scaling_.scales().UpdateOne(exec, site_));
    HEARTH_RETURN_IF_ERROR(Quantize(exec, buffers_.plain, Values(forms)));
    return Count(exec, pass);
  }

  absl::Status Make(const kernels::Exec& exec,
                    const Pass& pass,
                    const TensorView& plain,
                    Forms forms) const override {
    QuantView quant = Values(forms);
    quant.amax = Measured(pass, forms);
    if (!scaling_.delayed() && quant.amax != nullptr) {
      // Its own scale comes first, from a pass over the tensor that measures it.
      QuantView measured;
      measured.dtype = quant.dtype;
      measured.amax = quant.amax;
      HEARTH_RETURN_IF_ERROR(Quantize(exec, plain, measured));
      HEARTH_RETURN_IF_ERROR(scaling_.scales().UpdateOne(exec, site_));
      // The maximum is recorded already; a second pass would count it again.
      quant.amax = nullptr;
    }
    HEARTH_RETURN_IF_ERROR(Quantize(exec, plain, quant));
    return forms == Forms::kColumns ? absl::OkStatus() : Count(exec, pass);
  }

 private:
  QuantView Values(Forms forms) const {
    return scaling_.scales().View(site_, forms == Forms::kColumns ? nullptr : buffers_.rows,
                                  forms == Forms::kRows ? nullptr : buffers_.columns);
  }

  // Where this pass records the magnitude; null: it does not. A scale of the tensor's own needs it
  // always; for later steps, magnitudes of evaluation are not the training's.
  float* Measured(const Pass& pass, Forms forms) const {
    const bool measured = scaling_.delayed() ? pass.record : true;
    return measured && forms != Forms::kColumns ? scaling_.scales().sites().At(site_).amax
                                                : nullptr;
  }

  static absl::Status Quantize(const kernels::Exec& exec,
                               const TensorView& plain,
                               const QuantView& quant) {
    const kernels::QuantizeTensor tensor = {plain, quant};
    kernels::QuantizeArgs args;
    args.tensors = absl::MakeConstSpan(&tensor, 1);
    return kernels::Quantize(exec, args);
  }

  absl::Status Count(const kernels::Exec& exec, const Pass& pass) const {
    return pass.count ? scaling_.Count(exec, site_, Rows(buffers_.plain).values) : absl::OkStatus();
  }

  const TensorScaling& scaling_;
  int64_t site_;
  OperandBuffers buffers_;
};

}  // namespace

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
    return std::make_shared<TensorOperand>(*this, site, buffers);
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

absl::Status TensorScaling::UpdateActivations(const kernels::Exec& exec,
                                              const int32_t* skip) const {
  return delayed() ? scales().UpdateActivations(exec, skip) : absl::OkStatus();
}

absl::Status TensorScaling::UpdateWeights(const kernels::Exec& exec, const int32_t* skip) const {
  return scales().UpdateWeights(exec, skip);
}

absl::Status TensorScaling::QuantizeWeights(const kernels::Exec& exec,
                                            const int32_t* skip,
                                            uint64_t* counter) const {
  kernels::QuantizeArgs args;
  args.tensors = weights_;
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

absl::Status TensorScaling::CountWeights(const kernels::Exec& exec) const {
  for (int k = 0; k < context_.size(); ++k) {
    HEARTH_RETURN_IF_ERROR(Count(exec, context_.Site(Role::kW, k), WeightRows(k).values));
  }
  return absl::OkStatus();
}

}  // namespace hearth::trainer
