// Which recipes precision.trial compares, and a job as it runs in one of them.
#pragma once

#include <string>
#include <vector>

#include "common/spec/recipe/recipe.h"
#include "hearth/v1/job.pb.h"

namespace hearth::spec {

// The job in another recipe, for a fair comparison: everything else stays, except what would be
// refused with this recipe: fallbacks it cannot follow, remedies without a fallback, an output
// projection in a format that does not go with it, a trial, and keys of `precision` that change
// nothing in it. A name that is not a recipe is kept, for validation to refuse. If `job` is
// resolved, so is the result except those keys, with the defaults of the job's own recipe.
v1::JobSpec InRecipe(const v1::JobSpec& job, const std::string& recipe);

// BF16, with which the others are compared, then the recipes of the job's ladder above BF16 in its
// order. Empty: the job has no trial. Expects a resolved spec.
std::vector<std::string> TrialRecipes(const v1::JobSpec& job);

}  // namespace hearth::spec
