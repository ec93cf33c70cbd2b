#include "worker/trainer/model/whole_weights.h"

#include <algorithm>

#include "common/base/status_macros.h"
#include "common/spec/plan/training_plan.h"
#include "kernels/cuda/device.h"

namespace hearth::trainer {

using kernels::TensorView;

WholeWeights::WholeWeights(const ParameterStore& parameters) : parameters_(parameters) {
  const std::vector<int64_t> offsets = spec::TensorOffsets(parameters.table(), parameters.shards());
  const spec::DType dtype = parameters.flat_weights().dtype;
  memory_.reset(new uint8_t[static_cast<size_t>(kernels::DTypeBytes(dtype, offsets.back()))]);
  flat_ = TensorView(static_cast<void*>(memory_.get()), dtype, {offsets.back()});
  for (int i = 0; i < parameters.size(); ++i) {
    TensorView& weight = weights_.emplace_back(parameters.weight(i));
    const spec::Parameter& parameter = parameters.table()[static_cast<size_t>(i)];
    if (parameters.weights_divided() || parameter.stored()) {
      weight.data = Slice(flat_, offsets[static_cast<size_t>(i)], weight.numel()).data;
    }
  }
}

absl::Status WholeWeights::Take(const kernels::Exec& exec, int unit) const {
  for (const ParameterStore::UnitPart& part : parameters_.UnitParts(unit)) {
    const TensorView to = Slice(flat_, part.begin, part.whole.numel());
    HEARTH_RETURN_IF_ERROR(kernels::Copy(exec, to.data, part.whole.data, to.bytes()));
  }
  return absl::OkStatus();
}

}  // namespace hearth::trainer
