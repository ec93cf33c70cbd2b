#include "jobctl/commands/command_context.h"

#include <utility>

namespace hearth::jobctl {

absl::StatusOr<Client*> Context::client() {
  if (client_ == nullptr) {
    auto connected = Client::Connect(connect);
    if (!connected.ok()) {
      return connected.status();
    }
    client_ = *std::move(connected);
  }
  return client_.get();
}

int ExitCodeOf(v1::JobState state) {
  switch (state) {
    case v1::JOB_STATE_FAILED:
      return kExitJobFailed;
    case v1::JOB_STATE_CANCELLED:
      return kExitJobCancelled;
    default:
      return kExitOk;
  }
}

}  // namespace hearth::jobctl
