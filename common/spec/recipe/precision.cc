#include "common/spec/recipe/precision.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/spec/recipe/head_format.h"
#include "common/spec/recipe/linear_kinds.h"

namespace hearth::spec {

bool PrecisionPlan::QuantisesAnyLayer() const {
  return std::find(layers.begin(), layers.end(), true) != layers.end();
}

bool PrecisionPlan::Quantises(const Parameter& parameter) const {
  if (!quantised() || !parameter.roles.fprop_w || parameter.is_bias) {
    return false;
  }
  return parameter.roles.head ? head : QuantisesLayer(parameter.layer);
}

const Recipe& PrecisionPlan::RecipeOf(Slot slot) const {
  const bool plain = std::find(plain_slots.begin(), plain_slots.end(), slot) != plain_slots.end();
  return plain ? *plain_recipe : *recipe;
}

int64_t PrecisionPlan::LargestForm(Gemm Recipe::*product,
                                   Operand Gemm::*operand,
                                   int64_t lines,
                                   int64_t extent) const {
  int64_t bytes = 0;
  for (const Recipe* row : {recipe, plain_recipe}) {
    bytes =
        row == nullptr ? bytes : std::max(bytes, FormBytes(row->*product.*operand, lines, extent));
  }
  return bytes;
}

const Recipe* PrecisionPlan::NeedsFp8Units() const {
  for (const Recipe* row : {recipe, fallback}) {
    if (row != nullptr && row->tensor_scaled()) {
      return row;
    }
  }
  return nullptr;
}

StepFormat PrecisionPlan::Format(int rung, int remedy) const {
  StepFormat step;
  step.format = ladder[static_cast<size_t>(rung)];
  if (remedy < 0) {
    return step;
  }
  // If the whole step is already that wide, so are its layers.
  const LayerRemedy& change = remedies[static_cast<size_t>(remedy)];
  if (!change.layers.empty() && change.format < step.format) {
    step.remedy = remedy;
  }
  return step;
}

LayerFormat PrecisionPlan::FormatOf(const StepFormat& step, int layer) const {
  if (layer < 0) {
    return head && step.own() ? LayerFormat::kOwn : LayerFormat::kPlain;
  }
  if (!QuantisesLayer(layer)) {
    return LayerFormat::kPlain;
  }
  if (step.remedy >= 0) {
    const LayerRemedy& remedy = remedies[static_cast<size_t>(step.remedy)];
    if (remedy.layers[static_cast<size_t>(layer)]) {
      return std::min(step.format, remedy.format);
    }
  }
  return step.format;
}

std::vector<StepFormat> PrecisionPlan::Formats() const {
  if (!quantised()) {
    return {StepFormat{}};
  }
  std::vector<StepFormat> formats;
  const bool plain_phase = warmup_steps > 0 || tail_step != std::numeric_limits<int64_t>::max() ||
                           std::find(layers.begin(), layers.end(), false) != layers.end();
  if (plain_phase || std::count(ladder.begin(), ladder.end(), LayerFormat::kPlain) > 0) {
    formats.emplace_back();
  }
  for (int rung = 0; rung < static_cast<int>(ladder.size()); ++rung) {
    for (int remedy = -1; remedy < static_cast<int>(remedies.size()); ++remedy) {
      const StepFormat format = Format(rung, remedy);
      if (std::find(formats.begin(), formats.end(), format) == formats.end()) {
        formats.push_back(format);
      }
    }
  }
  return formats;
}

std::vector<bool> LayersOf(const v1::LayerSet& set, int layers) {
  std::vector<bool> in(static_cast<size_t>(layers));
  for (int l = 0; l < layers; ++l) {
    in[static_cast<size_t>(l)] = l < set.first() || l >= layers - set.last();
  }
  for (const int32_t layer : set.layers()) {
    if (layer >= 0 && layer < layers) {
      in[static_cast<size_t>(layer)] = true;
    }
  }
  return in;
}

PrecisionPlan ResolvePrecision(const v1::JobSpec& job_spec, const Recipe& recipe, int layers) {
  PrecisionPlan plan;
  if (!recipe.quantised()) {
    return plan;
  }
  plan.recipe = &recipe;
  const v1::PrecisionSpec& precision = job_spec.precision();
  plan.head = QuantisesHead(precision);
  plan.layers = LayersOf(precision.high_precision_layers(), layers);
  plan.layers.flip();
  for (const std::string& name : precision.high_precision_linears()) {
    if (const LinearKind* kind = FindLinearKind(name); kind != nullptr) {
      plan.plain_slots.push_back(kind->slot);
      plan.plain_recipe = &WithPlainOperands(recipe);
    }
  }
  // Delayed scales come from the magnitudes of earlier steps; the first step has none.
  plan.warmup_steps = std::max<int64_t>(precision.warmup_steps(), recipe.delayed() ? 1 : 0);
  if (precision.bf16_tail() > 0) {
    const auto steps = static_cast<double>(job_spec.train().steps());
    plan.tail_step = 1 + static_cast<int64_t>(std::llround(steps * (1 - precision.bf16_tail())));
  }
  plan.ladder = {LayerFormat::kOwn};
  for (const std::string& name : precision.fallback()) {
    if (const Recipe* row = FindRecipe(name); row != nullptr) {
      plan.fallback = row->quantised() ? row : plan.fallback;
      plan.ladder.push_back(row->quantised() ? LayerFormat::kFallback : LayerFormat::kPlain);
    }
  }
  for (const v1::PrecisionRemedy& remedy : precision.remedies()) {
    LayerRemedy& change = plan.remedies.emplace_back();
    if (remedy.has_high_precision_layers()) {
      change.layers = LayersOf(remedy.high_precision_layers(), layers);
      const Recipe* row = FindRecipe(remedy.layers_recipe());
      change.format =
          row != nullptr && row == plan.fallback ? LayerFormat::kFallback : LayerFormat::kPlain;
    }
  }
  plan.narrow_activations = !precision.has_narrow_activations() || precision.narrow_activations();
  plan.stats = precision.stats_every() > 0;
  return plan;
}

PrecisionPlan ForwardPrecision(const v1::JobSpec& job_spec, const Recipe& recipe, int layers) {
  PrecisionPlan plan;
  if (recipe.quantised()) {
    plan.recipe = &recipe;
    PrecisionPlan whole = ResolvePrecision(job_spec, recipe, layers);
    plan.layers = std::move(whole.layers);
    plan.plain_slots = std::move(whole.plain_slots);
    plan.plain_recipe = whole.plain_recipe;
    plan.ladder = {LayerFormat::kOwn};
  }
  return plan;
}

bool CanFollow(const Recipe& recipe, const Recipe& fallback) {
  const bool alike = recipe.quantised() && recipe.activation == fallback.activation &&
                     recipe.parameters.storage == fallback.parameters.storage &&
                     recipe.parameters.master == fallback.parameters.master;
  // Delayed scales go on from the magnitudes that this recipe records.
  const bool magnitudes =
      recipe.column_scales() && recipe.delayed() && fallback.tensor_scaled() && fallback.delayed();
  return alike && (!fallback.quantised() || magnitudes);
}

std::vector<std::string_view> FallbackNames() {
  std::vector<std::string_view> names = RecipeNames();
  names.push_back(kNoFallback);
  return names;
}

bool FallsBack(const v1::PrecisionSpec& precision) {
  const auto& fallback = precision.fallback();
  return !fallback.empty() && !(fallback.size() == 1 && fallback[0] == kNoFallback);
}

std::vector<const Recipe*> PrecisionLadder(const v1::JobSpec& job_spec) {
  std::vector<const Recipe*> ladder = {RecipeFor(job_spec.precision())};
  for (const std::string& name : job_spec.precision().fallback()) {
    if (const Recipe* recipe = FindRecipe(name); recipe != nullptr) {
      ladder.push_back(recipe);
    }
  }
  return ladder;
}

std::vector<int> QuantisedParameters(const std::vector<Parameter>& table,
                                     const PrecisionPlan& precision) {
  std::vector<int> indices;
  for (size_t i = 0; i < table.size(); ++i) {
    if (precision.Quantises(table[i])) {
      indices.push_back(static_cast<int>(i));
    }
  }
  return indices;
}

int64_t FormScaleOffset(const Operand& operand, int64_t lines, int64_t extent) {
  return DTypeBytes(operand.dtype, lines * extent);
}

int64_t FormBytes(const Operand& operand, int64_t lines, int64_t extent) {
  int64_t bytes = FormScaleOffset(operand, lines, extent);
  if (operand.scaling == Scaling::kBlock) {
    bytes += formats::BlockScaleBytes(operand.layout, lines, extent);
  }
  return bytes;
}

std::vector<int64_t> QuantisedOffsets(const std::vector<Parameter>& table,
                                      const std::vector<int>& indices,
                                      const PrecisionPlan& precision,
                                      bool transposed) {
  std::vector<int64_t> offsets;
  int64_t offset = 0;
  for (const int i : indices) {
    const Parameter& weight = table[static_cast<size_t>(i)];
    offsets.push_back(offset);
    const Recipe& recipe = precision.RecipeOf(weight.slot);
    const int64_t bytes = transposed ? FormBytes(recipe.dgrad.b, weight.shape[1], weight.shape[0])
                                     : FormBytes(recipe.fprop.b, weight.shape[0], weight.shape[1]);
    offset += (bytes + 255) / 256 * 256;
  }
  offsets.push_back(offset);
  return offsets;
}

}  // namespace hearth::spec
