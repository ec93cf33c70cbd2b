#include "jobctl/commands/jobs/job_choice.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/substitute.h"
#include "common/base/status_macros.h"
#include "jobctl/commands/arguments.h"
#include "jobctl/commands/jobs/job_labels.h"
#include "jobctl/views/output/output.h"

namespace hearth::jobctl {
namespace {

constexpr int kPage = 1000;

struct LabelledDef {
  Labelled labelled;
  bool (*takes)(v1::JobState state);
  const char* help;
  const char* none;  // there are jobs with the label $0, but none of these
};

constexpr LabelledDef kLabelled[] = {
    {Labelled::kAll, [](v1::JobState) { return true; }, "Also all jobs with this label", ""},
    {Labelled::kUnderWay, [](v1::JobState state) { return !Rests(state); },
     "Also the jobs with this label that are under way", "no job with the label $0 is under way"},
    {Labelled::kOpen, [](v1::JobState state) { return !Ended(state); },
     "Also the jobs with this label that have not ended", "all jobs with the label $0 have ended"},
    {Labelled::kPaused, [](v1::JobState state) { return state == v1::JOB_STATE_PAUSED; },
     "Also the jobs with this label that are paused", "no job with the label $0 is paused"},
    {Labelled::kAtRest, Rests, "Also the jobs with this label that have ended or are paused",
     "all jobs with the label $0 are under way"},
};

const LabelledDef& DefOf(Labelled labelled) {
  return *std::find_if(std::begin(kLabelled), std::end(kLabelled),
                       [labelled](const LabelledDef& row) { return row.labelled == labelled; });
}

std::string LabelsText(const JobChoice& choice) {
  return absl::StrJoin(choice.labels, " and ");
}

// The jobs with these labels, newest first.
absl::StatusOr<std::vector<v1::Job>> JobsWithLabels(Client& client, const JobChoice& choice) {
  std::vector<v1::Job> jobs;
  v1::ListJobsRequest request;
  request.set_filter(LabelFilter(choice.labels));
  request.set_page_size(kPage);
  do {
    HEARTH_ASSIGN_OR_RETURN(const v1::ListJobsResponse page,
                            client.Call<v1::ListJobsResponse>(request));
    jobs.insert(jobs.end(), page.jobs().begin(), page.jobs().end());
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  return jobs;
}

absl::Status ConfirmChange(const JobChoice& choice, const std::vector<std::string>& job_ids) {
  const std::string jobs = absl::StrCat("job/", absl::StrJoin(job_ids, ", job/"));
  return Confirm(absl::StrCat(choice.asks, " ", jobs, "?"),
                 absl::StrCat("the label ", LabelsText(choice), " means ", jobs));
}

}  // namespace

CLI::Option* AddJobChoice(CLI::App& app, JobChoice& choice, Labelled labelled) {
  choice.labelled = labelled;
  CLI::Option* const jobs =
      app.add_option("job", choice.job_ids, "Job ids, or unambiguous beginnings of ids");
  AddLabels(app, choice.labels, DefOf(labelled).help);
  return jobs;
}

void AddJobsToChange(CLI::App& app, JobChoice& choice, Labelled labelled, std::string asks) {
  AddJobChoice(app, choice, labelled);
  choice.asks = std::move(asks);
  app.add_flag("-y,--yes", choice.yes, "Do not ask before jobs chosen by -l are changed");
}

absl::StatusOr<std::vector<std::string>> ChosenJobs(Client& client, const JobChoice& choice) {
  std::vector<std::string> ids = choice.job_ids;
  if (!choice.labels.empty()) {
    HEARTH_ASSIGN_OR_RETURN(const std::vector<v1::Job> jobs, JobsWithLabels(client, choice));
    // The label is misspelt, or the jobs are deleted: a script should not take that for done.
    if (jobs.empty()) {
      return absl::NotFoundError(absl::StrCat("no job has the label ", LabelsText(choice)));
    }
    for (auto job = jobs.rbegin(); job != jobs.rend(); ++job) {
      if (DefOf(choice.labelled).takes(job->state())) {
        ids.push_back(job->job_id());
      }
    }
  }
  std::vector<std::string> once;
  for (const std::string& id : ids) {
    if (std::find(once.begin(), once.end(), id) == once.end()) {
      once.push_back(id);
    }
  }
  return once;
}

absl::StatusOr<int> ForChosenJobs(
    Context& context,
    const JobChoice& choice,
    const std::function<absl::StatusOr<int>(const std::vector<std::string>& job_ids)>& act) {
  if (choice.job_ids.empty() && choice.labels.empty()) {
    WriteErr("error: give a job, or -l with a label\n");
    return kExitUsage;
  }
  HEARTH_ASSIGN_OR_RETURN(Client * client, context.client());
  HEARTH_ASSIGN_OR_RETURN(const std::vector<std::string> job_ids, ChosenJobs(*client, choice));
  if (job_ids.empty()) {
    WriteErr(absl::StrCat(absl::Substitute(DefOf(choice.labelled).none, LabelsText(choice)),
                          "; jobctl list -l ", absl::StrJoin(choice.labels, " -l "),
                          " shows them\n"));
    return kExitOk;
  }
  if (!choice.labels.empty() && !choice.asks.empty() && !choice.yes) {
    HEARTH_RETURN_IF_ERROR(ConfirmChange(choice, job_ids));
  }
  return act(job_ids);
}

}  // namespace hearth::jobctl
