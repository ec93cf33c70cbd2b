// --at and --after, for commands that submit jobs.
#pragma once

#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "hearth/v1/job_spec.pb.h"

namespace hearth::jobctl {

struct StartOptions {
  std::string at;
  std::string after;
};

void AddStartOptions(CLI::App& app, StartOptions& options);

// Sets start.not_before and start.after to what was given, and says on standard error which time
// was understood. Errors: ParseStartTime.
absl::Status TakeStart(const StartOptions& options, v1::JobSpec& spec);

}  // namespace hearth::jobctl
