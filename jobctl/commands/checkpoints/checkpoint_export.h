// `jobctl checkpoints export` and `average`: models for other programs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/weights/export.h"
#include "jobctl/commands/command_row.h"

namespace hearth::jobctl {

struct CheckpointExportOptions {
  std::string source;  // a job's id or a folder
  int64_t step = 0;    // of a job; 0 = the newest
  std::string format = "hf";
  std::string dtype = "bf16";
  weights::ExportOptions options;
};

struct CheckpointAverageOptions {
  std::vector<std::string> sources;  // folders, or one job's id
  std::optional<int64_t> last;       // of a job; 5
  std::string dtype = "bf16";
  weights::ExportOptions options;
};

// The subcommands, whose options are written to `options`.
CLI::App* AddCheckpointExport(CLI::App& app, CheckpointExportOptions& options);
CLI::App* AddCheckpointAverage(CLI::App& app, CheckpointAverageOptions& options);

absl::StatusOr<int> CheckpointExport(Context& context, CheckpointExportOptions& options);
absl::StatusOr<int> CheckpointAverage(Context& context, CheckpointAverageOptions& options);

}  // namespace hearth::jobctl
