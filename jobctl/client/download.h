// A checkpoint of a job, copied to this machine through the coordinator.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/io/env.h"
#include "jobctl/client/client.h"

namespace hearth::jobctl {

struct DownloadOptions {
  std::string job_id;
  int64_t step = 0;    // 0 = the newest
  std::string out;     // folder to make; must not exist yet
  bool state = false;  // also what only a resume reads
};

struct DownloadProgress {
  std::string file;
  int64_t done = 0;   // bytes of all files that have arrived
  int64_t total = 0;  // bytes of all files
};

struct Downloaded {
  v1::Checkpoint checkpoint;
  int64_t files = 0;
  int64_t bytes = 0;    // of them
  int64_t fetched = 0;  // of these, in this call; the rest was here already
};

// Runs one stream from where it broke, again while the coordinator or the worker is away; as
// RetryStream of command_row.h.
using DownloadRetry =
    std::function<absl::Status(const std::function<absl::Status(const std::function<void()>&)>&)>;

// Copies file by file into OUT.downloading and, when the checksums of MANIFEST.json hold, moves
// that to OUT. A call that is repeated after a break goes on behind the bytes that are there, with
// the same checkpoint. Without `state` MANIFEST.json lists the files that are there. Takes the
// memory of one message.
//   kAlreadyExists: OUT is there. kAborted: the checkpoint was replaced meanwhile; the next call
//   begins again. kDataLoss names the file that does not have its checksum; it is removed, and the
//   next call fetches it again. Otherwise the errors of the call and of Env, after which what was
//   copied stays for the next call.
absl::StatusOr<Downloaded> DownloadCheckpoint(
    Env& env,
    Client& client,
    const DownloadOptions& options,
    const DownloadRetry& retry,
    const std::function<void(const DownloadProgress&)>& progress);

}  // namespace hearth::jobctl
