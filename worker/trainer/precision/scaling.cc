#include "worker/trainer/precision/scaling.h"

#include "common/base/table_rows.h"
#include "worker/trainer/precision/block/block_scaling.h"
#include "worker/trainer/precision/per_tensor/current_scaling.h"
#include "worker/trainer/precision/per_tensor/delayed_scaling.h"

namespace hearth::trainer {
namespace {

template <typename T>
std::unique_ptr<Scaling> New(const ScalingContext& context) {
  return std::make_unique<T>(context);
}

// Every way of scaling and its implementation.
struct ScalingRow {
  spec::Scaling scaling;
  std::unique_ptr<Scaling> (*make)(const ScalingContext& context);
};
constexpr ScalingRow kScalings[] = {
    {spec::Scaling::kTensorDelayed, New<DelayedScaling>},
    {spec::Scaling::kTensorCurrent, New<CurrentScaling>},
    {spec::Scaling::kBlock, New<BlockScaling>},
};

}  // namespace

FormOperands OperandsOf(const spec::Recipe& recipe, Role role) {
  switch (role) {
    case Role::kX:
      return {recipe.fprop.a, recipe.wgrad.a};
    case Role::kDy:
      return {recipe.dgrad.a, recipe.wgrad.b};
    case Role::kW:
      break;
  }
  return {recipe.fprop.b, recipe.dgrad.b};
}

absl::Status Scaling::Reset(const kernels::Exec& /*exec*/) const {
  return absl::OkStatus();
}

void Scaling::BindStep(uint64_t /*seed*/, const kernels::StepInputs* /*position*/) {}

absl::Status Scaling::BeginStep(const kernels::Exec& /*exec*/,
                                const WeightRange& /*weights*/) const {
  return absl::OkStatus();
}

absl::Status Scaling::UpdateActivations(const kernels::Exec& /*exec*/,
                                        const int32_t* /*skip*/) const {
  return absl::OkStatus();
}

absl::Status Scaling::CountWeights(const kernels::Exec& /*exec*/,
                                   const WeightRange& /*weights*/) const {
  return absl::OkStatus();
}

std::unique_ptr<Scaling> MakeScaling(const ScalingContext& context) {
  if (context.weights.empty()) {
    return nullptr;
  }
  // All quantised operands of a recipe have one way of scaling; RecipesTest keeps it so.
  for (const spec::Operand* operand : context.precision->recipe->operands()) {
    const ScalingRow* row = FindRow(kScalings, &ScalingRow::scaling, operand->scaling);
    if (row != nullptr) {
      return row->make(context);
    }
  }
  return nullptr;
}

}  // namespace hearth::trainer
