// What all commands share: settings, the connection, exit codes.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/spec/feasibility/prices.h"
#include "hearth/v1/job.pb.h"
#include "jobctl/client/client.h"
#include "jobctl/views/output/output.h"

namespace hearth::jobctl {

// Exit codes, part of the interface (docs/jobctl.md).
enum ExitCode {
  kExitOk = 0,
  kExitError = 1,
  kExitUsage = 2,
  kExitDoesNotFit = 3,  // plan: NO on every GPU that was asked for
  kExitAuth = 4,        // no usable token, or the coordinator refuses the caller
  kExitJobFailed = 100,
  kExitTimedOut = 101,
  kExitNotFound = 102,
  kExitJobCancelled = 103,
};

// What all commands share. Lives as long as the process.
struct Context {
  ConnectOptions connect;
  std::string context_path;  // of the context file; need not exist
  std::string context_name;  // of the context that counts, "" = none
  OutputFormat format = OutputFormat::kTable;
  bool quiet = false;
  bool no_color = false;  // --no-color; ColorWanted() also reads NO_COLOR
  spec::Prices prices;
  double temperature_limit = 85.0;  // degrees Celsius above which a device is too hot

  // Connects on first use.
  absl::StatusOr<Client*> client();

 private:
  std::unique_ptr<Client> client_;
};

// The end state's exit code: succeeded and paused 0, failed 100, cancelled 103.
int ExitCodeOf(v1::JobState state);

}  // namespace hearth::jobctl
