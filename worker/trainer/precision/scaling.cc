#include "worker/trainer/precision/scaling.h"

#include "worker/trainer/precision/block/block_scaling.h"
#include "worker/trainer/precision/per_tensor/tensor_scaling.h"

namespace hearth::trainer {

absl::Status Scaling::Reset(const kernels::Exec& /*exec*/) const {
  return absl::OkStatus();
}

void Scaling::BindStep(uint64_t /*seed*/, const kernels::StepInputs* /*position*/) {}

absl::Status Scaling::BeginStep(const kernels::Exec& /*exec*/) const {
  return absl::OkStatus();
}

absl::Status Scaling::CountWeights(const kernels::Exec& /*exec*/) const {
  return absl::OkStatus();
}

std::unique_ptr<Scaling> MakeScaling(const ScalingContext& context) {
  if (context.weights.empty()) {
    return nullptr;
  }
  switch (context.precision->recipe->fprop.a.scaling) {
    case spec::Scaling::kTensorDelayed:
    case spec::Scaling::kTensorCurrent:
      return std::make_unique<TensorScaling>(context);
    case spec::Scaling::kBlock:
      return std::make_unique<BlockScaling>(context);
    case spec::Scaling::kNone:
      break;
  }
  return nullptr;
}

}  // namespace hearth::trainer
