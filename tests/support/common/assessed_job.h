// Judgements of jobs on GPUs, for tests.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "common/spec/feasibility/feasibility.h"
#include "common/spec/feasibility/memory/state_choice.h"
#include "common/spec/feasibility/speed/calibration.h"
#include "common/spec/fields/conditions.h"
#include "common/spec/gpus/gpus.h"
#include "common/spec/plan/offload.h"
#include "common/spec/resolve/resolve.h"
#include "gtest/gtest.h"
#include "tests/support/common/planned_job.h"

namespace hearth::spec {

inline Feasibility Assess(const v1::JobSpec& job,
                          const std::string& gpu,
                          const FeasibilityQuery& query = {}) {
  const auto f = AssessFeasibility(job, GpuNamed(gpu), CalibrationFor(GpuNamed(gpu)), query);
  EXPECT_TRUE(f.ok()) << f.status();
  return f.ok() ? *f : Feasibility();
}

// The job with changes put in, as a user would: nothing may be wrong with it.
inline v1::JobSpec Changed(v1::JobSpec job, const std::vector<Change>& changes) {
  StateChoice choice = ChoiceOf(job);
  for (const Change& change : changes) {
    const auto field = std::find_if(StateFields().begin(), StateFields().end(),
                                    [&](const StateField& f) { return f.path == change.field; });
    const auto offload = std::find_if(
        OffloadRows().begin(), OffloadRows().end(),
        [&](const OffloadRow& row) { return change.field == "offload." + std::string(row.name); });
    if (change.field == "recompute") {
      job.set_recompute(change.value);
    } else if (change.field == "batch.micro_batch_size") {
      job.mutable_batch()->set_micro_batch_size(std::stoi(change.value));
    } else if (field != StateFields().end()) {
      choice.*field->value = change.value;
    } else if (offload != OffloadRows().end()) {
      (job.mutable_offload()->*offload->set)(change.value == "true");
    } else if (FindPlace(job, change.field).field != nullptr) {
      SetPlace(job, change.field, change.value);
    } else {
      ADD_FAILURE() << change.field;
    }
  }
  job = WithChoice(job, choice);
  std::vector<FieldViolation> violations;
  Resolve(job, violations);
  EXPECT_TRUE(violations.empty()) << ViolationsToStatus(violations);
  return job;
}

}  // namespace hearth::spec
