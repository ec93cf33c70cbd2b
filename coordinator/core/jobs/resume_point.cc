#include "coordinator/core/jobs/resume_point.h"

#include <algorithm>

#include "common/spec/objective/objective_table.h"

namespace hearth::coordinator {

ResumePoint ResumePointOf(const v1::Job& job) {
  if (spec::Trains(job.spec())) {
    return {job.checkpoint().step(), job.checkpoint().root_uuid(), job.checkpoint().step()};
  }
  ResumePoint point;
  point.step = job.step();
  if (!job.models().empty()) {
    // All models that are checkpoints lie in one root (evaluated_models.h).
    const int next = static_cast<int>(std::min<int64_t>(job.step(), job.models_size() - 1));
    point.root_uuid = job.models(next).checkpoint().root_uuid();
    point.checkpoint_step = job.models(next).checkpoint().step();
  }
  return point;
}

}  // namespace hearth::coordinator
