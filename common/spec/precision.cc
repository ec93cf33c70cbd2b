#include "common/spec/precision.h"

#include <algorithm>
#include <cmath>

namespace hearth::spec {

bool PrecisionPlan::Quantises(const Parameter& parameter) const {
  if (!per_tensor || !parameter.roles.fprop_w || parameter.is_bias) {
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
  if (!plan.per_tensor) {
    return plan;
  }
  const v1::PrecisionSpec& precision = job_spec.precision();
  plan.delayed = scaling == Scaling::kTensorDelayed;
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
  plan.stats = precision.stats_every() > 0;
  return plan;
}

bool CanFollow(const Recipe& recipe, const Recipe& fallback) {
  return recipe.quantised() && !fallback.quantised() && recipe.activation == fallback.activation &&
         recipe.parameters.storage == fallback.parameters.storage &&
         recipe.parameters.master == fallback.parameters.master;
}

std::vector<const Recipe*> PrecisionLadder(const v1::JobSpec& job_spec) {
  std::vector<const Recipe*> ladder = {FindRecipe(job_spec.precision().recipe())};
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

std::vector<int64_t> QuantisedOffsets(const std::vector<Parameter>& table,
                                      const std::vector<int>& indices) {
  std::vector<int64_t> offsets;
  int64_t offset = 0;
  for (const int i : indices) {
    offsets.push_back(offset);
    offset += (table[static_cast<size_t>(i)].elements() + 255) / 256 * 256;
  }
  offsets.push_back(offset);
  return offsets;
}

}  // namespace hearth::spec
