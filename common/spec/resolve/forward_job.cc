#include "common/spec/resolve/forward_job.h"

#include <string>
#include <vector>

#include "common/base/status_macros.h"
#include "common/spec/resolve/resolve.h"

namespace hearth::spec {

absl::StatusOr<v1::JobSpec> ResolveForwardJob(const ForwardJob& job) {
  v1::JobSpec spec;
  spec.set_name("model");
  spec.set_task(std::string(job.task));
  *spec.mutable_model() = job.model;
  *spec.mutable_data() = job.data;
  if (spec.data().train().empty()) {
    spec.mutable_data()->add_train()->set_path("model");  // a job has data; nothing opens it
  }
  spec.mutable_train()->set_steps(1);
  spec.mutable_precision()->set_recipe(std::string(job.recipe));
  spec.mutable_resources()->set_device(std::string(job.device));
  std::vector<FieldViolation> violations;
  Resolve(spec, violations);
  HEARTH_RETURN_IF_ERROR(ViolationsToStatus(violations));
  return spec;
}

}  // namespace hearth::spec
