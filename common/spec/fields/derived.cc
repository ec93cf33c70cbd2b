#include "common/spec/fields/derived.h"

#include <algorithm>
#include <string>

#include "common/spec/fields/conditions.h"
#include "common/spec/fields/rows.h"
#include "common/spec/model/position_limit.h"
#include "common/spec/objective/objective_table.h"
#include "common/spec/recipe/precision.h"
#include "common/spec/recipe/recipe.h"
#include "common/spec/schedule/schedule.h"

namespace hearth::spec {
namespace {

void FillModelShape(v1::JobSpec& job_spec) {
  v1::ModelSpec& model = *job_spec.mutable_model();
  if (!model.has_kv_heads() && model.has_heads()) {
    model.set_kv_heads(model.heads());
  }
  if (!model.has_head_dim() && model.has_hidden() && model.heads() > 0 &&
      model.hidden() % model.heads() == 0) {
    model.set_head_dim(model.hidden() / model.heads());
  }
  const int32_t sequence_length = job_spec.data().sequence_length();
  if (!model.has_max_position() && LearnsPositions(model) && sequence_length > 0) {
    model.set_max_position(sequence_length);
  }
}

void FillSamples(v1::JobSpec& job_spec) {
  const ObjectiveRow* objective = FindObjective(job_spec.task());
  if (objective == nullptr || !job_spec.has_data()) {
    return;
  }
  v1::DataSpec& data = *job_spec.mutable_data();
  if (!data.has_packing()) {
    data.set_packing(std::string(objective->packing));
  }
  if (!data.has_attention()) {
    data.set_attention(std::string(objective->attention));
  }
}

void FillMinWorkers(v1::JobSpec& job_spec) {
  v1::ResourceSpec& resources = *job_spec.mutable_resources();
  if (!resources.has_min_workers()) {
    resources.set_min_workers(resources.workers());
  }
}

void FillGlobalBatch(v1::JobSpec& job_spec) {
  v1::BatchSpec& batch = *job_spec.mutable_batch();
  // With an automatic micro-batch the workers find out what fits, and the global batch follows from
  // it.
  if (!batch.has_global_batch_tokens() && batch.micro_batch_size() > 0) {
    batch.set_global_batch_tokens(int64_t{batch.micro_batch_size()} *
                                  job_spec.data().sequence_length() *
                                  job_spec.resources().workers());
  }
}

void FillFallback(v1::JobSpec& job_spec) {
  v1::PrecisionSpec& precision = *job_spec.mutable_precision();
  const Recipe* recipe = RecipeFor(precision);
  if (recipe == nullptr || !precision.fallback().empty()) {
    return;
  }
  for (std::string_view name : recipe->fallback) {
    const Recipe* fallback = FindRecipe(name);
    if (fallback != nullptr && CanFollow(*recipe, *fallback)) {
      precision.add_fallback(std::string(name));
    }
  }
}

// The recipe's own layers, of a model of so many. A small model keeps at most a quarter of them, so
// that most are quantised.
void AddRecipeLayers(const Recipe& recipe, int layers, v1::LayerSet& set) {
  const auto most = static_cast<size_t>(layers / 4);
  for (size_t i = 0; i < std::min(most, recipe.high_precision_layers.size()); ++i) {
    const int place = recipe.high_precision_layers[i];
    const int layer = place >= 0 ? place : layers + place;
    if (layer == set.first()) {
      set.set_first(layer + 1);
    } else {
      set.add_layers(layer);
    }
  }
}

void FillHighPrecisionLayers(v1::JobSpec& job_spec) {
  v1::PrecisionSpec& precision = *job_spec.mutable_precision();
  const Recipe* recipe = FindRecipe(precision.recipe());
  const int layers = job_spec.model().layers();
  if (recipe == nullptr || layers < 1) {
    return;
  }
  // A set that the job names is taken as it is.
  const bool named = precision.has_high_precision_layers();
  v1::LayerSet& set = *precision.mutable_high_precision_layers();
  if (!set.has_first()) {
    set.set_first(0);
  }
  if (!set.has_last()) {
    set.set_last(0);
  }
  if (!named) {
    AddRecipeLayers(*recipe, layers, set);
  }
}

void FillRemedyRecipes(v1::JobSpec& job_spec) {
  for (v1::PrecisionRemedy& remedy : *job_spec.mutable_precision()->mutable_remedies()) {
    if (remedy.has_high_precision_layers() && !remedy.has_layers_recipe()) {
      remedy.set_layers_recipe(std::string(PlainRecipe().name));
    }
  }
}

void FillGradientFormats(v1::JobSpec& job_spec) {
  v1::GradientSpec& gradients = *job_spec.mutable_gradients();
  const Recipe* recipe = FindRecipe(job_spec.precision().recipe());
  if (recipe == nullptr) {
    return;
  }
  if (!gradients.has_dtype()) {
    gradients.set_dtype(std::string(DTypeName(recipe->parameters.gradient)));
  }
  if (!gradients.has_reduce_dtype()) {
    gradients.set_reduce_dtype(gradients.dtype());
  }
}

void FillDecay(v1::JobSpec& job_spec) {
  v1::ScheduleSpec& schedule = *job_spec.mutable_schedule();
  const v1::TrainSpec& train = job_spec.train();
  const ScheduleRow& row = RowOf(schedule);
  if (!schedule.has_decay_steps() && train.has_steps()) {
    const int64_t rest = std::max<int64_t>(0, train.steps() - schedule.warmup_steps());
    schedule.set_decay_steps(std::min(train.steps() / row.decay_part, rest));
  }
  if (!schedule.has_min_lr_ratio()) {
    schedule.set_min_lr_ratio(row.min_lr_ratio);
  }
}

void FillQuestionNames(v1::JobSpec& job_spec) {
  for (v1::QuestionsSpec& questions : *job_spec.mutable_evaluate()->mutable_questions()) {
    if (!questions.has_name()) {
      questions.set_name(questions.task());
    }
  }
}

void FillEvaluationNames(v1::JobSpec& job_spec) {
  for (v1::EvaluationSpec& evaluation : *job_spec.mutable_train()->mutable_evaluations()) {
    if (!evaluation.has_name()) {
      evaluation.set_name(evaluation.task());
    }
  }
}

}  // namespace

void FillDerivedDefaults(v1::JobSpec& job_spec) {
  FillMinWorkers(job_spec);
  if (!Trains(job_spec)) {
    FillQuestionNames(job_spec);
    return;
  }
  const v1::FieldRow& model =
      RowOf(*v1::JobSpec::descriptor()->FindFieldByNumber(v1::JobSpec::kModelFieldNumber));
  if (Evaluate(model.default_when(), job_spec) == Truth::kYes) {
    FillModelShape(job_spec);
  }
  FillSamples(job_spec);
  FillGlobalBatch(job_spec);
  FillFallback(job_spec);
  FillHighPrecisionLayers(job_spec);
  FillRemedyRecipes(job_spec);
  FillGradientFormats(job_spec);
  FillDecay(job_spec);
  FillEvaluationNames(job_spec);
}

}  // namespace hearth::spec
