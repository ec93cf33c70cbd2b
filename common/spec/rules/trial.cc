#include "common/spec/fields/rows.h"
#include "common/spec/recipe/precision.h"
#include "common/spec/recipe/recipe.h"
#include "common/spec/rules/rules.h"
#include "common/spec/violations/text.h"

namespace hearth::spec {

void CheckTrial(const v1::JobSpec& job, Checker& check) {
  const v1::PrecisionSpec& p = job.precision();
  if (!p.has_trial()) {
    return;
  }
  const Recipe* recipe = FindRecipe(p.recipe());
  if (recipe != nullptr && !recipe->quantised()) {
    check.Add("precision.trial",
              Text("compares a quantised recipe with bf16; precision.recipe is ", p.recipe()));
  }
  const std::string field = "precision.trial.steps";
  const int64_t steps = p.trial().steps();
  if (!InRange(p.trial(), v1::PrecisionTrialSpec::kStepsFieldNumber) || job.train().steps() < 1) {
    return;
  }
  if (steps > job.train().steps()) {
    check.Add(field, Text(steps, " is more than train.steps ", job.train().steps()));
  } else if (steps <= p.warmup_steps()) {
    check.Add(field, Text(steps, " is not more than precision.warmup_steps ", p.warmup_steps(),
                          ", which are in BF16 in any recipe"));
  } else if (recipe != nullptr && ResolvePrecision(job, *recipe, 1).tail_step <= steps) {
    check.Add(field, Text(steps, " reaches into precision.bf16_tail ", p.bf16_tail(),
                          ", which is in BF16 in any recipe"));
  }
}

}  // namespace hearth::spec
