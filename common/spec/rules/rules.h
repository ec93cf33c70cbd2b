// Rules between fields, which rows of fields cannot express: one function each. All expect a spec
// with its defaults filled in whose fields CheckRows has checked. They report nothing if a field
// that they read is out of its range, because that is already a violation.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/spec/resolve/data_facts.h"
#include "common/spec/violations/checker.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "hearth/v1/job.pb.h"

namespace hearth::spec {

// A model's rules. `sequence_length` 0 = unknown.
void CheckModelRules(const v1::ModelSpec& model, int64_t sequence_length, Checker& check);

// Checks that the shape is complete, except for vocab.
void CheckModelComplete(const v1::ModelSpec& model, Checker& check);

// All rules of a job except those of its model.
void CheckJobRules(const v1::JobSpec& job, Checker& check);

// Every set of layers that the precision names, those of remedies included, against the model's
// number of layers if that is known. One of the rules of CheckJobRules; called again once a worker
// has read the model's folder.
void CheckJobLayers(const v1::JobSpec& job, Checker& check);

// Checks that the datasets have the tokenizer of model.from, or without it that of the first
// dataset; if one of two has none recorded, that their vocabularies could belong together. Says
// nothing with data.allow_other_tokenizer.
void CheckTokenizers(const v1::JobSpec& job, const DataFacts& facts, Checker& check);

// Checks that every dataset has a loss mask if the task trains on what masks name.
void CheckLossMasks(const v1::JobSpec& job, const DataFacts& facts, Checker& check);

// What is wrong with a label of a job, for people; empty = nothing.
std::string LabelProblem(std::string_view key, std::string_view value);

// Checks receivers of notifications: those of a job file, or of a coordinator's configuration.
// `list` is the path of the field that holds them. Rows (one_of, required) are CheckRows'.
void CheckReceivers(std::string_view list,
                    const google::protobuf::RepeatedPtrField<v1::NotifySpec>& receivers,
                    Checker& check);
// "https://example.org:8443" of a URL that CheckReceivers finds right: without what may be secret.
std::string UrlOrigin(const std::string& url);

// The rules, by file.
void CheckLabels(const v1::JobSpec& job, Checker& check);
void CheckObjective(const v1::JobSpec& job, Checker& check);
void CheckBatch(const v1::JobSpec& job, Checker& check);
void CheckRecipe(const v1::JobSpec& job, Checker& check);
void CheckFallback(const v1::JobSpec& job, Checker& check);
void CheckRemedies(const v1::JobSpec& job, Checker& check);
void CheckTrial(const v1::JobSpec& job, Checker& check);
void CheckOptimizer(const v1::JobSpec& job, Checker& check);
void CheckWeights(const v1::JobSpec& job, Checker& check);
void CheckSchedule(const v1::JobSpec& job, Checker& check);
void CheckWorkers(const v1::JobSpec& job, Checker& check);
void CheckStart(const v1::JobSpec& job, Checker& check);
void CheckNotify(const v1::JobSpec& job, Checker& check);
void CheckEvaluations(const v1::JobSpec& job, Checker& check);
// What tasks that train nothing need.
void CheckEvaluate(const v1::JobSpec& job, Checker& check);

}  // namespace hearth::spec
