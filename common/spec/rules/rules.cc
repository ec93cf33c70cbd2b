#include "common/spec/rules/rules.h"

#include "absl/types/span.h"
#include "common/spec/objective/objective_table.h"

namespace hearth::spec {
namespace {

using Rule = void (*)(const v1::JobSpec& job, Checker& check);

// Rules of all jobs, of jobs that train, and of the others.
constexpr Rule kRules[] = {CheckLabels, CheckWorkers, CheckStart, CheckNotify};
constexpr Rule kTrainingRules[] = {CheckObjective, CheckBatch,    CheckRecipe,     CheckFallback,
                                   CheckJobLayers, CheckRemedies, CheckTrial,      CheckOptimizer,
                                   CheckWeights,   CheckSchedule, CheckEvaluations};
constexpr Rule kOtherRules[] = {CheckEvaluate};

}  // namespace

void CheckJobRules(const v1::JobSpec& job, Checker& check) {
  for (const Rule rule : kRules) {
    rule(job, check);
  }
  const absl::Span<const Rule> rules =
      Trains(job) ? absl::MakeConstSpan(kTrainingRules) : absl::MakeConstSpan(kOtherRules);
  for (const Rule rule : rules) {
    rule(job, check);
  }
}

}  // namespace hearth::spec
