#include "jobctl/commands/jobs/job_actions.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "jobctl/commands/command_context.h"

namespace hearth::jobctl {

void AddJobs(CLI::App& app, std::vector<std::string>& job_ids) {
  app.add_option("job", job_ids, "Job ids, or unambiguous beginnings of ids")->required();
}

void AddRequestId(CLI::App& app, std::string& request_id) {
  app.add_option("--request-id", request_id,
                 "UUID that makes repeating this command harmless (default: a new one)");
}

absl::StatusOr<v1::ListJobsResponse> GetJobs(Client& client,
                                             const std::vector<std::string>& job_ids) {
  v1::ListJobsResponse all;
  for (const std::string& job_id : job_ids) {
    v1::GetJobRequest request;
    request.set_job_id(job_id);
    HEARTH_ASSIGN_OR_RETURN(*all.add_jobs(), client.Call<v1::Job>(request));
  }
  return all;
}

}  // namespace hearth::jobctl
