// The folder under which this host keeps checkpoints: <root>/<job_id>/e<epoch>/step-<8 digits>/.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/io/env.h"
#include "hearth/v1/agent.pb.h"

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

  // Removes `path`, which must be below <root>/<job_id>, and the epoch's folder if it was the last
  // in it. <root>/<job_id> itself: all checkpoint folders in it; kFailedPrecondition names what
  // else there is and stays. Absent is OK. kInvalidArgument: anywhere else, or reached through a
  // symbolic link or "..".
  absl::Status Delete(const std::string& job_id, const std::string& path) const;
  // The same for a folder with nothing in it; one that has stays, which is OK.
  absl::Status DeleteIfEmpty(const std::string& job_id, const std::string& path) const;

  struct Piece {
    std::string data;
    int64_t file_bytes = 0;  // of the whole file
  };
  // At most `max_bytes` bytes from `offset` on of `file`, a path in the checkpoint folder `path`,
  // which is <root>/<job_id>/e<epoch>/step-<N>; fewer at the end of the file, none behind it. No
  // symbolic link is followed on the way. kInvalidArgument: another folder, or a path that is not
  // plain; kNotFound: no such file; kFailedPrecondition: it cannot be read.
  absl::StatusOr<Piece> Read(const std::string& job_id,
                             const std::string& path,
                             const std::string& file,
                             int64_t offset,
                             int64_t max_bytes) const;

  // What lies in the epochs of all jobs, by job and epoch, at most `limit` (then `truncated` is
  // set): checkpoints, what interrupted writes and removals left, and empty epochs. Symbolic links
  // and names that are not made here are left out. `between` is called before each folder; false
  // ends the listing there.
  v1::CheckpointFolders List(int limit, const std::function<bool()>& between) const;

 private:
  CheckpointRoot(std::string path, std::string uuid, Env& env);
  // The folder's path without a trailing slash, checked; empty = it is not there.
  absl::StatusOr<std::string> CheckPath(const std::string& job_id, const std::string& path) const;
  // In one step out of sight, then away.
  absl::Status Remove(const std::string& folder) const;
  absl::Status DeleteJob(const std::string& job_dir) const;

  std::string path_;
  std::string uuid_;
  Env* env_;
};

}  // namespace hearth::worker
