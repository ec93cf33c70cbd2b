// From a job file's spec to the resolved one: presets and defaults filled in, every rule checked.
// Pure: reads no file and no clock. The same function serves validate_only, CreateJob, jobctl and
// the trainer. Rows of the fields (fields/) give defaults and ranges, functions in rules/ the rest.
#pragma once

#include <cstdint>
#include <vector>

#include "common/spec/resolve/data_facts.h"
#include "common/spec/violations/field_violation.h"
#include "hearth/v1/job.pb.h"

namespace hearth::spec {

// Fills in presets and defaults and appends all violations to `violations`. What only workers know
// (dataset vocabulary, model.from) may still be unset afterwards; ResolveWithFacts fills that.
void Resolve(v1::JobSpec& job_spec, std::vector<FieldViolation>& violations);

// Puts the fields of model.preset under those that are set; false: there is no such preset. Part of
// Resolve.
bool ApplyPreset(v1::ModelSpec& model);

// Fills model.vocab and, when given, the shape of model.from; checks it against the spec. To be
// called after Resolve.
void ResolveWithFacts(v1::JobSpec& job_spec,
                      const DataFacts& facts,
                      const v1::ModelSpec* from_model,
                      std::vector<FieldViolation>& violations);

// A model by itself: ranges, rules, and that the whole shape but vocab is there. `sequence_length`
// 0 = unknown.
void CheckModel(const v1::ModelSpec& model,
                int64_t sequence_length,
                std::vector<FieldViolation>& violations);

}  // namespace hearth::spec
