#include "worker/trainer/objective/objective.h"

#include "common/base/table_rows.h"

namespace hearth::trainer {
namespace {

constexpr ObjectiveDef kObjectives[] = {
    {spec::ObjectiveKind::kPretrain, &kernels::LinearCrossEntropy},
    {spec::ObjectiveKind::kSft, &kernels::LinearCrossEntropy},
};

}  // namespace

const ObjectiveDef* FindObjectiveDef(spec::ObjectiveKind kind) {
  return FindRow(kObjectives, &ObjectiveDef::kind, kind);
}

}  // namespace hearth::trainer
