// A job for a GPU, to be planned; for tests.
#pragma once

#include <string>
#include <vector>

#include "common/spec/gpus/gpus.h"
#include "common/spec/model/presets.h"
#include "common/spec/resolve/resolve.h"
#include "gtest/gtest.h"
#include "hearth/v1/job.pb.h"

namespace hearth::spec {

// As a job file has it. A preset without a vocabulary gets one.
inline v1::JobSpec PlannedJobFile(const std::string& preset,
                                  const std::string& recipe,
                                  int micro_batch = 4,
                                  int sequence = 1024) {
  v1::JobSpec job;
  job.set_name("job");
  job.mutable_model()->set_preset(preset);
  if (const Preset* row = FindPreset(preset); row != nullptr && !row->model.has_vocab()) {
    job.mutable_model()->set_vocab(4096);
  }
  job.mutable_data()->add_train()->set_path("/data");
  job.mutable_data()->set_sequence_length(sequence);
  job.mutable_precision()->set_recipe(recipe);
  job.mutable_batch()->set_micro_batch_size(micro_batch);
  job.mutable_batch()->set_global_batch_tokens(int64_t{micro_batch} * sequence * 4);
  job.mutable_optimizer()->set_name("adamw");
  job.mutable_optimizer()->set_lr(1e-4);
  job.mutable_train()->set_steps(1000);
  job.mutable_resources()->set_device("cuda");
  return job;
}

// Resolved. `refusals` gets what is wrong with the job; without it nothing may be.
inline v1::JobSpec PlannedJob(const std::string& preset,
                              const std::string& recipe,
                              int micro_batch = 4,
                              int sequence = 1024,
                              std::vector<FieldViolation>* refusals = nullptr) {
  v1::JobSpec job = PlannedJobFile(preset, recipe, micro_batch, sequence);
  std::vector<FieldViolation> violations;
  Resolve(job, violations);
  if (refusals != nullptr) {
    *refusals = violations;
  } else {
    EXPECT_TRUE(violations.empty()) << ViolationsToStatus(violations);
  }
  return job;
}

inline const GpuRow& GpuNamed(const std::string& name) {
  const auto row = GpuByName(name);
  EXPECT_TRUE(row.ok()) << row.status();
  return **row;
}

}  // namespace hearth::spec
