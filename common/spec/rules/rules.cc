#include "common/spec/rules/rules.h"

namespace hearth::spec {
namespace {

using Rule = void (*)(const v1::JobSpec& job, Checker& check);

constexpr Rule kRules[] = {CheckLabels,    CheckObjective, CheckBatch,    CheckRecipe,
                           CheckFallback,  CheckJobLayers, CheckRemedies, CheckTrial,
                           CheckOptimizer, CheckSchedule,  CheckWorkers,  CheckEvaluations};

}  // namespace

void CheckJobRules(const v1::JobSpec& job, Checker& check) {
  for (const Rule rule : kRules) {
    rule(job, check);
  }
}

}  // namespace hearth::spec
