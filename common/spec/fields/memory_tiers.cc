#include "common/spec/fields/memory_tiers.h"

#include <string>

#include "common/base/table_rows.h"
#include "common/spec/fields/conditions.h"
#include "common/spec/fields/rows.h"
#include "google/protobuf/message.h"

namespace hearth::spec {
namespace {

constexpr TierSetting kProven[] = {{"weights.store", "q4_0"},
                                   {"gradients.dtype", "bf16"},
                                   {"optimizer.name", "muon"},
                                   {"optimizer.state", "int8"}};

constexpr TierSetting kAggressive[] = {{"weights.store", "q4_0"},    {"gradients.dtype", "bf16"},
                                       {"optimizer.name", "muon"},   {"optimizer.state", "int8"},
                                       {"optimizer.master", "none"}, {"recompute", "attention"}};

constexpr TierSetting kExtreme[] = {{"weights.store", "q4_0"},    {"gradients.dtype", "bf16"},
                                    {"optimizer.name", "muon"},   {"optimizer.state", "int8"},
                                    {"optimizer.master", "none"}, {"recompute", "block"}};

const MemoryTierRow kRows[] = {
    {1, "proven", "Q4_0 weights, BF16 gradients, Muon with its momentum in INT8", kProven},
    {2, "aggressive", "no masters of embedding and output projection, attention computed again",
     kAggressive},
    {3, "extreme", "whole blocks computed again", kExtreme},
};

// Sets the field of the path, which is a text.
void Set(const TierSetting& setting, v1::JobSpec& job_spec) {
  const std::string path(setting.path);
  google::protobuf::Message& message = *MutablePlace(job_spec, path);
  message.GetReflection()->SetString(&message, FindPlace(job_spec, path).field,
                                     std::string(setting.value));
}

}  // namespace

absl::Span<const MemoryTierRow> MemoryTierRows() {
  return kRows;
}

void FillMemoryTier(v1::JobSpec& job_spec) {
  const MemoryTierRow* const row =
      FindRow(MemoryTierRows(), &MemoryTierRow::tier, job_spec.memory_tier());
  if (row == nullptr || Evaluate("trains and narrow_weights", job_spec) != Truth::kYes) {
    return;
  }
  for (const TierSetting& setting : row->settings) {
    const Place place = FindPlace(job_spec, setting.path);
    if (place.message == nullptr ||
        !place.message->GetReflection()->HasField(*place.message, place.field)) {
      Set(setting, job_spec);
    }
  }
}

v1::JobSpec WithMemoryTier(v1::JobSpec job_spec, const MemoryTierRow& row) {
  job_spec.set_memory_tier(row.tier);
  v1::GradientSpec& gradients = *job_spec.mutable_gradients();
  if (gradients.reduce_dtype() == gradients.dtype()) {  // its default, which follows
    gradients.clear_reduce_dtype();
  }
  for (const TierSetting& setting : row.settings) {
    Set(setting, job_spec);
  }
  // Options of the optimizer that the job does not have yet.
  FillRowDefaults(job_spec);
  return job_spec;
}

}  // namespace hearth::spec
