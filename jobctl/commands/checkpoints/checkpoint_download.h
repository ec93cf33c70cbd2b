// `jobctl checkpoints download`: a checkpoint of a job as a folder on this machine.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "jobctl/client/download.h"
#include "jobctl/commands/command_row.h"

namespace hearth::jobctl {

// The subcommand, whose options are written to `options`.
CLI::App* AddCheckpointDownload(CLI::App& app, DownloadOptions& options);

absl::StatusOr<int> CheckpointDownload(Context& context, const DownloadOptions& options);

// DownloadCheckpoint, with a line that shows the progress on a terminal.
absl::StatusOr<Downloaded> DownloadShown(Context& context, const DownloadOptions& options);

// A model on this machine: a folder, or a job's checkpoint. A checkpoint is used in place if this
// machine has it; otherwise it is copied to a folder of this process.
class LocalModel {
 public:
  // `source`: a folder or a job's id. `step` of a job, 0 = the newest. `beside`: a copy is made at
  // BESIDE.source-STEP; an interrupted command leaves it there, so that the repeated command can
  // continue. With `state` the copy also has the files that only a resume reads.
  static absl::StatusOr<LocalModel> Find(Context& context,
                                         const std::string& source,
                                         int64_t step,
                                         const std::string& beside,
                                         bool state = false);

  const std::string& folder() const { return folder_; }
  // Removes the copy, if it is one.
  absl::Status Release() const;

 private:
  std::string folder_;
  bool copied_ = false;
};

}  // namespace hearth::jobctl
