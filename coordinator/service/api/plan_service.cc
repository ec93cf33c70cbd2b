#include "coordinator/service/api/plan_service.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/rpc/field_rules.h"
#include "common/rpc/grpc_status.h"
#include "common/spec/feasibility/feasibility.h"
#include "common/spec/feasibility/measured_plan.h"
#include "common/spec/feasibility/plan_messages.h"
#include "common/spec/gpus/gpus.h"
#include "coordinator/core/transitions.h"
#include "coordinator/service/api/unary_call.h"
#include "coordinator/service/identity/call_table.h"
#include "hearth/v1/plan.grpc.pb.h"

namespace hearth::coordinator {
namespace {

constexpr size_t kMostPlans = 1000;
constexpr const char* kAllGpus = "all";
// Judgements at a time: they share their threads with the streams.
constexpr int kMostJudged = 4;

// The plan as others see it.
v1::JobPlan PlanOf(const v1::JobRecord& record) {
  v1::JobPlan plan = record.plan();
  plan.set_job_id(record.job().job_id());
  if (record.job().has_end_time()) {
    *plan.mutable_end_time() = record.job().end_time();
  }
  return plan;
}

absl::StatusOr<std::vector<const spec::GpuRow*>> RowsOf(const v1::PlanJobRequest& request) {
  std::vector<const spec::GpuRow*> rows;
  for (const std::string& name : request.gpus()) {
    if (name == kAllGpus) {
      for (const spec::GpuRow& row : spec::Gpus()) {
        rows.push_back(&row);
      }
      continue;
    }
    const absl::StatusOr<const spec::GpuRow*> row = spec::GpuByName(name);
    if (!row.ok()) {
      return rpc::FieldError("gpus", std::string(row.status().message()));
    }
    rows.push_back(*row);
  }
  if (rows.empty()) {
    return rpc::FieldError("gpus", "names no GPU");
  }
  return rows;
}

absl::Status Judge(const v1::JobSpec& job_spec,
                   const spec::FeasibilityQuery& query,
                   const std::vector<const spec::GpuRow*>& gpus,
                   std::vector<v1::JobPlan> ended,
                   v1::PlanJobResponse& response) {
  spec::FeasibilityJudge judge(job_spec, query, std::move(ended));
  for (const spec::GpuRow* gpu : gpus) {
    HEARTH_ASSIGN_OR_RETURN(const spec::Feasibility f,
                            judge.Judge(*gpu, spec::CalibrationFor(*gpu)));
    *response.add_judgements() = spec::JudgementOf(f);
  }
  return absl::OkStatus();
}

class PlanServiceImpl final : public v1::PlanService::CallbackService {
 public:
  explicit PlanServiceImpl(const ServiceParts& parts) : parts_(parts) {}

  HEARTH_UNARY(PlanJob, PlanJobResponse) override {
    const absl::StatusOr<Admitted> caller = parts_.gate.Admit(*context, *request);
    if (!caller.ok()) {
      return FinishNow(context, caller.status());
    }
    // A worker's answer shows which paths exist there: for those alone who may submit.
    const bool may_ask = RoleAllows(caller->caller.role(), v1::ROLE_OPERATOR);
    const spec::FeasibilityQuery query = spec::QueryOf(request->question());
    absl::StatusOr<std::vector<const spec::GpuRow*>> gpus = RowsOf(*request);
    const absl::Status asked = gpus.ok() ? spec::CheckQuery(query) : gpus.status();
    if (!asked.ok()) {
      return FinishNow(context, asked);
    }
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    parts_.checker.Check(
        spec::JobOfQuestion(request->spec(), query),
        may_ask ? SpecChecker::Origin::kPlanned : SpecChecker::Origin::kPlannedByViewer,
        [this, reactor, response, query, gpus = *std::move(gpus)](CheckedSpec checked) {
          if (!checked.status.ok()) {
            reactor->Finish(rpc::ToGrpc(checked.status));
            return;
          }
          // Counted first, compared afterwards: two calls at once cannot both take the last place.
          if (judged_.fetch_add(1) >= kMostJudged) {
            --judged_;
            reactor->Finish(rpc::ToGrpc(rpc::UnavailableError("too many jobs are being planned",
                                                              "BUSY", absl::Seconds(1))));
            return;
          }
          // Up to a second of arithmetic: not on the thread that has the answer.
          const auto judge = [this, reactor, response, query, gpus,
                              spec = std::move(checked.spec)] {
            const absl::Status status =
                Judge(spec, query, gpus, EndedPlans(parts_.view, "", kMostPlans), *response);
            --judged_;
            reactor->Finish(rpc::ToGrpc(status));
          };
          if (!parts_.executor.Submit(judge)) {
            --judged_;
            reactor->Finish(rpc::ToGrpc(rpc::UnavailableError("the coordinator is stopping",
                                                              "STOPPING", absl::Seconds(1))));
          }
        });
    return reactor;
  }

  HEARTH_UNARY(GetJobPlan, JobPlan) override {
    return Answer(parts_, context, *request, [&]() -> absl::Status {
      const JobPtr job = parts_.view.FindJob(request->job_id());
      if (job == nullptr || !job->has_plan()) {
        return rpc::NotFoundError(job == nullptr ? "job" : "plan of job", request->job_id());
      }
      *response = PlanOf(*job);
      return absl::OkStatus();
    });
  }

  HEARTH_UNARY(ListJobPlans, ListJobPlansResponse) override {
    return Answer(parts_, context, *request, [&]() -> absl::Status {
      std::string gpu;
      if (!request->gpu().empty()) {
        const absl::StatusOr<const spec::GpuRow*> row = spec::GpuByName(request->gpu());
        if (!row.ok()) {
          return rpc::FieldError("gpu", std::string(row.status().message()));
        }
        gpu = (*row)->name;
      }
      for (v1::JobPlan& plan : EndedPlans(parts_.view, gpu, kMostPlans)) {
        *response->add_plans() = std::move(plan);
      }
      return absl::OkStatus();
    });
  }

 private:
  const ServiceParts parts_;
  std::atomic<int> judged_ = 0;  // that are being judged
};

}  // namespace

std::vector<v1::JobPlan> EndedPlans(const View& view, const std::string& gpu, size_t most) {
  std::vector<v1::JobPlan> plans;
  for (const JobPtr& job : view.AllJobs()) {
    if (IsTerminal(job->job().state()) && spec::IsComparable(job->plan()) &&
        (gpu.empty() || job->plan().gpu() == gpu)) {
      plans.push_back(PlanOf(*job));
    }
  }
  const auto ended = [](const v1::JobPlan& plan) {
    return std::pair(plan.end_time().seconds(), plan.end_time().nanos());
  };
  std::stable_sort(plans.begin(), plans.end(),
                   [&](const v1::JobPlan& a, const v1::JobPlan& b) { return ended(a) > ended(b); });
  plans.resize(std::min(plans.size(), most));
  return plans;
}

std::unique_ptr<grpc::Service> MakePlanService(const ServiceParts& parts) {
  return std::make_unique<PlanServiceImpl>(parts);
}

}  // namespace hearth::coordinator
