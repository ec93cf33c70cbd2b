#include "coordinator/core/jobs/job_states.h"

#include "coordinator/core/errors.h"
#include "coordinator/core/transitions.h"

namespace hearth::coordinator {

JobState* JobStates::FindOrReply(const std::string& job_id) {
  JobState* job = jobs_.Edit(job_id);
  if (job == nullptr) {
    turn_.ReplyError(JobNotFound(job_id));
  }
  return job;
}

JobState* JobStates::FindOrReply(const std::string& job_id, const std::string& etag) {
  JobState* job = FindOrReply(job_id);
  if (job != nullptr && !etag.empty() && etag != job->job().etag()) {
    turn_.ReplyError(EtagMismatch(job_id));
    return nullptr;
  }
  return job;
}

void JobStates::AddEvent(JobState& job,
                         const std::string& type,
                         const std::string& actor,
                         const std::string& code,
                         const std::string& message,
                         v1::JobState from,
                         v1::JobState to) {
  jobs_.AddEvent(job, {type, actor, code, message}, from, to, turn_.now(), turn_.effects());
}

void JobStates::Note(JobState& job,
                     const std::string& type,
                     const std::string& actor,
                     const std::string& message) {
  AddEvent(job, type, actor, job.job().reason_code(), message, job.state(), job.state());
}

void JobStates::Transition(JobState& job,
                           v1::JobState to,
                           const std::string& actor,
                           const std::string& code,
                           const std::string& reason) {
  const bool had_gang = HasGang(job.state());
  jobs_.Transition(job, to, actor, code, reason, turn_.now(), turn_.effects());
  if (had_gang && !HasGang(to)) {
    rendezvous_.Clear(job.job().job_id(), turn_.effects());
    folders_.LookAtRootsOf(job);  // the gang may have left folders behind
  }
}

}  // namespace hearth::coordinator
