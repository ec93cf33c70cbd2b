// A job's memory plan for people: the one text and the one answer of `jobctl plan` and
// `hearth-trainer plan`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/spec/plan/training_plan.h"
#include "hearth/v1/job.pb.h"

namespace hearth::spec {

// What to change when not even a micro-batch of 1 fits; recomputation only in training, and only
// where it is not at its last level already.
std::string LessMemoryAdvice(const TrainingPlanOptions& options);

struct PlanQuery {
  // What a rank may take, bytes: PlannableBytes of its device. Absent: not known, then
  // batch.micro_batch_size must be given.
  std::optional<int64_t> plan_bytes;
  int threads = 1;       // CPU threads of a rank, >= 1
  bool verbose = false;  // a line for each buffer
};

struct PlanReport {
  std::string text;   // several lines
  absl::Status fits;  // kResourceExhausted: beyond plan_bytes, with what would fit
};

// `job_spec` is resolved, vocabulary and model.from included. kResourceExhausted: not even the
// smallest micro-batch of `auto` fits; kInvalidArgument, kUnimplemented as MakePlanInputs.
absl::StatusOr<PlanReport> ReportPlan(const v1::JobSpec& job_spec, const PlanQuery& query);

}  // namespace hearth::spec
