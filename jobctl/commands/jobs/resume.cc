#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "common/reasons/reason_codes.h"
#include "jobctl/commands/command_row.h"
#include "jobctl/commands/jobs/job_actions.h"

namespace hearth::jobctl {

namespace {

// What the call did, by the job it returned: a job that was not stopped stays as it is.
std::string ResumedText(const v1::Job& job) {
  if (job.reason_code() == reasons::kUserResume) {
    return "resumed";
  }
  return job.state() == v1::JOB_STATE_PAUSING
             ? "is PAUSING; it resumes once it has paused"
             : absl::StrCat("is ", StateName(job.state()), ", nothing to resume",
                            job.reason().empty() ? "" : ": ", job.reason());
}

}  // namespace

Action SetupResume(CLI::App& app) {
  auto targets = std::make_shared<JobTargets>();
  auto request = std::make_shared<v1::ResumeJobRequest>();
  AddJobsToChange(app, targets->choice, Labelled::kPaused, "Resume");
  AddRequestId(app, targets->request_id);
  app.add_option_function<std::string>(
         "--set", [request](const std::string& assignment) { request->add_overrides(assignment); },
         "Override a field that a resume may change: path=value, repeatable")
      ->allow_extra_args(false)
      ->trigger_on_parse();
  return [targets, request](Context& context) {
    return ChangeJobs(context, *targets, *request, ResumedText);
  };
}

}  // namespace hearth::jobctl
