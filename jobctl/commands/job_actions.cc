#include "jobctl/commands/job_actions.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status.h"
#include "common/base/status_macros.h"
#include "common/base/units.h"
#include "common/config/config.h"
#include "common/io/env.h"
#include "jobctl/client/paths.h"

namespace hearth::jobctl {

absl::StatusOr<absl::Duration> ParseTimeout(const std::string& text, std::string_view option) {
  if (text.empty()) {
    return absl::ZeroDuration();
  }
  absl::StatusOr<absl::Duration> duration = ParseDuration(text);
  if (!duration.ok()) {
    return Annotate(duration.status(), option);
  }
  return duration;
}

absl::StatusOr<absl::Time> ParseSince(const std::string& text,
                                      absl::Time now,
                                      std::string_view option) {
  if (const absl::StatusOr<absl::Duration> ago = ParseDuration(text); ago.ok()) {
    return now - *ago;
  }
  absl::Time time;
  std::string error;
  // As commands print it, then RFC 3339.
  if (absl::ParseTime("%Y-%m-%d %H:%M:%S", text, absl::LocalTimeZone(), &time, &error) ||
      absl::ParseTime(absl::RFC3339_full, text, &time, &error)) {
    return time;
  }
  return absl::InvalidArgumentError(
      absl::StrCat(std::string(option), " ", text,
                   ": expected how long ago (10m) or a time (2026-01-31 17:05:00)"));
}

void AddJobs(CLI::App& app, std::vector<std::string>& job_ids) {
  app.add_option("job", job_ids, "Job ids, or the beginnings of some")->required();
}

void AddRequestId(CLI::App& app, JobTargets& targets) {
  app.add_option("--request-id", targets.request_id,
                 "UUID that makes repeating this command harmless (default: a new one)");
}

absl::StatusOr<int> ForEachJob(const std::vector<std::string>& job_ids,
                               const std::function<absl::Status(const std::string&)>& change) {
  int code = kExitOk;
  for (const std::string& job_id : job_ids) {
    const absl::Status changed = change(job_id);
    if (changed.ok()) {
      continue;
    }
    if (job_ids.size() == 1 || IsRefusedCaller(changed)) {
      return changed;
    }
    WriteErr(absl::StrCat("error: job/", job_id, ": ", changed.message(), "\n"));
    code = kExitError;
  }
  return code;
}

absl::Status Confirm(const std::string& question, const std::string& needs) {
  if (isatty(STDIN_FILENO) == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(needs, "; without a terminal it needs --yes"));
  }
  WriteErr(absl::StrCat(question, " [y/N] "));
  std::string answer;
  std::getline(std::cin, answer);
  if (answer != "y" && answer != "yes") {
    return absl::CancelledError("nothing was changed");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::pair<std::string, std::string>>> ParsePairs(
    const std::vector<std::string>& texts, std::string_view option) {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const std::string& text : texts) {
    std::pair<std::string, std::string> pair = absl::StrSplit(text, absl::MaxSplits('=', 1));
    if (pair.first.empty() || text.find('=') == std::string::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat(std::string(option), ": '", text, "' is not key=value"));
    }
    pairs.push_back(std::move(pair));
  }
  return pairs;
}

absl::StatusOr<std::string> ReadInput(const std::string& path) {
  if (path != "-") {
    return Env::Real().ReadFile(path);
  }
  return std::string(std::istreambuf_iterator<char>(std::cin), {});
}

absl::Status SafeToRetry(const absl::Status& status, const std::string& request_id) {
  if (status.code() != absl::StatusCode::kUnavailable &&
      status.code() != absl::StatusCode::kDeadlineExceeded) {
    return status;
  }
  return absl::Status(status.code(),
                      absl::StrCat(status.message(),
                                   "\nIt is not known whether the coordinator took "
                                   "the request; it is safe to retry with --request-id ",
                                   request_id));
}

std::string DeviceWarning(const std::string& device, const std::vector<v1::Worker>& workers) {
  const bool there = std::any_of(workers.begin(), workers.end(), [&](const v1::Worker& worker) {
    return worker.device().kind() == device;
  });
  if (there) {
    return "";
  }
  const std::string all = workers.empty() ? "there is no worker yet"
                                          : absl::StrCat("no worker has resources.device ", device);
  const bool other = !workers.empty() && device == "cuda";
  return absl::StrCat(all, "; the job waits until hearth-worker --device ",
                      device == "cuda" ? "cuda:0" : device, " joins",
                      other ? " (on the CPU: --set resources.device=cpu)" : "");
}

absl::Status ApplyAssignments(const std::vector<std::string>& assignments, v1::JobSpec& spec) {
  for (const std::string& assignment : assignments) {
    const absl::Status applied = config::ApplyOverride(spec, assignment);
    if (!applied.ok()) {
      return Annotate(applied, absl::StrCat("--set ", assignment));
    }
  }
  return absl::OkStatus();
}

absl::Status ChangeStoredSpec(const std::vector<std::string>& assignments, v1::JobSpec& spec) {
  const v1::ResourceSpec before = spec.resources();
  HEARTH_RETURN_IF_ERROR(ApplyAssignments(assignments, spec));
  v1::ResourceSpec& after = *spec.mutable_resources();
  // Where the two were equal min_workers came from workers, and follows it.
  if (before.min_workers() == before.workers() && after.has_workers() &&
      after.min_workers() == before.min_workers()) {
    after.set_min_workers(after.workers());
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::JobSpec> LoadJobFile(const std::string& path,
                                        const std::vector<std::string>& assignments) {
  HEARTH_ASSIGN_OR_RETURN(const std::string text, ReadInput(path));
  HEARTH_ASSIGN_OR_RETURN(v1::JobSpec spec,
                          config::ParseJobSpec(text, path == "-" ? "<stdin>" : path));
  HEARTH_RETURN_IF_ERROR(ApplyAssignments(assignments, spec));
  const char* home = std::getenv("HOME");  // NOLINT(concurrency-mt-unsafe): nothing sets it
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::current_path(error);
  MakePathsAbsolute(spec, home == nullptr ? "" : home, error ? "/" : folder.string());
  return spec;
}

}  // namespace hearth::jobctl
