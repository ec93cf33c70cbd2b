// hearth-coordinator --backup: copies a data dir, also while its coordinator runs.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/io/env.h"

namespace hearth::coordinator {

struct BackupReport {
  int64_t jobs = 0;   // rows copied
  int64_t files = 0;  // histories and logs copied
  int64_t bytes = 0;  // of store.db and all segment files
};

// Copies `data_dir` to `folder`, which must not exist or be empty; its parent must exist. The copy
// holds what was committed at one moment: store.db through SQLite's online backup, then each
// history and log exactly as far as that store.db records them. It is made as `<folder>.partial`,
// read back like --check does, and renamed only if nothing is damaged, so a folder with the name
// asked for is always whole. Everything in it is on the disk when this returns OK. `stopped` is
// asked before each file: when it says true, the copy ends with kUnavailable and nothing is left.
//
// kFailedPrecondition: no data dir of ours, or the schema is newer than this program's;
// kAlreadyExists: `folder` has something in it; kNotFound: its parent does not exist; kDataLoss:
// the copy, and so most likely the original, is damaged (the text names what; `<folder>.partial`
// stays); kAborted: jobs were deleted or segments dropped during each of several attempts; other
// errors as in Env and Database.
absl::StatusOr<BackupReport> BackupDataDir(const std::string& data_dir,
                                           const std::string& folder,
                                           const std::function<bool()>& stopped = nullptr,
                                           Env& env = Env::Real());

}  // namespace hearth::coordinator
