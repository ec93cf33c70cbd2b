#include "coordinator/core/jobs/evaluated_models.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/spec/evaluation/evaluation_table.h"
#include "coordinator/core/errors.h"

namespace hearth::coordinator {
namespace {

using Models = google::protobuf::RepeatedPtrField<v1::EvaluatedModel>;

absl::Status Nothing(const std::string& message) {
  return MakeError(absl::StatusCode::kInvalidArgument, "NOTHING_TO_EVALUATE", message);
}

absl::Status CheckOwner(const std::string& job_id,
                        const Jobs& jobs,
                        const std::optional<std::string>& owner) {
  const JobState* const job = jobs.Find(job_id);
  if (job == nullptr || !owner.has_value() || job->job().owner() == *owner) {
    return absl::OkStatus();
  }
  const std::string& of = job->job().owner();
  return MakeError(absl::StatusCode::kPermissionDenied, "NOT_YOUR_JOB",
                   absl::StrCat("evaluate.job: job ", job_id, " belongs to ",
                                of.empty() ? "nobody: it is older than users" : of,
                                "; an operator may evaluate their own jobs only"),
                   {{"job_id", job_id}, {"owner", of}});
}

// By step; if several epochs recorded one, that of the newest.
absl::StatusOr<std::vector<v1::Checkpoint>> Recorded(const std::string& job_id, const Jobs& jobs) {
  const JobState* const job = jobs.Find(job_id);
  if (job == nullptr) {
    return Nothing(absl::StrCat("evaluate.job: there is no job ", job_id));
  }
  std::vector<v1::Checkpoint> recorded(job->record().checkpoints().begin(),
                                       job->record().checkpoints().end());
  if (recorded.empty()) {
    return Nothing(absl::StrCat("evaluate.job: no checkpoint of ", job_id, " is recorded"));
  }
  // The record has the newest first.
  std::stable_sort(recorded.begin(), recorded.end(),
                   [](const auto& a, const auto& b) { return a.step() < b.step(); });
  const auto same = [](const auto& a, const auto& b) { return a.step() == b.step(); };
  recorded.erase(std::unique(recorded.begin(), recorded.end(), same), recorded.end());
  return recorded;
}

// Those of evaluate.steps, or all.
absl::StatusOr<std::vector<v1::Checkpoint>> Chosen(const v1::EvaluateSpec& evaluate,
                                                   const Jobs& jobs) {
  HEARTH_ASSIGN_OR_RETURN(const std::vector<v1::Checkpoint> recorded,
                          Recorded(evaluate.job(), jobs));
  std::vector<v1::Checkpoint> chosen;
  std::vector<int64_t> missing(evaluate.steps().begin(), evaluate.steps().end());
  std::vector<int64_t> there;
  for (const v1::Checkpoint& checkpoint : recorded) {
    const auto wanted = std::find(missing.begin(), missing.end(), checkpoint.step());
    if (evaluate.steps().empty() || wanted != missing.end()) {
      chosen.push_back(checkpoint);
    }
    if (wanted != missing.end()) {
      missing.erase(wanted);
    }
    there.push_back(checkpoint.step());
  }
  if (!missing.empty()) {
    return Nothing(absl::StrCat("evaluate.steps: ", evaluate.job(), " has no checkpoint of step ",
                                missing.front(), "; recorded are ", absl::StrJoin(there, ", ")));
  }
  if (chosen.size() > static_cast<size_t>(spec::kEvaluatedModelsMax)) {
    return Nothing(absl::StrCat("evaluate.job: ", evaluate.job(), " has ", chosen.size(),
                                " checkpoints, more than ", spec::kEvaluatedModelsMax,
                                ", the most that a job evaluates; name some in evaluate.steps"));
  }
  return chosen;
}

}  // namespace

absl::StatusOr<Models> EvaluatedModels(const v1::JobSpec& spec,
                                       const Jobs& jobs,
                                       const std::optional<std::string>& owner) {
  const v1::EvaluateSpec& evaluate = spec.evaluate();
  Models models;
  for (const std::string& path : evaluate.models()) {
    models.Add()->mutable_checkpoint()->set_path(path);
  }
  if (evaluate.job().empty()) {
    return models;
  }
  HEARTH_RETURN_IF_ERROR(CheckOwner(evaluate.job(), jobs, owner));
  HEARTH_ASSIGN_OR_RETURN(const std::vector<v1::Checkpoint> chosen, Chosen(evaluate, jobs));
  // The job runs on one worker, which sees one checkpoint root.
  for (const v1::Checkpoint& checkpoint : chosen) {
    if (checkpoint.root_uuid() != chosen.front().root_uuid()) {
      return Nothing(absl::StrCat("evaluate.job: the checkpoints of steps ", chosen.front().step(),
                                  " and ", checkpoint.step(),
                                  " lie in two checkpoint roots; name those of one root in "
                                  "evaluate.steps"));
    }
    *models.Add()->mutable_checkpoint() = checkpoint;
  }
  return models;
}

}  // namespace hearth::coordinator
