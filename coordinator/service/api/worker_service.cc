#include "coordinator/service/api/worker_service.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>

#include "coordinator/service/agents/agent_stream.h"
#include "coordinator/service/api/change.h"
#include "coordinator/service/api/unary_call.h"
#include "coordinator/service/checks/limits.h"
#include "hearth/v1/agent.grpc.pb.h"
#include "hearth/v1/worker.grpc.pb.h"

namespace hearth::coordinator {
namespace {

constexpr size_t kDefaultPageSize = 50;
constexpr size_t kMaxPageSize = 1000;

class WorkerServiceImpl final : public v1::WorkerService::CallbackService {
 public:
  explicit WorkerServiceImpl(const ServiceParts& parts) : parts_(parts) {}

  HEARTH_UNARY(ListWorkers, ListWorkersResponse) override;
  HEARTH_UNARY(GetWorker, Worker) override;
  HEARTH_CHANGE(CordonWorker, Worker)
  HEARTH_CHANGE(UncordonWorker, Worker)
  HEARTH_CHANGE(DrainWorker, Worker)
  HEARTH_CHANGE(DeleteWorker, DeleteWorkerResponse)
  HEARTH_CHANGE(DeclareLost, DeclareLostResponse)

 private:
  const ServiceParts parts_;
};

class AgentServiceImpl final : public v1::AgentService::CallbackService {
 public:
  explicit AgentServiceImpl(const ServiceParts& parts) : parts_(parts) {}

  grpc::ServerBidiReactor<v1::AgentMessage, v1::CoordinatorMessage>* Connect(
      grpc::CallbackServerContext* context) override {
    const auto stream =
        std::make_shared<AgentStream>(context, parts_, next_connection_.fetch_add(1));
    stream->Start();
    return stream.get();
  }

 private:
  const ServiceParts parts_;
  std::atomic<uint64_t> next_connection_{1};
};

HEARTH_UNARY_OF(WorkerServiceImpl, ListWorkers, ListWorkersResponse) {
  return Answer(parts_, context, *request, [&]() -> absl::Status {
    if (request->page_size() < 0) {
      return rpc::MakeError(absl::StatusCode::kInvalidArgument, "page_size is negative",
                            "BAD_LIST_REQUEST");
    }
    const size_t size = request->page_size() == 0
                            ? kDefaultPageSize
                            : std::min(static_cast<size_t>(request->page_size()), kMaxPageSize);
    // Ordered by id; the token is the last id of the page before.
    int64_t bytes = 0;
    for (const WorkerPtr& worker : parts_.view.Workers()) {
      if (worker->worker_id() <= request->page_token()) {
        continue;
      }
      if (static_cast<size_t>(response->workers_size()) == size || bytes >= kPageBytes) {
        response->set_next_page_token(response->workers(response->workers_size() - 1).worker_id());
        break;
      }
      v1::Worker& entry = *response->add_workers() = ListEntry(*worker);
      bytes += static_cast<int64_t>(entry.ByteSizeLong());
    }
    return absl::OkStatus();
  });
}

HEARTH_UNARY_OF(WorkerServiceImpl, GetWorker, Worker) {
  return Answer(parts_, context, *request, [&]() -> absl::Status {
    const WorkerPtr worker = parts_.view.FindWorker(request->worker_id());
    if (worker == nullptr) {
      return rpc::NotFoundError("worker", request->worker_id());
    }
    *response = *worker;
    return absl::OkStatus();
  });
}

}  // namespace

std::unique_ptr<grpc::Service> MakeWorkerService(const ServiceParts& parts) {
  return std::make_unique<WorkerServiceImpl>(parts);
}

std::unique_ptr<grpc::Service> MakeAgentService(const ServiceParts& parts) {
  return std::make_unique<AgentServiceImpl>(parts);
}

}  // namespace hearth::coordinator
