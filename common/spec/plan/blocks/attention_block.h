// Norm, q|k|v projection, QK-norm and rope, attention, output projection.
#pragma once

#include "common/spec/plan/blocks/block.h"

namespace hearth::spec {

void AddAttention(const BlockScope& scope, PlanBuilder& out);
void AddAttentionGradients(const BlockScope& scope, PlanBuilder& out);

}  // namespace hearth::spec
