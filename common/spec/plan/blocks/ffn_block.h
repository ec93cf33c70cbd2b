// Norm, projection (gate|up or fc), activation function, down projection.
#pragma once

#include "common/spec/plan/blocks/block.h"

namespace hearth::spec {

void AddFfn(const BlockScope& scope, PlanBuilder& out);
// The gradient of a norm's output too, in which this block's norm may lie; mixer and head use it as
// well.
void AddNormGradient(const BlockScope& scope, PlanBuilder& out);
void AddFfnGradients(const BlockScope& scope, PlanBuilder& out);

}  // namespace hearth::spec
