// Where a job continues when its next gang starts. Pure.
#pragma once

#include <cstdint>
#include <string_view>

#include "hearth/v1/job.pb.h"

namespace hearth::coordinator {

struct ResumePoint {
  int64_t step = 0;  // steps that are done for good
  // Checkpoint root that the workers must see, and the step of the checkpoint that is read there;
  // empty and 0: none.
  std::string_view root_uuid;
  int64_t checkpoint_step = 0;
};

// Where the task trains, that is the newest checkpoint. A task that reads models goes on after the
// last step that was reported, with the next model. The text lives as long as `job` is unchanged.
ResumePoint ResumePointOf(const v1::Job& job);

}  // namespace hearth::coordinator
