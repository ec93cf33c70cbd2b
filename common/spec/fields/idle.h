// Keys that change nothing in a job.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "common/spec/resolve/resolve.h"
#include "hearth/v1/job.pb.h"

namespace hearth::spec {

// Appends a violation for each field that `given` sets and that changes nothing in this job: its
// row's applies_when does not hold (FieldRow), no parameter is in its optimizer group, or it leaves
// no step to the recipe. A value equal to the default is never a violation, so a resolved spec can
// be submitted again. `given` is a job file's spec, resolved or not. A stored job keeps what it
// has, so a resume asks only about the fields that it sets.
void CheckIdleKeys(const v1::JobSpec& given, std::vector<FieldViolation>& violations);

// What a submitted job file goes through: CheckIdleKeys, then Resolve.
void ResolveSubmitted(v1::JobSpec& job_spec, std::vector<FieldViolation>& violations);

// The same; kInvalidArgument lists all violations (ViolationsToStatus).
absl::Status ResolveSubmitted(v1::JobSpec& job_spec);

// Clears the fields of `precision` that change nothing in this job. `given` is a job file's spec.
void ClearIdlePrecision(v1::JobSpec& given);

}  // namespace hearth::spec
