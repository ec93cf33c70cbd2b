// Ranges and cross-field rules of a job spec with its defaults filled in; called by Resolve.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/spec/resolve.h"
#include "hearth/v1/job.pb.h"

namespace hearth::spec {

// Of a model; what has more is refused before anything is made of its layers.
constexpr int kMaxLayers = 1024;

// Ranges of what is set. `sequence_length` 0 = unknown.
void ValidateModelFields(const v1::ModelSpec& model,
                         int64_t sequence_length,
                         std::vector<FieldViolation>& violations);

// ValidateModelFields, and that the whole shape but vocab is there.
void ValidateModel(const v1::ModelSpec& model,
                   int64_t sequence_length,
                   std::vector<FieldViolation>& violations);

// What is wrong with a label of a job, for people; empty = nothing.
std::string LabelProblem(std::string_view key, std::string_view value);

// Everything but the model.
void ValidateJob(const v1::JobSpec& job_spec, std::vector<FieldViolation>& violations);

class Checker;
// Every set of layers that the precision names, those of remedies included, against as many layers
// as are known; part of ValidateJob, as are the next.
void CheckJobLayers(const v1::JobSpec& job, Checker& check);
// Switches of the precision that change nothing in the recipe that is set.
void CheckSwitches(const v1::JobSpec& job, Checker& check);
// precision.fallback_*, remedies, stats_every and trial.
void CheckLadder(const v1::JobSpec& job, Checker& check);

}  // namespace hearth::spec
