#include "jobctl/commands/jobs/start_options.h"

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"
#include "common/time/clock.h"
#include "jobctl/commands/arguments.h"
#include "jobctl/views/output/output.h"

namespace hearth::jobctl {

void AddStartOptions(CLI::App& app, StartOptions& options) {
  app.add_option("--at", options.at,
                 "Start no sooner than this: 22:00, +2h (from now), \"2026-01-31 17:05\" (local "
                 "time), or RFC 3339")
      ->type_name("TIME");
  app.add_option(
         "--after", options.after,
         "Start when this job has succeeded; if it does not succeed, the new job is cancelled")
      ->type_name("JOB");
}

absl::Status TakeStart(const StartOptions& options, v1::JobSpec& spec) {
  if (!options.after.empty()) {
    spec.mutable_start()->set_after(options.after);
  }
  if (options.at.empty()) {
    return absl::OkStatus();
  }
  const absl::TimeZone zone = absl::LocalTimeZone();
  HEARTH_ASSIGN_OR_RETURN(const absl::Time time,
                          ParseStartTime(options.at, Clock::Real().Now(), zone, "--at"));
  const int64_t seconds = absl::ToUnixSeconds(time);
  spec.mutable_start()->mutable_not_before()->set_seconds(seconds);
  spec.mutable_start()->mutable_not_before()->set_nanos(
      static_cast<int32_t>(absl::ToInt64Nanoseconds(time - absl::FromUnixSeconds(seconds))));
  WriteErr(absl::StrCat("starts at ", absl::FormatTime("%Y-%m-%d %H:%M:%S %Z", time, zone),
                        " or later\n"));
  return absl::OkStatus();
}

}  // namespace hearth::jobctl
