#include "jobctl/commands/job_file/plan_at_coordinator.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/spec/feasibility/measured_plan.h"
#include "common/spec/feasibility/plan_messages.h"
#include "jobctl/views/output/output.h"
#include "jobctl/views/output/table.h"

namespace hearth::jobctl {
namespace {

std::string ErrorText(double planned, double measured) {
  return planned > 0 && measured > 0 ? absl::StrFormat("%+.1f %%", 100 * (planned / measured - 1))
                                     : "-";
}

std::string NumberText(const char* format, double value) {
  return value > 0 ? absl::StrFormat(*absl::ParsedFormat<'f'>::New(format), value) : "-";
}

}  // namespace

absl::StatusOr<std::vector<spec::Feasibility>> JudgeAtCoordinator(
    Client& client,
    const v1::JobSpec& job_spec,
    const std::vector<std::string>& gpus,
    const spec::FeasibilityQuery& query) {
  v1::PlanJobRequest request;
  *request.mutable_spec() = job_spec;
  request.mutable_gpus()->Assign(gpus.begin(), gpus.end());
  *request.mutable_question() = spec::QuestionOf(query);
  HEARTH_ASSIGN_OR_RETURN(const v1::PlanJobResponse response,
                          client.Call<v1::PlanJobResponse>(request));
  std::vector<spec::Feasibility> plans;
  for (const v1::PlanJudgement& judgement : response.judgements()) {
    plans.push_back(spec::FeasibilityOf(judgement));
  }
  return plans;
}

absl::StatusOr<std::string> AccuracyOfEndedJobs(Client& client,
                                                const std::string& gpu,
                                                int columns) {
  v1::ListJobPlansRequest request;
  request.set_gpu(gpu);
  HEARTH_ASSIGN_OR_RETURN(const v1::ListJobPlansResponse response,
                          client.Call<v1::ListJobPlansResponse>(request));
  Table table({"JOB", "GPU", "GPUS", "MODEL", "RECIPE", "BATCH", "TOKENS", "MICRO-BATCHES", "TOK/S",
               "PLANNED", "ERROR", "W", "PLANNED", "ERROR", "GB", "PLANNED", "ERROR", "STEPS"});
  for (const v1::JobPlan& plan : response.plans()) {
    const double tok_s = spec::MeasuredTokS(plan);
    const double watts = spec::MeasuredWatts(plan);
    const double gb = 1e-9 * static_cast<double>(plan.measured().memory_bytes());
    const double planned_gb = 1e-9 * static_cast<double>(plan.memory_bytes());
    table.Add({plan.job_id(), plan.gpu(), absl::StrCat(plan.gpus()),
               plan.preset().empty() ? "-" : plan.preset(), plan.recipe(),
               absl::StrCat(plan.micro_batch()), absl::StrCat(plan.sequence_length()),
               absl::StrCat(plan.micro_batches()), NumberText("%.0f", tok_s),
               NumberText("%.0f", plan.tokens_per_second()),
               ErrorText(plan.tokens_per_second(), tok_s), NumberText("%.0f", watts),
               NumberText("%.0f", plan.watts()), ErrorText(plan.watts(), watts),
               NumberText("%.2f", gb), NumberText("%.2f", planned_gb), ErrorText(planned_gb, gb),
               absl::StrCat(plan.measured().steps())});
  }
  return absl::StrCat(table.Render(columns),
                      response.plans().empty() ? "no job that was planned and measured has ended\n"
                                               : "jobs that ended at this coordinator\n");
}

}  // namespace hearth::jobctl
