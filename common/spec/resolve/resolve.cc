#include "common/spec/resolve/resolve.h"

#include <string>

#include "common/spec/fields/conditions.h"
#include "common/spec/fields/derived.h"
#include "common/spec/fields/memory_tiers.h"
#include "common/spec/fields/rows.h"
#include "common/spec/model/presets.h"
#include "common/spec/objective/objective_table.h"
#include "common/spec/rules/rules.h"
#include "common/spec/violations/checker.h"
#include "common/spec/violations/text.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "google/protobuf/text_format.h"

namespace hearth::spec {
namespace {

std::string ValueText(const v1::ModelSpec& model, const google::protobuf::FieldDescriptor* field) {
  std::string text;
  google::protobuf::TextFormat::PrintFieldValueToString(model, field, -1, &text);
  return text;
}

void CheckAgainstFolder(const v1::ModelSpec& model, const v1::ModelSpec& folder, Checker& check) {
  const auto* descriptor = v1::ModelSpec::descriptor();
  const auto* reflection = v1::ModelSpec::GetReflection();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const auto* field = descriptor->field(i);
    if (RowOf(*field).free() || !reflection->HasField(model, field) ||
        !reflection->HasField(folder, field)) {
      continue;
    }
    const std::string wanted = ValueText(model, field);
    const std::string found = ValueText(folder, field);
    if (wanted != found) {
      check.Add(Text("model.", field->name()),
                Text(wanted, " differs from ", found, " in model.from ", model.from()));
    }
  }
}

void FillDefaults(v1::JobSpec& job_spec) {
  FillMemoryTier(job_spec);
  FillRowDefaults(job_spec);
  FillDerivedDefaults(job_spec);
}

void CheckFacts(const v1::JobSpec& job_spec, const DataFacts& facts, Checker& check) {
  const v1::ModelSpec& model = job_spec.model();
  if (model.has_vocab() && facts.vocab > model.vocab()) {
    check.Add("model.vocab", Text(model.vocab(), " is smaller than the datasets' vocabulary of ",
                                  facts.vocab, " tokens"));
  }
  const int64_t sample = int64_t{job_spec.data().sequence_length()} + 1;
  if (facts.train_tokens > 0 && facts.train_tokens < sample) {
    check.Add("data.train", Text(facts.train_tokens, " tokens are fewer than one sample of ",
                                 sample, " (data.sequence_length + 1)"));
  }
  CheckTokenizers(job_spec, facts, check);
  CheckLossMasks(job_spec, facts, check);
}

}  // namespace

bool ApplyPreset(v1::ModelSpec& model) {
  if (!model.has_preset()) {
    return true;
  }
  const Preset* preset = FindPreset(model.preset());
  if (preset == nullptr) {
    return false;
  }
  v1::ModelSpec merged = preset->model;
  // Onto the preset: what the job file gives wins.
  merged.MergeFrom(model);
  model.Swap(&merged);
  return true;
}

void Resolve(v1::JobSpec& job_spec, std::vector<FieldViolation>& violations) {
  Checker check(violations);
  // Stored jobs of older versions come here too.
  ModerniseValues(job_spec);
  // Before the defaults: the model's depend on what the preset says, and the layers in BF16 on how
  // many there are.
  const bool trains = Trains(job_spec);
  const bool preset_known = !trains || ApplyPreset(*job_spec.mutable_model());
  FillDefaults(job_spec);
  const v1::ModelSpec& model = job_spec.model();
  if (model.has_preset() && model.has_from()) {
    check.Add("model.from", "give either model.preset or model.from, not both");
  }
  if (model.has_from() && model.from().empty()) {
    check.Add("model.from", "must not be empty");
  }
  CheckRows(job_spec, "", check);
  if (!trains) {
    CheckJobRules(job_spec, check);
    return;
  }
  if (preset_known && Evaluate("shape_known", job_spec) == Truth::kYes) {
    CheckModelComplete(model, check);
  }
  CheckModelRules(model, job_spec.data().sequence_length(), check);
  CheckJobRules(job_spec, check);
}

void ResolveWithFacts(v1::JobSpec& job_spec,
                      const DataFacts& facts,
                      const v1::ModelSpec* from_model,
                      std::vector<FieldViolation>& violations) {
  // A task that trains nothing has neither model nor data of its own.
  if (!Trains(job_spec)) {
    return;
  }
  Checker check(violations);
  v1::ModelSpec& model = *job_spec.mutable_model();
  if (from_model != nullptr) {
    CheckAgainstFolder(model, *from_model, check);
    v1::ModelSpec merged = *from_model;
    merged.MergeFrom(model);
    const bool layers_known = model.layers() > 0;
    model.Swap(&merged);
    FillDefaults(job_spec);
    CheckModel(model, job_spec.data().sequence_length(), violations);
    // Not checked before: only the folder says how many layers there are.
    if (!layers_known) {
      CheckJobLayers(job_spec, check);
    }
  }
  const bool waits_for_folder = model.has_from() && from_model == nullptr;
  if (!model.has_vocab() && !waits_for_folder) {
    if (facts.vocab > 0) {
      model.set_vocab(facts.vocab);
      // The datasets' vocabulary is under the same rule as a given one.
      v1::ModelSpec vocab;
      vocab.set_vocab(facts.vocab);
      CheckRows(vocab, "model.", check);
    } else {
      check.Add("model.vocab", "required: the datasets do not say their vocabulary");
    }
  }
  CheckFacts(job_spec, facts, check);
}

void CheckModel(const v1::ModelSpec& model,
                int64_t sequence_length,
                std::vector<FieldViolation>& violations) {
  Checker check(violations);
  CheckRows(model, "model.", check);
  CheckModelComplete(model, check);
  CheckModelRules(model, sequence_length, check);
}

}  // namespace hearth::spec
