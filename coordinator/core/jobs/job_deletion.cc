#include "coordinator/core/jobs/job_deletion.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/core/errors.h"
#include "coordinator/core/transitions.h"

namespace hearth::coordinator {

std::vector<CommandRow> JobDeletion::Rows() {
  return {
      Row<&JobDeletion::Delete>("delete_job"),
  };
}

void JobDeletion::Delete(const v1::DeleteJobRequest& request) {
  JobState* job = states_.FindOrReply(request.job_id(), request.etag());
  if (job == nullptr) {
    return;
  }
  if (!IsTerminal(job->state()) && job->state() != v1::JOB_STATE_PAUSED) {
    turn_.ReplyError(MakeError(absl::StatusCode::kFailedPrecondition, "JOB_ALIVE",
                               absl::StrCat("job ", request.job_id(), " is ",
                                            StateName(job->state()), "; cancel it first")));
    return;
  }
  Reply& reply = turn_.ReplyOk();
  reply.job = job->job();
  // Unless asked for, checkpoint folders stay: they are model folders that somebody may use.
  v1::DeleteJobResponse& deleted = reply.deleted.emplace();
  for (v1::JobFolder& folder : folders_.FoldersOf(*job)) {
    if (request.checkpoints() && !folder.worker_id().empty()) {
      v1::CoordinatorMessage message;
      message.mutable_delete_checkpoint()->set_job_id(request.job_id());
      message.mutable_delete_checkpoint()->set_path(folder.path());
      turn_.Send(*workers_.Find(folder.worker_id()), std::move(message));
      folder.set_removing(true);
    }
    folders_.LookAt(folder.root_uuid(), absl::Seconds(5));
    *deleted.add_folders() = std::move(folder);
  }
  // The id may be used again, with epochs from 1: agents must not take those for stale ones.
  v1::CoordinatorMessage forget;
  forget.mutable_forget()->set_job_id(request.job_id());
  forget.mutable_forget()->set_epoch(job->job().epoch());
  for (const auto& [id, worker] : workers_.all()) {
    turn_.Send(worker, forget);
  }
  jobs_.Delete(request.job_id(), turn_.effects());
  gangs_.Drop(request.job_id());
  rendezvous_.Drop(request.job_id());
}

}  // namespace hearth::coordinator
