// From a job file's spec to the resolved one: presets and defaults filled in, every rule checked.
// Pure: reads no file and no clock. The same function serves validate_only, CreateJob, jobctl and
// the trainer. Rows of the fields (fields/) give defaults and ranges, functions in rules/ the rest.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/spec/violations/field_violation.h"
#include "hearth/v1/agent.pb.h"
#include "hearth/v1/job.pb.h"

namespace hearth::spec {

// Fills in presets and defaults and appends all violations to `violations`. What only workers know
// (dataset vocabulary, model.from) may still be unset afterwards; ResolveWithFacts fills that.
void Resolve(v1::JobSpec& job_spec, std::vector<FieldViolation>& violations);

// Puts the fields of model.preset under those that are set; false: there is no such preset. Part of
// Resolve.
bool ApplyPreset(v1::ModelSpec& model);

// A path of a job and the tokenizer that it records.
struct PathTokenizer {
  std::string field;  // as in FieldViolation
  std::string path;
  int32_t vocab = 0;             // of the dataset or model, 0 = not recorded
  v1::TokenizerFacts tokenizer;  // without kind: none is recorded
};

// A path of a job, and the field that names it.
struct FieldPath {
  std::string field;  // as in FieldViolation
  std::string path;
};

// What lives on the workers.
struct DataFacts {
  int32_t vocab = 0;         // largest vocabulary of the datasets, 0 = unknown
  int64_t train_tokens = 0;  // 0 = unknown
  // Empty: not to be compared.
  std::vector<PathTokenizer> datasets = {};
  std::optional<PathTokenizer> model = std::nullopt;
  std::vector<FieldPath> without_mask = {};  // datasets that do not say which tokens count
};

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
