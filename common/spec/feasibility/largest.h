// The largest model of a family that trains on a GPU in this version: a job's model with more or
// fewer layers and heads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/spec/feasibility/memory/state_choice.h"
#include "common/spec/fields/memory_tiers.h"
#include "hearth/v1/job.pb.h"

namespace hearth::spec {

struct FamilyModel {
  int64_t layers = 0;
  int64_t hidden = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t ffn_hidden = 0;
  int64_t parameters = 0;
  int64_t total_bytes = 0;  // of each GPU, with the smallest micro-batch, recompute: block and
                            // gradients in bf16
};

// Models of the job's family, the smallest first, until one takes more than `most_bytes` (of a GPU,
// of `gpus`). Width grows by whole groups of heads, layers with it, by 3/4, 1 and 5/4 of that.
// `job_spec` as FeasibilityJudge. Errors of MakePlanInputs.
absl::StatusOr<std::vector<FamilyModel>> FamilyOf(const v1::JobSpec& job_spec,
                                                  int gpus,
                                                  int64_t most_bytes);

// The job's family in a format that this version trains it in.
struct FormatFamily {
  StateChoice format;  // its gradients are those of FamilyModel
  std::vector<FamilyModel> models;
  std::string tier = {};  // "memory_tier: 1"; empty: the format alone
};
// One for each of AllowedChoices, and for each tier (MemoryTierRows) that the job's recipe allows,
// with what it sets in a job of the smallest micro-batch. Errors of FamilyOf.
absl::StatusOr<std::vector<FormatFamily>> FamiliesOf(const v1::JobSpec& job_spec,
                                                     int gpus,
                                                     int64_t most_bytes);

// The job's own model in a tier, as FamiliesOf measures it. kInvalidArgument: the job's recipe does
// not allow the tier; errors of FamilyOf.
absl::StatusOr<FamilyModel> ModelInTier(const v1::JobSpec& job_spec,
                                        int gpus,
                                        const MemoryTierRow& row);

// The one with the most parameters that a GPU of `bytes` trains, with the margin that the trainer
// leaves (kOverheadMarginBytes); nullptr: none.
const FamilyModel* LargestOf(const std::vector<FamilyModel>& family, int64_t bytes);
// The one after that; nullptr: the family ends there.
const FamilyModel* FirstTooLarge(const std::vector<FamilyModel>& family, int64_t bytes);

}  // namespace hearth::spec
