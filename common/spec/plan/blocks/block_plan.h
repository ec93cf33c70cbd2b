// Plans what the blocks of a model describe, and fills their handles.
#pragma once

#include "common/spec/plan/blocks/block.h"
#include "common/spec/plan/plan_builder.h"

namespace hearth::spec {

// What backward reads of every layer, as "layers.<l>.<place>.<name>" or "shared.<place>.<name>".
// With offload.activations the buffers of a layer are on the host, and it computes in
// "slot.<s>.<place>.<name>".
void AddActivations(const BlockScope& scope, PlanBuilder& out);

// Bytes of a micro-batch that offload.activations moves to the host, and back again; 0 without it.
int64_t AwayBytes(const BlockScope& scope);

// Short-lived buffers other than gradients, in the order of forward.
void AddWork(const BlockScope& scope, PlanBuilder& out);
// Adds one gradient that all blocks share. A gradient whose buffer also holds an activation lives
// from forward on.
BufferId AddGradient(const BlockScope& scope, const WorkRow& row, PlanBuilder& out);
// Adds each block's own gradients, in the order of backward.
void AddGradients(const BlockScope& scope, PlanBuilder& out);

// Handles of activations that lie in gradients, and then those of the GEMM sites. After all others.
void BindSites(const BlockScope& scope, StepBuffers& ids);

}  // namespace hearth::spec
