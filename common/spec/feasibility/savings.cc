#include "common/spec/feasibility/savings.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/spec/feasibility/largest.h"
#include "common/spec/fields/conditions.h"
#include "common/spec/fields/memory_tiers.h"
#include "common/spec/fields/rows.h"
#include "common/spec/plan/offload.h"
#include "common/spec/recipe/recipe.h"

namespace hearth::spec {
namespace {

std::string Str(std::string_view text) {
  return std::string(text);
}

// Changes that leave the arithmetic of a step as it is, except for the order of sums.
constexpr const char* kSameLoss = "same";

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

// Fields beside the StateChoice that save memory, each tried with every value that is named.
constexpr const char* kSettings[] = {"weights.store", "gradients.store", "optimizer.fused"};

std::vector<FieldSetting> SettingsOf(const v1::JobSpec& job) {
  std::vector<FieldSetting> settings;
  for (const char* const path : kSettings) {
    const google::protobuf::FieldDescriptor& field = *FindPlace(job, path).field;
    std::vector<std::string_view> values = NamesOf(RowOf(field));
    if (field.cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_BOOL) {
      values = {"true"};
    }
    for (const std::string_view value : values) {
      if (ValueText(job, path) != std::string(value)) {
        settings.push_back({path, std::string(value)});
      }
    }
  }
  return settings;
}

class Chooser {
 public:
  Chooser(VariedPlans& plans, const GpuRow& gpu, const Calibration& calibration, const Room& room)
      : plans_(plans), gpu_(gpu), calibration_(calibration), room_(room) {}

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
      HEARTH_RETURN_IF_ERROR(SearchChoices(base));
    }
    if (best_.has_value()) {
      choice_.fits = choice_.fits_gpu = true;
      choice_.variation = *best_;
      return Describe(refused && best_->recipe != choice_.as_is.recipe);
    }
    choice_.variation = choice_.as_is;
    return Refuse();
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

  // Whether the job fits with its own settings, except for what it leaves open.
  absl::StatusOr<bool> FitsSomehow(Variation base) {
    for (const ShardLevel shard : plans_.ShardLevels(base.kept)) {
      base.shard = shard;
      int64_t batch = base.micro_batch;
      if (open_) {
        HEARTH_ASSIGN_OR_RETURN(batch, plans_.LargestCandidate(base, room_));
      } else {
        HEARTH_ASSIGN_OR_RETURN(const VariedPlan* const plan, plans_.Get(base));
        batch = room_.Holds(*plan) ? batch : 0;
      }
      if (batch > 0) {
        base.micro_batch = batch;
        best_ = base;
        return true;
      }
    }
    return false;
  }

  // The smallest change of the loss first: other levels and batches alone, then with more in the
  // host's memory, then other formats.
  absl::Status SearchChoices(Variation base) {
    for (const StateChoice& choice : ChoicesByLoss(plans_.spec())) {
      base.kept = choice;
      Variation least = base;
      least.recompute = Str(RecomputeNames().back());
      least.micro_batch = plans_.candidates().empty() ? 1 : plans_.candidates().back();
      const absl::StatusOr<ShardLevel> level = plans_.SmallestLevel(least);
      if (!level.ok()) {
        if (choice == choice_.as_is.kept) {
          return level.status();
        }
        continue;  // the rules refuse it
      }
      least.shard = *level;
      HEARTH_ASSIGN_OR_RETURN(const VariedPlan* const plan, plans_.Get(least));
      const int64_t bytes = plan->plan.arena_bytes();
      if (!least_.has_value() || bytes < least_bytes_) {
        least_ = least;
        least_bytes_ = bytes;
      }
      best_seconds_ = std::numeric_limits<double>::infinity();
      HEARTH_RETURN_IF_ERROR(bytes <= room_.device ? Search(base) : absl::OkStatus());
      if (!best_.has_value() && choice == choice_.as_is.kept) {
        HEARTH_RETURN_IF_ERROR(SearchOffloads(base));
      }
      if (best_.has_value()) {
        break;
      }
    }
    return absl::OkStatus();
  }

  // The fastest with more in the host's memory, whose size is known. Not a row that would move
  // nothing: the rules refuse it.
  absl::Status SearchOffloads(const Variation& base) {
    if (room_.host <= 0) {
      return absl::OkStatus();
    }
    std::vector<HostClasses> sets = {base.offload};
    for (const OffloadRow& row : OffloadRows()) {
      if (!MayBeAway(plans_.spec(), row)) {
        continue;
      }
      HEARTH_ASSIGN_OR_RETURN(const bool moves, MovesMore(base, row.away));
      for (size_t i = 0, before = sets.size(); moves && i < before; ++i) {
        sets.push_back(sets[i]);
        sets.back().Add(row.away);
      }
    }
    for (size_t i = 1; i < sets.size(); ++i) {
      Variation away = base;
      away.offload = sets[i];
      HEARTH_RETURN_IF_ERROR(Search(away));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<bool> MovesMore(Variation base, BufferClass away) {
    HEARTH_ASSIGN_OR_RETURN(const VariedPlan* const here, plans_.Get(base));
    base.offload.Add(away);
    HEARTH_ASSIGN_OR_RETURN(const VariedPlan* const there, plans_.Get(base));
    return there->plan.arena_bytes(MemoryTier::kPinnedHost) >
           here->plan.arena_bytes(MemoryTier::kPinnedHost);
  }

  // The fastest of all levels with the largest batch that fits, if it is faster than the best so
  // far; where times are not known, the first level.
  absl::Status Search(Variation base) {
    for (const std::string& level : LevelsFrom(choice_.as_is.recompute)) {
      for (const ShardLevel shard : plans_.ShardLevels(base.kept)) {
        base.recompute = level;
        base.shard = shard;
        HEARTH_ASSIGN_OR_RETURN(const int64_t batch, plans_.LargestCandidate(base, room_));
        if (batch == 0) {
          continue;
        }
        Variation fitting = base;
        fitting.micro_batch = batch;
        HEARTH_ASSIGN_OR_RETURN(const VariedPlan* const plan, plans_.Get(fitting));
        const StepTime time = TimeOfPlan(*plan, plans_.gpus(), gpu_, calibration_);
        if (!best_.has_value() || (time.known() && time.seconds < best_seconds_)) {
          best_ = fitting;
          best_seconds_ = time.known() ? time.seconds : best_seconds_;
        }
        // ShardLevels() begins with the preferred one: the first that fits is taken.
        break;
      }
    }
    return absl::OkStatus();
  }

  void AddChange(const std::string& field, const std::string& value, const std::string& why) {
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
    for (const OffloadRow& row : OffloadRows()) {
      if (is.offload.Has(row.away) && !was.offload.Has(row.away)) {
        AddChange(absl::StrCat("offload.", Str(row.name)), "true", "");
      }
    }
    DescribeChoice(was, is);
    if (open_) {
      // Left open, so it is no change; savings are compared with the job at this size.
      choice_.as_is.micro_batch = is.micro_batch;
    }
    return std::move(choice_);
  }

  void DescribeChoice(const Variation& was, const Variation& is) {
    for (const StateField& field : StateFields()) {
      const std::string& value = is.kept.*field.value;
      if (value == was.kept.*field.value) {
        continue;
      }
      const std::string_view loss = LossOf(field.path, value, is.kept.optimizer);
      std::string why = absl::StrCat(" (was ", ValueOf(field, was));
      if (!loss.empty()) {
        absl::StrAppend(&why, "; measured loss ", Str(loss));
      }
      AddChange(field.path, value, why + ")");
    }
    if (is.kept != was.kept) {
      for (const std::string& key : IdleWith(plans_.spec(), is.kept)) {
        choice_.reasons.push_back(absl::StrCat("change: leave ", key, " out"));
      }
    }
  }

  // As the job file would write it.
  static std::string ValueOf(const StateField& field, const Variation& variation) {
    const std::string& value = variation.kept.*field.value;
    const Recipe* const recipe = FindRecipe(variation.recipe);
    return !value.empty() || recipe == nullptr ? value
                                               : Str(DTypeName(recipe->parameters.gradient));
  }

  // Nothing fits: what the smallest would take, of the GPU or of the host.
  absl::StatusOr<Choice> Refuse() {
    choice_.fits_gpu = least_bytes_ <= room_.device;
    HEARTH_ASSIGN_OR_RETURN(const VariedPlan* const as_is, plans_.Get(choice_.as_is));
    if (!room_.HoldsOnHost(*as_is)) {
      choice_.reasons.push_back(absl::StrFormat(
          "offload needs %.2f GB of the host's memory a GPU, it has %.2f GB for it; %s",
          1e-9 * static_cast<double>(as_is->plan.arena_bytes(MemoryTier::kPinnedHost)),
          1e-9 * static_cast<double>(room_.host), LessOnHostAdvice(choice_.as_is.offload)));
    }
    if (choice_.fits_gpu) {
      return std::move(choice_);
    }
    std::string all =
        absl::StrCat("recompute: ", least_->recompute, ", micro-batch ", least_->micro_batch);
    for (const StateField& field : StateFields()) {
      if (least_->kept.*field.value != choice_.as_is.kept.*field.value) {
        absl::StrAppend(&all, ", ", field.path, ": ", least_->kept.*field.value);
      }
    }
    choice_.reasons.push_back(absl::StrFormat(
        "with all that a plan proposes (%s) it still takes %.2f GB; offload, a smaller model, a "
        "shorter sequence or more GPUs (--gpus), which divide the optimizer, the gradients and the "
        "weights, would need less",
        all, 1e-9 * static_cast<double>(least_bytes_ + OverheadBytes(plans_.gpus()))));
    NameTier();
    return std::move(choice_);
  }

  // The safest tier that fits. It is not proposed: its losses are measured only in part.
  void NameTier() {
    for (const MemoryTierRow& row : MemoryTierRows()) {
      const absl::StatusOr<FamilyModel> model = ModelInTier(plans_.spec(), plans_.gpus(), row);
      if (!model.ok() || model->total_bytes - OverheadBytes(plans_.gpus()) > room_.device) {
        continue;
      }
      choice_.reasons.push_back(absl::StrFormat(
          "memory_tier: %d with recompute: %s and the smallest micro-batch takes %.2f GB; no plan "
          "proposes it, because it changes more than what was measured for every model "
          "(docs/memory.md)",
          row.tier, Str(RecomputeNames().back()), 1e-9 * static_cast<double>(model->total_bytes)));
      return;
    }
  }

  VariedPlans& plans_;
  const GpuRow& gpu_;
  const Calibration& calibration_;
  const Room room_;
  bool open_ = false;  // the job leaves its micro-batch open
  Choice choice_;
  std::optional<Variation> best_;
  double best_seconds_ = 0;
  std::optional<Variation> least_;  // of those that were tried, the one that takes the least
  int64_t least_bytes_ = 0;
};

// A single change.
struct Try {
  std::string change;
  Variation variation;
  std::string_view loss;
};

std::vector<Try> TriesOf(const VariedPlans& plans, const Variation& as_is, const GpuRow& gpu) {
  std::vector<Try> tries;
  const auto add = [&](const std::string& change, std::string_view loss, auto apply) {
    Variation changed = as_is;
    apply(changed);
    if (changed != as_is) {
      tries.push_back({change, changed, loss});
    }
  };
  for (const std::string& level : LevelsFrom(as_is.recompute)) {
    add("recompute: " + level, kSameLoss, [&](Variation& v) { v.recompute = level; });
  }
  // With one micro-batch in a step another size is another global batch.
  if (as_is.micro_batch % 2 == 0 && !NeedsOneMicroBatch(plans.spec())) {
    add(absl::StrCat("batch.micro_batch_size: ", as_is.micro_batch / 2), kSameLoss,
        [](Variation& v) { v.micro_batch /= 2; });
  }
  for (const ShardRow& row : ShardRows()) {
    add("parallel.shard: " + Str(row.name), kSameLoss,
        [&](Variation& v) { v.shard = plans.gpus() > 1 ? row.level : v.shard; });
  }
  for (const OffloadRow& row : OffloadRows()) {
    add(absl::StrCat("offload.", Str(row.name), ": true"), kSameLoss,
        [&](Variation& v) { v.offload.Add(row.away); });
  }
  for (const StateField& field : StateFields()) {
    for (const std::string_view value : field.values()) {
      Variation changed = as_is;
      changed.kept.*field.value = Str(value);
      add(absl::StrCat(field.path, ": ", Str(value)),
          LossOf(field.path, Str(value), changed.kept.optimizer),
          [&](Variation& v) { v = changed; });
    }
  }
  for (const FieldSetting& setting : SettingsOf(plans.spec())) {
    add(absl::StrCat(setting.path, ": ", setting.value),
        LossOf(setting.path, setting.value, as_is.kept.optimizer),
        [&](Variation& v) { v.settings.push_back(setting); });
  }
  const Recipe& narrow = TensorScaledRecipe();
  if (RecipeOn(gpu, narrow).execution == Execution::kNative && as_is.recipe == PlainRecipe().name) {
    add("precision.recipe: " + Str(narrow.name), "",
        [&narrow](Variation& v) { v.recipe = Str(narrow.name); });
  }
  return tries;
}

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

absl::StatusOr<Choice> ChooseVariation(VariedPlans& plans,
                                       const GpuRow& gpu,
                                       const Calibration& calibration,
                                       int64_t device_bytes,
                                       int64_t host_bytes) {
  const Room room = {PlannableBytes("cuda", device_bytes, plans.gpus()), host_bytes};
  return Chooser(plans, gpu, calibration, room).Run();
}

absl::StatusOr<std::vector<LevelRow>> LevelsOf(VariedPlans& plans,
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

absl::StatusOr<std::vector<Saving>> SavingsOf(VariedPlans& plans,
                                              const Variation& as_is,
                                              const GpuRow& gpu,
                                              const Calibration& calibration) {
  HEARTH_ASSIGN_OR_RETURN(const VariedPlan* const before, plans.Get(as_is));
  const StepTime time_before = TimeOfPlan(*before, plans.gpus(), gpu, calibration);
  std::vector<Saving> rows;
  for (const Try& one : TriesOf(plans, as_is, gpu)) {
    const absl::StatusOr<const VariedPlan*> after = plans.Get(one.variation);
    if (!after.ok()) {
      continue;  // this job cannot have it: rules, or sizes that FP8 products cannot take
    }
    const int64_t saved = before->plan.arena_bytes() - (*after)->plan.arena_bytes();
    if (saved <= 0) {
      continue;
    }
    const StepTime time = TimeOfPlan(**after, plans.gpus(), gpu, calibration);
    const bool known = time.known() && time_before.known();
    rows.push_back({.change = one.change,
                    .saved_bytes = saved,
                    .time_ratio = known ? time.seconds / time_before.seconds : 0,
                    .loss = Str(one.loss)});
  }
  return rows;
}

}  // namespace hearth::spec
