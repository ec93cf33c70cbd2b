#include "common/spec/plan/blocks/block.h"

#include "common/spec/recipe/precision.h"

namespace hearth::spec {

BlockScope::BlockScope(const TrainingPlanOptions& plan_options)
    : options(plan_options),
      shape(plan_options.shape),
      time{plan_options.shape.layers},
      tokens(plan_options.micro_batch * plan_options.sequence_length),
      activation(plan_options.recipe->activation),
      quantised(QuantisesActivations(plan_options)),
      four_bits(KeepsFourBits(plan_options)),
      narrow(KeepsNarrow(plan_options)),
      plain_operand(quantised ? Recompute::kNone : Recompute::kNormAct) {}

int64_t BlockScope::ColumnBytes(int64_t width) const {
  return quantised ? FormBytes(options.precision.recipe->wgrad.a, width, tokens) : 0;
}

}  // namespace hearth::spec
