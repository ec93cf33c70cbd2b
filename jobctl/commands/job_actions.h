// Pieces that several commands share.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "hearth/v1/job.pb.h"
#include "hearth/v1/worker.pb.h"
#include "jobctl/commands/command_row.h"

namespace hearth::jobctl {

// "90s", "10m", "48h"; empty = zero. kInvalidArgument names the option.
absl::StatusOr<absl::Duration> ParseTimeout(const std::string& text, std::string_view option);

// Repeated key=value options to a map; kInvalidArgument names the option and the text.
absl::StatusOr<std::vector<std::pair<std::string, std::string>>> ParsePairs(
    const std::vector<std::string>& texts, std::string_view option);

// Asks "`question` [y/N]" on a terminal. kCancelled: no; kFailedPrecondition: no terminal, `needs`
// says for what --yes is missing.
absl::Status Confirm(const std::string& question, const std::string& needs);

// Whole file, or standard input for "-".
absl::StatusOr<std::string> ReadInput(const std::string& path);

// How long before `now` ("10m"), or a time ("2026-01-31 17:05:00", RFC 3339). kInvalidArgument
// names the option.
absl::StatusOr<absl::Time> ParseSince(const std::string& text,
                                      absl::Time now,
                                      std::string_view option);

// The jobs that a command changes.
struct JobTargets {
  std::vector<std::string> job_ids;
  std::string request_id;  // that of an earlier try, as SafeToRetry advises; "" = new ones
};

// The required argument JOB..., and --request-id for calls that have one.
void AddJobs(CLI::App& app, std::vector<std::string>& job_ids);
void AddRequestId(CLI::App& app, JobTargets& targets);

// Calls `change` with each id, in order. With one id its error is the result. With several, each
// error is told and the others go on; the result is then kExitError. A caller that the coordinator
// refuses ends it at once.
absl::StatusOr<int> ForEachJob(const std::vector<std::string>& job_ids,
                               const std::function<absl::Status(const std::string&)>& change);

// On an ambiguous network failure (UNAVAILABLE, DEADLINE_EXCEEDED): adds the request id and that
// repeating is safe.
absl::Status SafeToRetry(const absl::Status& status, const std::string& request_id);

// Sends `request` for each of the jobs and prints "job/ID" with `what`, which says what the call
// did by the job that it returned.
template <typename Request>
absl::StatusOr<int> ChangeJobs(Context& context,
                               const JobTargets& targets,
                               Request request,
                               const std::function<std::string(const v1::Job&)>& what) {
  if (targets.job_ids.size() > 1 && !targets.request_id.empty()) {
    WriteErr("error: --request-id is for one job\n");
    return kExitUsage;
  }
  HEARTH_ASSIGN_OR_RETURN(Client * client, context.client());
  return ForEachJob(targets.job_ids, [&](const std::string& job_id) {
    request.set_job_id(job_id);
    request.set_request_id(targets.request_id.empty() ? RandomUuid() : targets.request_id);
    const absl::StatusOr<v1::Job> job = client->Call<v1::Job>(request);
    return job.ok() ? PrintMutation(context.format, context.quiet, "job/" + job->job_id(),
                                    what(*job), *job)
                    : SafeToRetry(job.status(), request.request_id());
  });
}

// Applies --set in order; errors begin with "--set path=value: ".
absl::Status ApplyAssignments(const std::vector<std::string>& assignments, v1::JobSpec& spec);
// The same to a spec with all defaults: resources.min_workers stays equal to workers if it was.
// Other values that once followed from a changed one stay as they are.
absl::Status ChangeStoredSpec(const std::vector<std::string>& assignments, v1::JobSpec& spec);

// Reads the job file, applies --set in order, and makes paths that begin with ~ or . absolute.
absl::StatusOr<v1::JobSpec> LoadJobFile(const std::string& path,
                                        const std::vector<std::string>& assignments);

// What is wrong if no worker among `workers`, all that the coordinator knows, trains on `device`
// ("cpu" or "cuda"); "" otherwise. A worker that is lost or offline counts, as it may come back.
std::string DeviceWarning(const std::string& device, const std::vector<v1::Worker>& workers);

}  // namespace hearth::jobctl
