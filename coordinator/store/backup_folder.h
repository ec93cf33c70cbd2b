// The folder of a coordinator's own backups (--backup-dir): numbered copies of its data dir, of
// which the newest are kept.
//
//   <folder>/backup-<n>-<time, UTC>/    n counts up from 1: the order of the copies, whatever the
//                                       clock said
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/io/env.h"
#include "coordinator/store/backup.h"

namespace hearth::coordinator {

struct BackupFolder {
  std::string path;
  int keep = 7;                // copies; at least 1
  int64_t min_free_bytes = 0;  // that stay free on its file system
};

struct MadeBackup {
  std::string path;  // absolute
  BackupReport report;
  std::vector<std::string> removed;  // older copies, absolute
  int kept = 0;                      // with this one
};

// "<data dir>-backups": where copies go by default.
std::string DefaultBackupFolder(const std::string& data_dir);

// kInvalidArgument: the folder lies in the data dir, or holds it.
absl::Status CheckBackupFolder(const std::string& folder, const std::string& data_dir);

// Makes the next copy (BackupDataDir), then removes the oldest ones beyond `keep`. Makes the folder
// if it is not there. Entries with other names are left alone; what an interrupted copy left behind
// is removed. One at a time. `stopped` as in BackupDataDir.
//
// kResourceExhausted: the copy would leave less than `min_free_bytes`; other errors as in
// BackupDataDir. When an old copy cannot be removed the text says that the new one is there.
absl::StatusOr<MadeBackup> MakeBackup(const std::string& data_dir,
                                      const BackupFolder& folder,
                                      absl::Time now,
                                      const std::function<bool()>& stopped = nullptr,
                                      Env& env = Env::Real());

}  // namespace hearth::coordinator
