#include "coordinator/core/agents/admission.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "coordinator/core/errors.h"

namespace hearth::coordinator {
namespace {

bool IsRetired(const v1::WorkerRecord& record, const std::string& incarnation) {
  for (const std::string& old : record.retired_incarnations()) {
    if (old == incarnation) {
      return true;
    }
  }
  return false;
}

}  // namespace

absl::Status Admission::Check(const AgentConnected& command) const {
  const v1::Hello& hello = command.hello;
  if (absl::Status id = ValidateWorkerId(hello.worker_id()); !id.ok()) {
    return MakeError(id.code(), "BAD_WORKER_ID", std::string(id.message()));
  }
  if (hello.incarnation().empty() || hello.device().kind().empty()) {
    return MakeError(absl::StatusCode::kInvalidArgument, "BAD_HELLO",
                     "Hello needs an incarnation and a device kind");
  }
  // The worker has obeyed a later start of the coordinator than this one: this store is an old
  // copy, and what it says of jobs may be undone work.
  if (hello.generation() > options_.generation) {
    return MakeError(absl::StatusCode::kAborted, "STALE_GENERATION",
                     absl::StrCat("this coordinator is generation ", options_.generation,
                                  ", the worker has seen ", hello.generation(),
                                  "; if its store was put back from a copy, start it once with "
                                  "--restore"));
  }
  if (workers_.all().size() >= options_.max_workers &&
      workers_.Find(hello.worker_id()) == nullptr) {
    return MakeError(absl::StatusCode::kResourceExhausted, "TOO_MANY_WORKERS",
                     absl::StrCat(workers_.all().size(),
                                  " workers are known, which is the limit; delete "
                                  "those that will not come back"));
  }
  for (const auto& [id, worker] : workers_.all()) {
    const v1::Worker& known = worker.worker();
    // A connection alone proves nothing: after a cut cable it stays open for minutes.
    const bool live = worker.connection != 0 && !liveness_.Silent(worker, turn_.mono());
    if (id == hello.worker_id()) {
      // The key is asked first: what the others tell is for the owner of the name alone.
      if (!worker.record.name_key_sha256().empty() &&
          worker.record.name_key_sha256() != command.name_key_sha256) {
        return MakeError(
            absl::StatusCode::kAlreadyExists, "WORKER_NAME_TAKEN",
            absl::StrCat("the name ", id, " belongs to a worker with another data dir (host ",
                         known.host(), "); if that one is gone for good: jobctl forget ", id));
      }
      if (IsRetired(worker.record, hello.incarnation())) {
        return MakeError(absl::StatusCode::kAborted, "STALE_INCARNATION",
                         absl::StrCat("a newer daemon has taken the name ", id));
      }
      if (live && known.incarnation() != hello.incarnation()) {
        return MakeError(
            absl::StatusCode::kAlreadyExists, "WORKER_NAME_TAKEN",
            absl::StrCat("another live worker has the name ", id, " (host ", known.host(), ")"));
      }
    } else if (live && !hello.device().uuid().empty() &&
               known.device().uuid() == hello.device().uuid()) {
      return MakeError(absl::StatusCode::kAlreadyExists, "GPU_TAKEN",
                       absl::StrCat("GPU ", hello.device().uuid(), " belongs to live worker ", id));
    }
  }
  return absl::OkStatus();
}

}  // namespace hearth::coordinator
