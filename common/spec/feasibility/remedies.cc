#include "common/spec/feasibility/remedies.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/spec/plan/parameter_table.h"
#include "common/spec/recipe/recipe.h"

namespace hearth::spec {
namespace {

constexpr const char* kNarrowGradients = "bf16";

std::string Str(std::string_view text) {
  return std::string(text);
}

// What this version cannot do: bytes that it would save of each parameter.
struct UnbuiltRemedy {
  const char* change;
  double bytes_per_parameter;
};
constexpr UnbuiltRemedy kUnbuilt[] = {
    {"optimizer states in the host's memory", 8},
};

// Levels from the job's own on.
std::vector<std::string> LevelsFrom(const std::string& recompute) {
  std::vector<std::string> levels;
  Recompute own = Recompute::kNone;
  ParseRecompute(recompute, own);
  for (int i = static_cast<int>(own); i < kRecomputeCount; ++i) {
    levels.push_back(Str(RecomputeName(static_cast<Recompute>(i))));
  }
  return levels;
}

class Chooser {
 public:
  Chooser(JobPlans& plans, const GpuRow& gpu, const Calibration& calibration, int64_t device_bytes)
      : plans_(plans),
        gpu_(gpu),
        calibration_(calibration),
        bytes_(PlannableBytes("cuda", device_bytes, plans.gpus())) {}

  absl::StatusOr<Choice> Run() {
    HEARTH_RETURN_IF_ERROR(StartAsIs());
    Variation base = choice_.as_is;
    const bool refused = Refused(base.recipe);
    if (refused) {
      base.recipe = Str(PlainRecipe().name);
      if (Refused(base.recipe)) {  // such a GPU is planned for by arithmetic alone
        base.recipe = choice_.as_is.recipe;
      }
    }
    HEARTH_ASSIGN_OR_RETURN(const bool as_is, FitsSomehow(base));
    if (!as_is) {
      // The smallest change first: other levels and batches, then gradients of two bytes.
      HEARTH_RETURN_IF_ERROR(Search(base));
      if (!best_.has_value()) {
        base.gradients = kNarrowGradients;
        HEARTH_RETURN_IF_ERROR(Search(base));
      }
    }
    if (best_.has_value()) {
      choice_.fits = true;
      choice_.variation = *best_;
      return Describe(refused && best_->recipe != choice_.as_is.recipe);
    }
    choice_.variation = choice_.as_is;
    return Refuse(base);
  }

 private:
  absl::Status StartAsIs() {
    choice_.as_is = plans_.AsIs();
    if (choice_.as_is.micro_batch == 0) {
      open_ = true;
      if (plans_.candidates().empty()) {
        return absl::InvalidArgumentError(absl::StrCat(
            "no micro-batch divides batch.global_batch_tokens among ", plans_.gpus(), " GPUs"));
      }
      // The smallest, to judge the job as it is; FitsSomehow looks for the largest that fits.
      choice_.as_is.micro_batch = plans_.candidates().back();
    }
    return absl::OkStatus();
  }

  bool Refused(const std::string& name) const {
    const Recipe* const recipe = FindRecipe(name);
    return recipe == nullptr || RecipeOn(gpu_, *recipe).execution == Execution::kNone;
  }

  // Whether the job fits with its own settings, but for what it leaves open.
  absl::StatusOr<bool> FitsSomehow(Variation base) {
    for (const int shards : plans_.Shards()) {
      base.shards = shards;
      int64_t batch = base.micro_batch;
      if (open_) {
        HEARTH_ASSIGN_OR_RETURN(batch, plans_.LargestCandidate(base, bytes_));
      } else {
        HEARTH_ASSIGN_OR_RETURN(const VariedPlan* const plan, plans_.Get(base));
        batch = plan->plan.arena_bytes() <= bytes_ ? batch : 0;
      }
      if (batch > 0) {
        base.micro_batch = batch;
        best_ = base;
        return true;
      }
    }
    return false;
  }

  // The fastest of all levels with the largest batch that fits; where times are not known, the
  // first level.
  absl::Status Search(Variation base) {
    double best_seconds = std::numeric_limits<double>::infinity();
    for (const std::string& level : LevelsFrom(choice_.as_is.recompute)) {
      for (const int shards : plans_.Shards()) {
        base.recompute = level;
        base.shards = shards;
        HEARTH_ASSIGN_OR_RETURN(const int64_t batch, plans_.LargestCandidate(base, bytes_));
        if (batch == 0) {
          continue;
        }
        Variation fitting = base;
        fitting.micro_batch = batch;
        HEARTH_ASSIGN_OR_RETURN(const VariedPlan* const plan, plans_.Get(fitting));
        const StepTime time = TimeOfPlan(*plan, plans_.gpus(), gpu_, calibration_);
        if (!best_.has_value() || (time.known() && time.seconds < best_seconds)) {
          best_ = fitting;
          best_seconds = time.known() ? time.seconds : best_seconds;
        }
        // Shards() begins with the preferred one: the first that fits is taken.
        break;
      }
    }
    return absl::OkStatus();
  }

  void AddChange(const char* field, const std::string& value, const std::string& why) {
    choice_.changes.push_back({field, value});
    choice_.reasons.push_back(absl::StrCat("change: ", field, ": ", value, why));
  }

  Choice Describe(bool other_recipe) {
    const Variation& was = choice_.as_is;
    const Variation& is = choice_.variation;
    if (other_recipe) {
      AddChange(
          "precision.recipe", is.recipe,
          absl::StrCat(" (", was.recipe, ": ", RecipeOn(gpu_, *FindRecipe(was.recipe)).why, ")"));
    }
    if (is.recompute != was.recompute) {
      AddChange("recompute", is.recompute, absl::StrCat(" (was ", was.recompute, ")"));
    }
    if (is.micro_batch != was.micro_batch && !open_) {
      AddChange("batch.micro_batch_size", absl::StrCat(is.micro_batch),
                absl::StrCat(" (was ", was.micro_batch, "; as many tokens a step)"));
    }
    if (is.gradients != was.gradients) {
      AddChange("gradients.dtype", is.gradients, " (two bytes a parameter instead of four)");
    }
    if (open_) {
      // Left open, so it is no change; remedies are compared with the job at this size.
      choice_.as_is.micro_batch = is.micro_batch;
    }
    return std::move(choice_);
  }

  // Nothing fits: what the smallest would take.
  absl::StatusOr<Choice> Refuse(Variation base) {
    base.recompute = Str(RecomputeNames().back());
    base.micro_batch = plans_.candidates().empty() ? 1 : plans_.candidates().back();
    base.shards = plans_.Shards().back();
    base.gradients = kNarrowGradients;
    HEARTH_ASSIGN_OR_RETURN(const VariedPlan* const plan, plans_.Get(base));
    choice_.reasons.push_back(absl::StrFormat(
        "with all that this version can change (recompute: %s, micro-batch %d, gradients in bf16) "
        "it still takes %.2f GB",
        base.recompute, base.micro_batch,
        1e-9 * static_cast<double>(plan->plan.arena_bytes() + OverheadBytes(plans_.gpus()))));
    return std::move(choice_);
  }

  JobPlans& plans_;
  const GpuRow& gpu_;
  const Calibration& calibration_;
  const int64_t bytes_;
  bool open_ = false;  // the job leaves its micro-batch open
  Choice choice_;
  std::optional<Variation> best_;
};

}  // namespace

MatrixFormat FormatOnGpu(const GpuRow& gpu, const VariedPlan& plan) {
  const RecipeOnGpu on = RecipeOn(gpu, *plan.job->options.recipe);
  return on.format;
}

StepTime TimeOfPlan(const VariedPlan& plan,
                    int gpus,
                    const GpuRow& gpu,
                    const Calibration& calibration) {
  const TrainingPlanOptions& options = plan.job->options;
  if (options.recipe->activation == DType::kF32) {
    return {.unknown =
                absl::StrCat("configs/gpus.yaml has no rates for ", Str(options.recipe->name))};
  }
  const absl::StatusOr<BatchPlan> batch = ResolveBatchPlan(plan.spec, options.micro_batch, gpus);
  if (!batch.ok()) {
    return {.unknown = std::string(batch.status().message())};
  }
  const RecipeOnGpu on = RecipeOn(gpu, *options.recipe);
  return TimeOf(WorkOf(options, on.format), gpu, calibration,
                {.micro_batches = static_cast<double>(batch->rounds()),
                 .gpus = gpus,
                 .emulated = on.execution == Execution::kEmulated});
}

absl::StatusOr<Choice> ChooseVariation(JobPlans& plans,
                                       const GpuRow& gpu,
                                       const Calibration& calibration,
                                       int64_t device_bytes) {
  return Chooser(plans, gpu, calibration, device_bytes).Run();
}

absl::StatusOr<std::vector<LevelRow>> LevelsOf(JobPlans& plans,
                                               const Variation& variation,
                                               const GpuRow& gpu,
                                               const Calibration& calibration,
                                               int64_t device_bytes) {
  const int64_t bytes = PlannableBytes("cuda", device_bytes, plans.gpus());
  std::vector<LevelRow> rows;
  for (const std::string_view level : RecomputeNames()) {
    Variation at = variation;
    at.recompute = Str(level);
    HEARTH_ASSIGN_OR_RETURN(const VariedPlan* const plan, plans.Get(at));
    LevelRow& row = rows.emplace_back();
    row.recompute = at.recompute;
    row.activation_bytes = ActivationBytesPerToken(plan->plan, plan->job->options);
    row.total_bytes = plan->plan.arena_bytes() + OverheadBytes(plans.gpus());
    row.fits = plan->plan.arena_bytes() <= bytes;
    HEARTH_ASSIGN_OR_RETURN(row.largest_micro_batch, plans.Largest(at, bytes));
    row.step_seconds = TimeOfPlan(*plan, plans.gpus(), gpu, calibration).seconds;
  }
  return rows;
}

absl::StatusOr<std::vector<RemedyRow>> RemediesOf(JobPlans& plans,
                                                  const Variation& as_is,
                                                  const GpuRow& gpu,
                                                  const Calibration& calibration) {
  HEARTH_ASSIGN_OR_RETURN(const VariedPlan* const before, plans.Get(as_is));
  const StepTime time_before = TimeOfPlan(*before, plans.gpus(), gpu, calibration);
  std::vector<std::pair<std::string, Variation>> tries;
  const auto add = [&](const std::string& change, auto apply) {
    Variation changed = as_is;
    apply(changed);
    if (changed != as_is) {
      tries.emplace_back(change, changed);
    }
  };
  for (const std::string& level : LevelsFrom(as_is.recompute)) {
    add("recompute: " + level, [&](Variation& v) { v.recompute = level; });
  }
  if (as_is.micro_batch % 2 == 0) {
    add(absl::StrCat("batch.micro_batch_size: ", as_is.micro_batch / 2),
        [](Variation& v) { v.micro_batch /= 2; });
  }
  add("gradients.dtype: bf16", [](Variation& v) { v.gradients = kNarrowGradients; });
  const Recipe& narrow = TensorScaledRecipe();
  if (RecipeOn(gpu, narrow).execution == Execution::kNative && as_is.recipe == PlainRecipe().name) {
    add("precision.recipe: " + Str(narrow.name),
        [&narrow](Variation& v) { v.recipe = Str(narrow.name); });
  }
  add("parallel.shard_optimizer: on", [&](Variation& v) { v.shards = plans.gpus(); });
  std::vector<RemedyRow> rows;
  for (const auto& [change, variation] : tries) {
    const absl::StatusOr<const VariedPlan*> after = plans.Get(variation);
    if (!after.ok()) {
      continue;  // this job cannot have it: sizes that FP8 products cannot take
    }
    const StepTime time = TimeOfPlan(**after, plans.gpus(), gpu, calibration);
    rows.push_back({.change = change,
                    .saved_bytes = before->plan.arena_bytes() - (*after)->plan.arena_bytes(),
                    .time_ratio = time.known() && time_before.known()
                                      ? time.seconds / time_before.seconds
                                      : 0});
  }
  const auto parameters = static_cast<double>(CountParameters(before->job->options.shape));
  for (const UnbuiltRemedy& unbuilt : kUnbuilt) {
    rows.push_back({.change = unbuilt.change,
                    .saved_bytes = static_cast<int64_t>(unbuilt.bytes_per_parameter * parameters /
                                                        as_is.shards),
                    .built = false});
  }
  return rows;
}

}  // namespace hearth::spec
