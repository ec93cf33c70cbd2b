// The folder under which this host keeps checkpoints: <root>/<job_id>/e<epoch>/step-<8 digits>/.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/io/env.h"

namespace hearth::worker {

// Immutable; thread-safe.
class CheckpointRoot {
 public:
  // Creates the folder and its .hearth-root (a random UUID) when they are missing; two daemons that
  // start at once agree on one UUID. kPermissionDenied, kResourceExhausted, ...: cannot be created
  // or written; kDataLoss: .hearth-root is damaged.
  static absl::StatusOr<CheckpointRoot> Open(const std::string& path, Env& env = Env::Real());

  const std::string& path() const { return path_; }  // absolute, symbolic links resolved
  const std::string& uuid() const { return uuid_; }

  // <root>/<job_id>/e<epoch>. kInvalidArgument: not a job id, epoch < 1.
  absl::StatusOr<std::string> EpochDir(const std::string& job_id, int64_t epoch) const;

  // Removes `path`, which must be <root>/<job_id> or below it. Absent is OK. kInvalidArgument:
  // anywhere else, or reached through a symbolic link or "..".
  absl::Status Delete(const std::string& job_id, const std::string& path) const;

 private:
  CheckpointRoot(std::string path, std::string uuid, Env& env);

  std::string path_;
  std::string uuid_;
  Env* env_;
};

}  // namespace hearth::worker
