#include "worker/trainer/objective/objective.h"

namespace hearth::trainer {
namespace {

constexpr ObjectiveDef kObjectives[] = {
    {spec::ObjectiveKind::kPretrain, &kernels::LinearCrossEntropy},
    {spec::ObjectiveKind::kSft, &kernels::LinearCrossEntropy},
};

}  // namespace

const ObjectiveDef* FindObjectiveDef(spec::ObjectiveKind kind) {
  for (const ObjectiveDef& row : kObjectives) {
    if (row.kind == kind) {
      return &row;
    }
  }
  return nullptr;
}

}  // namespace hearth::trainer
