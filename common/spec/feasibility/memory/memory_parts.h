// What takes a GPU's memory: parts that add up to the total exactly, although buffers of a plan
// share bytes over time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/spec/plan/step_buffers.h"
#include "common/spec/plan/training_plan.h"

namespace hearth::spec {

struct MemoryPart {
  std::string name;
  int64_t bytes = 0;
};

// The arena of a placed plan, and what the process and NCCL take outside of it. A byte that several
// buffers use in turn counts for the first of: weights, masters, gradients, optimizer, activations,
// logits, workspaces. What no buffer uses is "alignment". Parts of 0 bytes are left out.
std::vector<MemoryPart> MemoryParts(const TrainingPlan& plan, const TrainingPlanOptions& options);

// Bytes per token that backward reads: activations, including those that lie in gradients' buffers.
double ActivationBytesPerToken(const TrainingPlan& plan, const TrainingPlanOptions& options);

}  // namespace hearth::spec
