// The table of memory_tier: names for combinations of fields that save memory.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/types/span.h"
#include "hearth/v1/job.pb.h"

namespace hearth::spec {

// A field that a tier sets where the job file does not.
struct TierSetting {
  std::string_view path;       // of a text or a boolean
  std::string_view value;      // one of its row's names; "true"
  std::string_view when = {};  // the condition (conditions.h) without which it is left out
};

struct MemoryTierRow {
  int32_t tier = 0;
  std::string_view name;     // "proven"
  std::string_view comment;  // what it adds to the tier before it
  absl::Span<const TierSetting> settings;
};

// From the safest to the one that takes the least. Rows live for ever.
absl::Span<const MemoryTierRow> MemoryTierRows();

// The settings of the job's tier whose conditions hold, in fields that it does not give. Called
// before FillRowDefaults.
void FillMemoryTier(v1::JobSpec& job_spec);

// The job with the tier's settings in place of its own; those whose condition does not hold are as
// without a tier. Expects a resolved spec.
v1::JobSpec WithMemoryTier(v1::JobSpec job_spec, const MemoryTierRow& row);

}  // namespace hearth::spec
