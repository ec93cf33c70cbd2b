#include "coordinator/service/streams/open_stream.h"

#include "absl/strings/str_cat.h"
#include "common/rpc/grpc_status.h"

namespace hearth::coordinator {

absl::StatusOr<v1::Checkpoint> FindCheckpoint(const Core& core,
                                              const std::string& job_id,
                                              int64_t step) {
  const v1::JobRecord* job = core.FindJob(job_id);
  if (job == nullptr) {
    return rpc::NotFoundError("job", job_id);
  }
  for (const v1::Checkpoint& checkpoint : job->checkpoints()) {  // newest first
    if (step == 0 || checkpoint.step() == step) {
      return checkpoint;
    }
  }
  return rpc::NotFoundError("checkpoint", absl::StrCat(job_id, "/", step));
}

}  // namespace hearth::coordinator
