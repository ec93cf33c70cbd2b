#include "tests/bench/load_user.h"

#include <algorithm>
#include <cstdio>

#include "absl/time/clock.h"
#include "common/base/ids.h"
#include "common/rpc/channel.h"
#include "tests/bench/played_agent.h"
#include "tests/support/coordinator/tiny_spec.h"

namespace hearth::coordinator {

double Percentile(std::vector<double> values, double fraction) {
  std::sort(values.begin(), values.end());
  return values.empty()
             ? 0.0
             : values[static_cast<size_t>(fraction * static_cast<double>(values.size() - 1))];
}

void PrintPercentiles(const std::string& what, const std::vector<double>& ms) {
  std::printf("%-28s n %6zu  p50 %8.1f  p90 %8.1f  p99 %8.1f  max %8.1f ms\n", what.c_str(),
              ms.size(), Percentile(ms, 0.5), Percentile(ms, 0.9), Percentile(ms, 0.99),
              Percentile(ms, 1));
}

bool PrintTarget(const std::string& what, double ms, double target_ms) {
  const double ratio = target_ms / std::max(ms, 1e-3);
  std::printf("%-28s %8.1f ms  target <= %.0f ms  ratio %.2f  %s\n", what.c_str(), ms, target_ms,
              ratio, ratio >= 1 ? "ok" : "MISSED");
  return ratio >= 1;
}

LoadUser::LoadUser(const std::string& address) : stub_(v1::JobService::NewStub(Dial(address))) {}

std::string LoadUser::Submit(int workers) {
  v1::CreateJobRequest request;
  *request.mutable_spec() = TinySpec();
  request.mutable_spec()->mutable_train()->set_steps(1'000'000);
  request.mutable_spec()->mutable_model()->set_vocab(256);
  request.mutable_spec()->mutable_resources()->set_workers(workers);
  request.set_request_id(RandomUuid());
  v1::Job job;
  Time("submit", [&](grpc::ClientContext* c) { return stub_->CreateJob(c, request, &job); });
  return job.job_id();
}

void LoadUser::Cancel(const std::string& job_id) {
  v1::CancelJobRequest request;
  request.set_job_id(job_id);
  v1::Job job;
  Time("cancel", [&](grpc::ClientContext* c) { return stub_->CancelJob(c, request, &job); });
}

void LoadUser::Get(const std::string& job_id) {
  v1::GetJobRequest request;
  request.set_job_id(job_id);
  v1::Job job;
  Time("get", [&](grpc::ClientContext* c) { return stub_->GetJob(c, request, &job); });
}

void LoadUser::List() {
  v1::ListJobsRequest request;
  request.set_page_size(50);
  v1::ListJobsResponse response;
  Time("list, page of 50",
       [&](grpc::ClientContext* c) { return stub_->ListJobs(c, request, &response); });
}

template <typename Call>
void LoadUser::Time(const std::string& name, const Call& call) {
  grpc::ClientContext context;
  rpc::SetDeadline(context);
  const absl::Time before = absl::Now();
  const grpc::Status status = call(&context);
  latencies_ms_[name].push_back(absl::ToDoubleMilliseconds(absl::Now() - before));
  if (!status.ok()) {
    ++failures_;
    std::printf("%s: %s\n", name.c_str(), status.error_message().c_str());
  }
}

}  // namespace hearth::coordinator
