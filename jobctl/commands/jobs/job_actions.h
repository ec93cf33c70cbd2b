// Several jobs with one command.
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
#include "jobctl/commands/arguments.h"
#include "jobctl/commands/command_context.h"
#include "jobctl/commands/for_each.h"
#include "jobctl/commands/jobs/job_choice.h"

namespace hearth::jobctl {

// The jobs that a command changes.
struct JobTargets {
  JobChoice choice;
  std::string request_id;  // that of an earlier try, as SafeToRetry advises; "" = new ones
};

// The required argument JOB... of a command without -l, and --request-id for calls that have one.
void AddJobs(CLI::App& app, std::vector<std::string>& job_ids);
void AddRequestId(CLI::App& app, std::string& request_id);

// Sends a request that a repeat under the same id does not repeat: under `request_id`, or a new one
// where that is empty, chosen before the call. Errors say how to repeat it (SafeToRetry).
template <typename Request>
absl::StatusOr<v1::Job> CallWithId(Client& client,
                                   const std::string& request_id,
                                   Request& request) {
  request.set_request_id(request_id.empty() ? RandomUuid() : request_id);
  absl::StatusOr<v1::Job> job = client.Call<v1::Job>(request);
  if (!job.ok()) {
    return SafeToRetry(job.status(), request.request_id());
  }
  return job;
}

// The jobs with these ids, in this order, or the first error.
absl::StatusOr<v1::ListJobsResponse> GetJobs(Client& client,
                                             const std::vector<std::string>& job_ids);

// Sends `request` for each of the chosen jobs and prints "job/ID" with `what`, which says what the
// call did by the job that it returned.
template <typename Request>
absl::StatusOr<int> ChangeJobs(Context& context,
                               const JobTargets& targets,
                               Request request,
                               const std::function<std::string(const v1::Job&)>& what) {
  if (targets.choice.several() && !targets.request_id.empty()) {
    WriteErr("error: --request-id is for one job\n");
    return kExitUsage;
  }
  HEARTH_ASSIGN_OR_RETURN(Client * client, context.client());
  const auto change = [&](const std::string& job_id) {
    request.set_job_id(job_id);
    const absl::StatusOr<v1::Job> job = CallWithId(*client, targets.request_id, request);
    return job.ok() ? PrintMutation(context.format, context.quiet, "job/" + job->job_id(),
                                    what(*job), *job)
                    : job.status();
  };
  return ForChosenJobs(context, targets.choice, [&](const std::vector<std::string>& job_ids) {
    return ForEach("job", job_ids, change);
  });
}

}  // namespace hearth::jobctl
