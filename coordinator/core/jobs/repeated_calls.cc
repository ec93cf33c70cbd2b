#include "coordinator/core/jobs/repeated_calls.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/core/errors.h"

namespace hearth::coordinator {

bool RepeatedCalls::AnsweredBefore(const RequestKey& key, const CommandRow& row) {
  const v1::RequestRecord* found =
      key.request_id.empty() ? nullptr : requests_.Find(key.request_id);
  if (found == nullptr) {
    return false;
  }
  const v1::RequestRecord& earlier = *found;
  if (earlier.method() != row.request_method ||
      (!key.job_id.empty() && earlier.job_id() != key.job_id)) {
    turn_.ReplyError(MakeError(absl::StatusCode::kInvalidArgument, "REQUEST_ID_REUSED",
                               absl::StrCat("request_id ", key.request_id, " was used to ",
                                            earlier.method(), " job ", earlier.job_id())));
  } else if (const JobState* job = jobs_.Find(earlier.job_id())) {
    turn_.ReplyJob(job->job());
  } else {
    turn_.ReplyError(JobNotFound(earlier.job_id()));
  }
  return true;
}

void RepeatedCalls::Remember(const RequestKey& key,
                             const CommandRow& row,
                             const std::string& job_id) {
  if (key.request_id.empty()) {
    return;
  }
  v1::RequestRecord record;
  record.set_request_id(key.request_id);
  record.set_method(row.request_method);
  record.set_job_id(job_id);
  *record.mutable_time() = ToProto(turn_.wall());
  requests_.Remember(std::move(record), turn_.mono(), turn_.effects());
}

}  // namespace hearth::coordinator
