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

// The required argument JOB of a command whose `request` names the job.
template <typename Request>
void AddJobId(CLI::App& app, const std::shared_ptr<Request>& request) {
  app.add_option_function<std::string>(
         "job", [request](const std::string& id) { request->set_job_id(id); }, "Job id")
      ->required();
}

// Gives `request` (shared pointer to a message with a request_id) a new one, and the command the
// option --request-id to choose another: that of an earlier try, as SafeToRetry advises.
template <typename Request>
void AddRequestId(CLI::App& app, const std::shared_ptr<Request>& request) {
  request->set_request_id(RandomUuid());
  app.add_option_function<std::string>(
      "--request-id", [request](const std::string& id) { request->set_request_id(id); },
      "UUID that makes repeating this command harmless (default: a new one)");
}

// On an ambiguous network failure (UNAVAILABLE, DEADLINE_EXCEEDED): adds the request id and that
// repeating is safe.
absl::Status SafeToRetry(const absl::Status& status, const std::string& request_id);

// Sends a request that changes a job and prints "job/ID" with `what`, which says what the call did
// by the job that it returned.
template <typename Request>
absl::StatusOr<int> ChangeJob(Context& context,
                              const Request& request,
                              const std::function<std::string(const v1::Job&)>& what) {
  HEARTH_ASSIGN_OR_RETURN(Client * client, context.client());
  const absl::StatusOr<v1::Job> job = client->Call<v1::Job>(request);
  if (!job.ok()) {
    return SafeToRetry(job.status(), request.request_id());
  }
  HEARTH_RETURN_IF_ERROR(
      PrintMutation(context.format, context.quiet, "job/" + job->job_id(), what(*job), *job));
  return kExitOk;
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
