// Final norm and output projection.
#pragma once

#include "common/spec/plan/blocks/block.h"

namespace hearth::spec {

void AddHead(const BlockScope& scope, PlanBuilder& out);
// Its operands in FP8, where precision.lm_head asks for them.
void AddQuantisedHead(const BlockScope& scope, PlanBuilder& out);

}  // namespace hearth::spec
