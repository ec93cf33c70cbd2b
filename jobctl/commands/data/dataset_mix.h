// `jobctl dataset mix`: shows what a job will draw from a mixture of datasets.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "jobctl/commands/command_row.h"

namespace hearth::jobctl {

struct DatasetMixOptions {
  std::vector<std::string> sources;  // PATH or PATH=WEIGHT
  std::string job_file;              // instead of `sources`
  std::vector<std::string> assignments;
  int64_t sequence_length = 1024;
  int64_t tokens = 0;  // 0: as many as the sources have
};

// The subcommand, whose options are written to `options`.
CLI::App* AddDatasetMix(CLI::App& app, DatasetMixOptions& options);

// Prints the shares, tokens and passes, and warnings to stderr. Errors: those of MakeMixReport and
// facts::CompareTokenizers; of a job file also those of Resolve.
absl::StatusOr<int> DatasetMix(Context& context, const DatasetMixOptions& options);

}  // namespace hearth::jobctl
