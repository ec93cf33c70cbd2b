#include "common/spec/fields/idle_values.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/spec/model/model_shape.h"
#include "common/spec/optimizer/optimizer_table.h"
#include "common/spec/plan/parameter_table.h"
#include "common/spec/plan/training_plan.h"
#include "common/spec/recipe/precision.h"
#include "common/spec/recipe/recipe.h"
#include "common/spec/recipe/techniques.h"
#include "common/spec/violations/text.h"
#include "common/spec/weights/weight_store.h"

namespace hearth::spec {
namespace {

struct Submitted {
  const v1::JobSpec& given;
  const v1::JobSpec& resolved;
  const std::function<bool(const std::string& path)>& is_default;
  const Recipe* recipe;              // null: no recipe has that name
  absl::StatusOr<ModelShape> shape;  // an error: only a folder of the workers has it
};

bool HasQuantisedSteps(const Submitted& job) {
  return job.recipe != nullptr && job.recipe->quantised() && job.resolved.train().steps() >= 1 &&
         job.resolved.precision().warmup_steps() >= 0;
}

// Why a model has no parameter in the group; "" for groups in which each model has some.
std::string WhyEmpty(ParameterGroup group, const v1::ModelSpec& model) {
  switch (group) {
    case ParameterGroup::kHead:
      return "model.tied is true";
    case ParameterGroup::kBias:
      return Text("model.attention_bias is ", model.attention_bias(),
                  ", model.mlp_bias is false and model.norm is ", model.norm());
    default:
      return "";
  }
}

// Optimizer groups in which this model has no parameter.
void CheckGroups(const Submitted& job, Checker& check) {
  const v1::JobSpec& resolved = job.resolved;
  if (resolved.optimizer().groups().empty() || !job.shape.ok()) {
    return;
  }
  const std::vector<Parameter> table = BuildParameterTable(*job.shape);
  v1::OptimizerSpec without = resolved.optimizer();
  without.clear_groups();
  const auto& names = ParameterGroupNames();
  for (const auto& [name, options] : resolved.optimizer().groups()) {
    const auto it = std::find(names.begin(), names.end(), name);
    if (it == names.end()) {
      continue;  // refused by the row of optimizer.groups
    }
    const auto group = static_cast<ParameterGroup>(it - names.begin());
    const bool used = std::any_of(table.begin(), table.end(), [group](const Parameter& parameter) {
      return parameter.group == group;
    });
    if (!used &&
        ResolveGroupOptions(resolved.optimizer(), group) != ResolveGroupOptions(without, group)) {
      const std::string why = WhyEmpty(group, resolved.model());
      check.Add("optimizer.groups." + name,
                Text("changes nothing: this model has no parameter in the group ", name,
                     why.empty() ? "" : "; ", why));
    }
    if (used && options.lr_scale() == 0.0 && options.has_lr_scale() && options.has_weight_decay() &&
        options.weight_decay() != ResolveGroupOptions(without, group).weight_decay) {
      check.Add("optimizer.groups." + name + ".weight_decay",
                "changes nothing with lr_scale 0: it is per unit learning rate");
    }
  }
}

// A quantised recipe in whose formats no step would run, and phases in BF16 that are none or are
// there without the key.
void CheckPhases(const Submitted& job, Checker& check) {
  if (!HasQuantisedSteps(job)) {
    return;
  }
  const v1::PrecisionSpec& precision = job.resolved.precision();
  const int64_t steps = job.resolved.train().steps();
  // One layer will do: only the steps of the phases are asked for.
  const PrecisionPlan plan = ResolvePrecision(job.resolved, *job.recipe, 1);
  if (precision.warmup_steps() >= steps) {
    check.Add("precision.warmup_steps",
              Text(precision.warmup_steps(), " of ", steps, " steps run in BF16: none is left to ",
                   job.recipe->name, "; lower it, or set precision.recipe: bf16"));
    return;
  }
  if (precision.warmup_steps() == 1 && RecipeFor(precision)->delayed()) {
    check.Add("precision.warmup_steps",
              Text("1 changes nothing: the first step of ", job.recipe->name,
                   " always runs in BF16, as its scales come from the step before"));
  }
  if (precision.bf16_tail() <= 0.0) {
    return;
  }
  if (plan.tail_step <= plan.warmup_steps + 1) {
    check.Add("precision.bf16_tail",
              Text("with ", precision.bf16_tail(), " every step runs in BF16: none is left to ",
                   job.recipe->name, "; lower it, or set precision.recipe: bf16"));
  } else if (plan.tail_step > steps) {
    check.Add("precision.bf16_tail", Text("changes nothing: ", precision.bf16_tail(), " of ", steps,
                                          " steps is less than half a step"));
  }
}

// A width of which no activation can be kept in a narrow format, or no layer that makes one.
void CheckNarrowActivations(const Submitted& job, Checker& check) {
  const v1::PrecisionSpec& precision = job.resolved.precision();
  if (!HasQuantisedSteps(job) || !job.shape.ok() || !precision.has_narrow_activations() ||
      precision.narrow_activations()) {
    return;
  }
  TrainingPlanOptions plan;
  plan.shape = *job.shape;
  plan.precision = ResolvePrecision(job.resolved, *job.recipe, static_cast<int>(plan.shape.layers));
  plan.precision.narrow_activations = true;
  if (!KeepsNarrow(plan)) {
    check.Add("precision.narrow_activations",
              plan.precision.QuantisesAnyLayer()
                  ? Text("changes nothing: model.ffn_hidden ", plan.shape.ffn_hidden,
                         " is no multiple of ", kKeptBlock, ", so none are kept")
                  : "changes nothing: no layer is quantised");
  }
}

// A format of the optimizer's state that no parameter of this model gets.
void CheckState(const Submitted& job, Checker& check) {
  const StateFormatRow* const format = FindStateFormat(job.resolved.optimizer().state());
  const OptimizerRow* const optimizer = FindOptimizer(job.resolved.optimizer().name());
  if (format == nullptr || format->takes == nullptr || optimizer == nullptr || !job.shape.ok() ||
      !job.given.optimizer().has_state() || job.is_default("optimizer.state")) {
    return;
  }
  const std::vector<Parameter> table = BuildParameterTable(*job.shape);
  const bool used = std::any_of(table.begin(), table.end(), [&](const Parameter& parameter) {
    const std::vector<ParameterState> states = StatesOf(*optimizer, parameter, format);
    return std::any_of(states.begin(), states.end(),
                       [](const ParameterState& state) { return state.in_blocks(); });
  });
  if (!used) {
    check.Add("optimizer.state", Text(format->name, " changes nothing: it is for ", format->rule));
  }
}

// Blocks in which no matrix of this model can be stored.
void CheckWeightStore(const Submitted& job, Checker& check) {
  const WeightStoreRow& row = WeightStoreOf(job.resolved);
  if (!row.in_blocks() || !row.refusal.empty() || !job.shape.ok() ||
      !job.given.weights().has_store() || job.is_default("weights.store")) {
    return;
  }
  const std::vector<Parameter> table = BuildParameterTable(*job.shape);
  if (std::none_of(table.begin(), table.end(),
                   [&row](const Parameter& parameter) { return row.Takes(parameter); })) {
    check.Add("weights.store",
              Text(row.name, " changes nothing: no matrix of the layers has rows of whole blocks, ",
                   formats::RowOf(row.codec).block, " weights each"));
  }
}

// A scaling of the rotary positions that leaves them as they are.
void CheckRopeScaling(const Submitted& job, Checker& check) {
  const v1::RopeScaling& scaling = job.resolved.model().rope_scaling();
  if (job.given.model().rope_scaling().has_type() && job.shape.ok() &&
      job.shape->rope_scaling.type != RopeScalingType::kNone && scaling.factor() == 1.0) {
    check.Add(
        "model.rope_scaling.type",
        Text(scaling.type(), " with factor 1 changes nothing; set model.rope_scaling.factor"));
  }
}

// A decay to the rate from which it begins.
void CheckDecay(const Submitted& job, Checker& check) {
  const v1::ScheduleSpec& given = job.given.schedule();
  const v1::ScheduleSpec& schedule = job.resolved.schedule();
  if (given.decay_steps() > 0 && schedule.has_min_lr_ratio() && schedule.min_lr_ratio() == 1.0 &&
      !job.is_default("schedule.decay_steps")) {
    check.Add("schedule.decay_steps",
              "changes nothing with schedule.min_lr_ratio 1: the rate ends as it begins");
  }
}

// Trouble that can never be repeated: a step counts once, however often it is refused. Then no
// remedy and no fallback recipe ever comes into force.
void CheckFallbackAfter(const Submitted& job, Checker& check) {
  const v1::PrecisionSpec& precision = job.resolved.precision();
  if (!FallsBack(precision) || precision.fallback_window() < 1 ||
      precision.fallback_after() <= precision.fallback_window()) {
    return;
  }
  const bool raised =
      job.given.precision().has_fallback_after() && !job.is_default("precision.fallback_after");
  check.Add(raised ? "precision.fallback_after" : "precision.fallback_window",
            Text(precision.fallback_after(), " refused steps (fallback_after) cannot lie within ",
                 precision.fallback_window(),
                 " steps (fallback_window), so repeated trouble is never found; lower "
                 "fallback_after or raise fallback_window"));
}

// One that counts a single refused step needs no window, unless remedies come and go by it.
void CheckFallbackWindow(const Submitted& job, Checker& check) {
  const v1::PrecisionSpec& precision = job.resolved.precision();
  if (job.given.precision().has_fallback_window() && precision.fallback_after() == 1 &&
      precision.remedies().empty() && FallsBack(precision) &&
      !job.is_default("precision.fallback_window")) {
    check.Add("precision.fallback_window",
              "changes nothing with precision.fallback_after 1 and without precision.remedies");
  }
}

// Layers that are named and lie among the first or last ones of the same set.
void CheckLayerSet(const Submitted& job, Checker& check) {
  const v1::LayerSet& set = job.resolved.precision().high_precision_layers();
  if (!job.shape.ok() || set.layers().empty()) {
    return;
  }
  v1::LayerSet without = set;
  without.clear_layers();
  const auto layers = static_cast<int>(job.shape->layers);
  const std::vector<bool> named = LayersOf(without, layers);
  for (int i = 0; i < set.layers_size(); ++i) {
    const int32_t layer = set.layers(i);
    if (layer >= 0 && layer < layers && named[static_cast<size_t>(layer)]) {
      check.Add(Text("precision.high_precision_layers.layers[", i, ']'),
                Text(layer, " changes nothing: it is among the first or last ones"));
    }
  }
}

// Entries of lists of precision.techniques that the recipe lacks, or has already.
void CheckTechniqueLists(const Submitted& job, Checker& check) {
  if (job.recipe == nullptr) {
    return;
  }
  for (const IdleOperand& idle : IdleOperands(job.resolved.precision())) {
    const std::string name(idle.list->name());
    if (!HasTechnique(*job.recipe, name)) {
      continue;  // the whole list is refused
    }
    const v1::BlockTechniques& techniques = job.resolved.precision().techniques();
    check.Add(
        Text("precision.techniques.", name, '[', idle.index, ']'),
        Text(techniques.GetReflection()->GetRepeatedString(techniques, idle.list, idle.index),
             " changes nothing in ", job.recipe->name, " with the other switches as they are"));
  }
}

// In the order in which their fields stand in the proto.
constexpr void (*kChecks[])(const Submitted& job, Checker& check) = {
    CheckRopeScaling,    CheckGroups,
    CheckState,          CheckDecay,
    CheckPhases,         CheckFallbackAfter,
    CheckFallbackWindow, CheckLayerSet,
    CheckTechniqueLists, CheckNarrowActivations,
    CheckWeightStore,
};

absl::StatusOr<ModelShape> ShapeOf(const v1::JobSpec& resolved) {
  v1::ModelSpec model = resolved.model();
  if (!model.has_vocab()) {
    model.set_vocab(kVocabMultiple);  // nothing here depends on how many tokens there are
  }
  return ResolveModelShape(model, resolved.data().sequence_length());
}

}  // namespace

void CheckIdleValues(const v1::JobSpec& given,
                     const v1::JobSpec& resolved,
                     const std::function<bool(const std::string& path)>& is_default,
                     Checker& check) {
  const Submitted job{given, resolved, is_default, FindRecipe(resolved.precision().recipe()),
                      ShapeOf(resolved)};
  for (const auto check_one : kChecks) {
    check_one(job, check);
  }
}

}  // namespace hearth::spec
