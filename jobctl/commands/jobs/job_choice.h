// Which jobs a command is about: those with these ids, and with -l those with a label.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "hearth/v1/job.pb.h"
#include "jobctl/commands/command_context.h"

namespace hearth::jobctl {

// Those of the jobs with a label that -l means.
enum class Labelled {
  kAll,
  kUnderWay,  // neither ended nor paused
  kOpen,      // not ended
  kPaused,
  kAtRest,  // ended or paused
};

struct JobChoice {
  std::vector<std::string> job_ids;
  std::vector<std::string> labels;  // key=value or key; a job has to have all of them
  Labelled labelled = Labelled::kAll;
  std::string asks;  // the verb of the question before jobs chosen by -l are changed; "" = none
  bool yes = false;  // --yes: does not ask

  // More than one job may be meant: programs get a list.
  bool several() const { return !labels.empty() || job_ids.size() > 1; }
};

// The argument JOB... and the option -l for `choice`, which must outlive the parse. Returns the
// argument.
CLI::Option* AddJobChoice(CLI::App& app, JobChoice& choice, Labelled labelled);

// The same for a command that changes jobs, with --yes: before it changes jobs that -l chose,
// ForChosenJobs names them and asks "`asks` job/a, job/b?".
void AddJobsToChange(CLI::App& app, JobChoice& choice, Labelled labelled, std::string asks);

// The ids given, then those of the jobs with the labels, oldest first; each once. Empty: there are
// jobs with these labels, but none that -l means. kNotFound: no job has these labels; other errors
// are the coordinator's.
absl::StatusOr<std::vector<std::string>> ChosenJobs(Client& client, const JobChoice& choice);

// Calls `act` with the chosen jobs, at least one, and returns its result. If -l means no job, says
// so on standard error and returns kExitOk. kExitUsage: neither a job nor a label was given.
// kCancelled, kFailedPrecondition: as Confirm, if it has to ask; other errors as ChosenJobs.
absl::StatusOr<int> ForChosenJobs(
    Context& context,
    const JobChoice& choice,
    const std::function<absl::StatusOr<int>(const std::vector<std::string>& job_ids)>& act);

}  // namespace hearth::jobctl
