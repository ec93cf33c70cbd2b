// The parts of which the time of a planned step is the sum: where they stand and what they are
// called. A new part is a row here, a field of StepTime and of StepPlan, and its term in TimeOf.
#pragma once

#include "common/spec/feasibility/speed/step_time.h"
#include "hearth/v1/plan.pb.h"

namespace hearth::spec {

struct StepPart {
  double StepTime::*seconds;
  double (v1::StepPlan::*get)() const;
  void (v1::StepPlan::*set)(double value);
  const char* key;    // in `jobctl plan -o json`
  const char* label;  // a row of a table
  const char* brief;  // in a sentence, and on the page
};

inline constexpr StepPart kStepParts[] = {
    {&StepTime::product_seconds, &v1::StepPlan::product_seconds, &v1::StepPlan::set_product_seconds,
     "products", "matrix products", "products"},
    {&StepTime::attention_seconds, &v1::StepPlan::attention_seconds,
     &v1::StepPlan::set_attention_seconds, "attention", "attention", "attention"},
    {&StepTime::memory_seconds, &v1::StepPlan::memory_seconds, &v1::StepPlan::set_memory_seconds,
     "memory", "norms, activations, loss", "memory-bound kernels"},
    {&StepTime::update_seconds, &v1::StepPlan::update_seconds, &v1::StepPlan::set_update_seconds,
     "optimizer", "optimizer", "optimizer"},
    {&StepTime::gap_seconds, &v1::StepPlan::gap_seconds, &v1::StepPlan::set_gap_seconds, "gaps",
     "between kernels", "gaps"},
    {&StepTime::stretch_seconds, &v1::StepPlan::stretch_seconds, &v1::StepPlan::set_stretch_seconds,
     "stretch", "lower clock in a step", "lower clock"},
    {&StepTime::emulated_seconds, &v1::StepPlan::emulated_seconds,
     &v1::StepPlan::set_emulated_seconds, "emulation", "emulation", "emulation"},
    {&StepTime::exchange_seconds, &v1::StepPlan::exchange_seconds,
     &v1::StepPlan::set_exchange_seconds, "exchange", "exchange not hidden", "exchange"},
    {&StepTime::lockstep_seconds, &v1::StepPlan::lockstep_seconds,
     &v1::StepPlan::set_lockstep_seconds, "lockstep", "waiting for the slowest",
     "waiting for the slowest"},
    {&StepTime::offload_seconds, &v1::StepPlan::offload_seconds, &v1::StepPlan::set_offload_seconds,
     "offload", "host memory not hidden", "host memory"},
};

}  // namespace hearth::spec
