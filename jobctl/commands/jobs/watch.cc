#include <memory>

#include "CLI/CLI.hpp"
#include "common/base/status_macros.h"
#include "jobctl/commands/arguments.h"
#include "jobctl/commands/command_row.h"
#include "jobctl/commands/jobs/follow.h"

namespace hearth::jobctl {
namespace {

struct Options {
  FollowOptions follow;
  std::string timeout;
};

absl::StatusOr<int> Run(Context& context, Options options) {
  HEARTH_ASSIGN_OR_RETURN(options.follow.timeout, ParseTimeout(options.timeout, "--timeout"));
  return FollowJob(context, options.follow);
}

}  // namespace

Action SetupWatch(CLI::App& app) {
  auto options = std::make_shared<Options>();
  options->follow.exit_status = false;
  app.add_option("job", options->follow.job_id, "Job id")->required();
  app.add_flag("--exit-status", options->follow.exit_status, "Exit as `wait` does");
  app.add_option("--timeout", options->timeout, "Give up after this time, e.g. 10m");
  return [options](Context& context) { return Run(context, *options); };
}

}  // namespace hearth::jobctl
