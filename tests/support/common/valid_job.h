// A job that every rule accepts, as a spec and as a job that the coordinator holds; and violations
// as text.
#pragma once

#include <string>
#include <vector>

#include "common/spec/resolve/resolve.h"
#include "hearth/v1/job.pb.h"

namespace hearth::spec {

inline v1::JobSpec ValidJob() {
  v1::JobSpec job;
  job.set_name("a-job");
  job.mutable_model()->set_preset("hearth-112m");
  job.mutable_data()->add_train()->set_path("/data/x");
  job.mutable_train()->set_steps(1000);
  return job;
}

inline v1::Job JobIn(v1::JobState state, const std::string& job_id) {
  v1::Job job;
  job.set_job_id(job_id);
  job.set_state(state);
  *job.mutable_spec() = ValidJob();
  return job;
}

// "field: description", one a line.
inline std::string Print(const std::vector<FieldViolation>& violations) {
  std::string text;
  for (const FieldViolation& violation : violations) {
    text += violation.field + ": " + violation.description + "\n";
  }
  return text;
}

}  // namespace hearth::spec
