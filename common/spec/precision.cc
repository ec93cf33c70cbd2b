#include "common/spec/precision.h"

#include <algorithm>
#include <cmath>

namespace hearth::spec {

bool PrecisionPlan::Quantises(const Parameter& parameter) const {
  if (!quantised() || !parameter.roles.fprop_w || parameter.is_bias) {
    return false;
  }
  if (parameter.roles.head) {
    return head;
  }
  return parameter.layer >= first_layer && parameter.layer < end_layer;
}

PrecisionPlan ResolvePrecision(const v1::JobSpec& job_spec, const Recipe& recipe, int layers) {
  PrecisionPlan plan;
  const Scaling scaling = recipe.fprop.a.scaling;
  plan.per_tensor = scaling == Scaling::kTensorDelayed || scaling == Scaling::kTensorCurrent;
  plan.block = scaling == Scaling::kBlock;
  if (!plan.quantised()) {
    return plan;
  }
  plan.recipe = &recipe;
  const v1::PrecisionSpec& precision = job_spec.precision();
  // The E8M0 scales of MXFP8 reach everywhere by themselves.
  plan.delayed = scaling == Scaling::kTensorDelayed ||
                 (plan.block && recipe.fprop.a.scale_dtype == DType::kFp8E4M3);
  plan.history = plan.delayed ? recipe.amax_history : 0;
  plan.head = precision.lm_head() == "fp8";
  plan.first_layer = std::min(layers, precision.high_precision_layers().first());
  plan.end_layer = std::max(plan.first_layer, layers - precision.high_precision_layers().last());
  plan.warmup_steps = std::max<int64_t>(precision.warmup_steps(), plan.delayed ? 1 : 0);
  if (precision.bf16_tail() > 0) {
    const auto steps = static_cast<double>(job_spec.train().steps());
    plan.tail_step = 1 + static_cast<int64_t>(std::llround(steps * (1 - precision.bf16_tail())));
  }
  plan.inner_first_layer = plan.first_layer;
  plan.inner_end_layer = plan.end_layer;
  for (const v1::PrecisionRemedy& remedy : precision.remedies()) {
    const v1::LayerRange& range = remedy.high_precision_layers();
    if (!remedy.has_high_precision_layers()) {
      continue;
    }
    plan.inner_first_layer = std::clamp(range.first(), plan.inner_first_layer, plan.end_layer);
    plan.inner_end_layer =
        std::clamp(layers - range.last(), plan.inner_first_layer, plan.inner_end_layer);
  }
  plan.plain_fallback = PrecisionLadder(job_spec).size() > 1;
  plan.narrow_activations = !precision.has_narrow_activations() || precision.narrow_activations();
  plan.stats = precision.stats_every() > 0;
  return plan;
}

bool CanFollow(const Recipe& recipe, const Recipe& fallback) {
  return recipe.quantised() && !fallback.quantised() && recipe.activation == fallback.activation &&
         recipe.parameters.storage == fallback.parameters.storage &&
         recipe.parameters.master == fallback.parameters.master;
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
    const int64_t blocks = (extent + operand.block_cols - 1) / operand.block_cols;
    bytes += (lines + 127) / 128 * ((blocks + 3) / 4) * 512;
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
    const int64_t bytes =
        transposed ? FormBytes(precision.recipe->dgrad.b, weight.shape[1], weight.shape[0])
                   : FormBytes(precision.recipe->fprop.b, weight.shape[0], weight.shape[1]);
    offset += (bytes + 255) / 256 * 256;
  }
  offsets.push_back(offset);
  return offsets;
}

}  // namespace hearth::spec
