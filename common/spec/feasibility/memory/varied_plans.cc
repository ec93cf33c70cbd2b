#include "common/spec/feasibility/memory/varied_plans.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "common/base/status_macros.h"
#include "common/spec/fields/conditions.h"
#include "common/spec/fields/rows.h"
#include "common/spec/optimizer/optimizer_table.h"
#include "common/spec/plan/offload.h"
#include "common/spec/recipe/recipe.h"

namespace hearth::spec {
namespace {

// kInvalidArgument: a state of whole matrices would be cut.
absl::Status CheckWhole(const v1::JobSpec& spec, ShardLevel shard) {
  if (FindWholeState(spec.optimizer()) == nullptr) {
    return absl::OkStatus();
  }
  bool cut = RowOf(shard).optimizer;
  for (const OffloadRow& row : OffloadRows()) {
    cut = cut || ((spec.offload().*row.get)() && !MayBeAway(spec, row));
  }
  return cut ? absl::InvalidArgumentError("optimizer.state: of whole matrices, which nothing cuts")
             : absl::OkStatus();
}

}  // namespace

void SetWorkers(int workers, v1::JobSpec& job_spec) {
  v1::ResourceSpec& resources = *job_spec.mutable_resources();
  const int fewest = resources.min_workers();
  if (resources.has_min_workers() &&
      (fewest > workers || fewest == std::max(1, resources.workers()))) {
    resources.set_min_workers(workers);
  }
  resources.set_workers(workers);
}

VariedPlans::VariedPlans(v1::JobSpec job_spec, int gpus) : spec_(std::move(job_spec)), gpus_(gpus) {
  spec_.mutable_resources()->set_device("cuda");
  SetWorkers(gpus, spec_);
  const int64_t sequence = spec_.data().sequence_length();
  const int64_t own = spec_.batch().micro_batch_size();
  const int64_t limit = own > 0 ? own : std::max<int64_t>(1, kAutoMaxMicroBatchTokens / sequence);
  if (spec_.batch().has_global_batch_tokens()) {
    const int64_t tokens = spec_.batch().global_batch_tokens();
    candidates_ = NeedsOneMicroBatch(spec_) ? OneMicroBatchEach(tokens, sequence, gpus)
                                            : MicroBatchCandidates(tokens, sequence, gpus, limit);
  } else {
    candidates_ = PowerOfTwoCandidates(sequence);
    std::erase_if(candidates_, [&](int64_t size) { return size > limit; });
  }
  if (own > 0 && (candidates_.empty() || candidates_.front() != own)) {
    candidates_.insert(candidates_.begin(), own);
  }
  const Recipe* const recipe = RecipeFor(spec_.precision());
  const int64_t unit = recipe != nullptr ? recipe->extent_unit() : 1;
  std::erase_if(candidates_, [&](int64_t size) { return size * sequence % unit != 0; });
}

Variation VariedPlans::AsIs() const {
  return {.recipe = spec_.precision().recipe(),
          .recompute = spec_.recompute(),
          .kept = ChoiceOf(spec_),
          .micro_batch = spec_.batch().micro_batch_size(),
          .shard = ShardLevels(ChoiceOf(spec_)).front(),
          .offload = HostClassesOf(spec_.offload())};
}

std::vector<ShardLevel> VariedPlans::ShardLevels(const StateChoice& kept) const {
  return AllowedShardLevels(WithChoice(spec_, kept), gpus_);
}

absl::StatusOr<ShardLevel> VariedPlans::SmallestLevel(Variation variation) {
  ShardLevel smallest = ShardLevel::kOff;
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const ShardLevel level : ShardLevels(variation.kept)) {
    variation.shard = level;
    HEARTH_ASSIGN_OR_RETURN(const VariedPlan* const plan, Get(variation));
    if (plan->plan.arena_bytes() < least) {
      least = plan->plan.arena_bytes();
      smallest = level;
    }
  }
  return smallest;
}

absl::StatusOr<const VariedPlan*> VariedPlans::Get(const Variation& variation) {
  const auto it = plans_.find(variation);
  if (it != plans_.end()) {
    return &it->second;
  }
  HEARTH_RETURN_IF_ERROR(Allowed(variation));
  VariedPlan made;
  made.spec = SpecWith({variation.kept, variation.settings, variation.micro_batch});
  made.spec.mutable_precision()->set_recipe(variation.recipe);
  made.spec.set_recompute(variation.recompute);
  SetOffload(variation.offload, made.spec);
  HEARTH_RETURN_IF_ERROR(CheckWhole(made.spec, variation.shard));
  HEARTH_ASSIGN_OR_RETURN(made.job, MakePlanInputs(made.spec, variation.micro_batch, /*threads=*/1,
                                                   /*training=*/true, gpus_, variation.shard));
  HEARTH_ASSIGN_OR_RETURN(made.plan, PlanTraining(made.job->options));
  return &plans_.emplace(variation, std::move(made)).first->second;
}

v1::JobSpec VariedPlans::SpecWith(const Formats& formats) const {
  v1::JobSpec spec = WithChoice(spec_, formats.kept);
  for (const FieldSetting& setting : formats.settings) {
    SetPlace(spec, setting.path, setting.value);
  }
  if (formats.micro_batch > 0) {
    spec.mutable_batch()->set_micro_batch_size(static_cast<int32_t>(formats.micro_batch));
  }
  return spec;
}

absl::Status VariedPlans::Check(const Formats& formats) const {
  const v1::JobSpec changed = SpecWith(formats);
  for (const FieldSetting& setting : formats.settings) {
    const std::string& when = RowOf(*FindPlace(changed, setting.path).field).applies_when();
    if (!when.empty() && Evaluate(when, changed) == Truth::kNo) {
      return absl::InvalidArgumentError(setting.path + ": " + WhyNot(when, changed));
    }
  }
  return CheckChanged(SpecWith({ChoiceOf(spec_), {}, formats.micro_batch}), changed);
}

const absl::Status& VariedPlans::Allowed(const Variation& variation) {
  // What the rules say of settings depends on the micro-batches of a step, of a choice it does not.
  const Formats formats = {variation.kept, variation.settings,
                           variation.settings.empty() ? 0 : variation.micro_batch};
  const auto [it, first] = allowed_.try_emplace(formats);
  if (first && (formats.kept != ChoiceOf(spec_) || !formats.settings.empty())) {
    it->second = Check(formats);
  }
  return it->second;
}

absl::StatusOr<int64_t> VariedPlans::Arena(Variation variation, int64_t micro_batch) {
  variation.micro_batch = micro_batch;
  HEARTH_ASSIGN_OR_RETURN(const VariedPlan* const plan, Get(variation));
  return plan->plan.arena_bytes();
}

absl::StatusOr<int64_t> VariedPlans::LargestCandidate(Variation variation, const Room& room) {
  // The first that fits, by halving: larger batches take more.
  size_t low = 0;
  size_t high = candidates_.size();
  while (low < high) {
    const size_t middle = (low + high) / 2;
    variation.micro_batch = candidates_[middle];
    HEARTH_ASSIGN_OR_RETURN(const VariedPlan* const plan, Get(variation));
    const bool holds = room.Holds(*plan);
    (holds ? high : low) = holds ? middle : middle + 1;
  }
  return low < candidates_.size() ? candidates_[low] : 0;
}

absl::StatusOr<int64_t> VariedPlans::Largest(const Variation& variation, int64_t bytes) {
  // Batches of a length that the recipe's products can take.
  const Recipe* const recipe = FindRecipe(variation.recipe);
  int64_t unit = 1;
  while (recipe != nullptr && unit * spec_.data().sequence_length() % recipe->extent_unit() != 0) {
    ++unit;
  }
  HEARTH_ASSIGN_OR_RETURN(const int64_t one, Arena(variation, unit));
  if (one > bytes) {
    return 0;
  }
  // Nearly a line in the batch: guesses along it close in on the last that fits.
  constexpr int64_t kMost = int64_t{1} << 24;
  int64_t low = 1;  // fits
  int64_t low_bytes = one;
  int64_t high = kMost;  // does not
  int64_t guess = 9;
  for (int tries = 0; tries < 16 && high > low + 1; ++tries) {
    HEARTH_ASSIGN_OR_RETURN(const int64_t arena, Arena(variation, unit * guess));
    const int64_t slope = std::max<int64_t>(1, (arena - low_bytes) / (guess - low));
    if (arena <= bytes) {
      low = guess;
      low_bytes = arena;
    } else {
      high = guess;
    }
    guess = std::clamp(low + (bytes - low_bytes) / slope, low + 1, high - 1);
  }
  return unit * low;
}

}  // namespace hearth::spec
