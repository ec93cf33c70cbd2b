#include "common/spec/fields/memory_tiers.h"

#include <string>

#include "common/base/table_rows.h"
#include "common/spec/fields/conditions.h"
#include "common/spec/fields/rows.h"
#include "google/protobuf/message.h"

namespace hearth::spec {
namespace {

// What rules/optimizer.cc asks for with each. Gradients that are coded or used up cannot be added
// to.
constexpr std::string_view kCodes = "one_micro_batch and optimizer.fused != true";
constexpr std::string_view kFuses =
    "one_micro_batch and gradients.store != fp8 and train.spike_grad_sigma = 0 and "
    "precision.stats_every = 0";

// Each costs less than half a percent of the loss where it was measured (docs/memory.md).
constexpr TierSetting kProven[] = {{"gradients.dtype", "bf16"},
                                   {"gradients.store", "fp8", kCodes},
                                   {"optimizer.name", "muon"},
                                   {"optimizer.state", "int8"},
                                   {"optimizer.master", "none"}};

constexpr TierSetting kAggressive[] = {
    {"weights.store", "int8"},  {"gradients.dtype", "bf16"}, {"gradients.store", "fp8", kCodes},
    {"optimizer.name", "muon"}, {"optimizer.state", "int8"}, {"optimizer.master", "none"},
    {"recompute", "attention"}};

constexpr TierSetting kExtreme[] = {
    {"weights.store", "q4_0"},   {"gradients.dtype", "bf16"},  {"optimizer.name", "muon"},
    {"optimizer.state", "int8"}, {"optimizer.master", "none"}, {"optimizer.fused", "true", kFuses},
    {"recompute", "block"}};

const MemoryTierRow kRows[] = {
    {1, "proven", "BF16 gradients that wait in FP8, Muon with its momentum in INT8, no masters",
     kProven},
    {2, "aggressive", "INT8 weights, attention computed again", kAggressive},
    {3, "extreme", "Q4_0 weights, updates in backward, whole blocks computed again", kExtreme},
};

bool Holds(const TierSetting& setting, const v1::JobSpec& job_spec) {
  return setting.when.empty() || Evaluate(setting.when, job_spec) == Truth::kYes;
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
    const bool given = place.message != nullptr &&
                       place.message->GetReflection()->HasField(*place.message, place.field);
    if (!given && Holds(setting, job_spec)) {
      SetPlace(job_spec, std::string(setting.path), setting.value);
    }
  }
}

v1::JobSpec WithMemoryTier(v1::JobSpec job_spec, const MemoryTierRow& row) {
  job_spec.set_memory_tier(row.tier);
  v1::GradientSpec& gradients = *job_spec.mutable_gradients();
  if (gradients.reduce_dtype() == gradients.dtype()) {  // its default, which follows
    gradients.clear_reduce_dtype();
  }
  for (const MemoryTierRow& other : MemoryTierRows()) {
    for (const TierSetting& setting : other.settings) {
      if (!setting.when.empty()) {
        const std::string path(setting.path);
        google::protobuf::Message& message = *MutablePlace(job_spec, path);
        message.GetReflection()->ClearField(&message, FindPlace(job_spec, path).field);
      }
    }
  }
  for (const TierSetting& setting : row.settings) {
    if (Holds(setting, job_spec)) {
      SetPlace(job_spec, std::string(setting.path), setting.value);
    }
  }
  // Options of the optimizer that the job does not have yet.
  FillRowDefaults(job_spec);
  return job_spec;
}

}  // namespace hearth::spec
