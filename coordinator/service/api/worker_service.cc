#include "coordinator/service/api/worker_service.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>

#include "coordinator/service/agents/agent_stream.h"
#include "coordinator/service/api/change.h"
#include "coordinator/service/api/finish.h"
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

  grpc::ServerUnaryReactor* ListWorkers(grpc::CallbackServerContext* context,
                                        const v1::ListWorkersRequest* request,
                                        v1::ListWorkersResponse* response) override;
  grpc::ServerUnaryReactor* GetWorker(grpc::CallbackServerContext* context,
                                      const v1::GetWorkerRequest* request,
                                      v1::Worker* response) override;
  grpc::ServerUnaryReactor* CordonWorker(grpc::CallbackServerContext* context,
                                         const v1::CordonWorkerRequest* request,
                                         v1::Worker* response) override {
    return Change(parts_, context, *request, response);
  }
  grpc::ServerUnaryReactor* UncordonWorker(grpc::CallbackServerContext* context,
                                           const v1::UncordonWorkerRequest* request,
                                           v1::Worker* response) override {
    return Change(parts_, context, *request, response);
  }
  grpc::ServerUnaryReactor* DrainWorker(grpc::CallbackServerContext* context,
                                        const v1::DrainWorkerRequest* request,
                                        v1::Worker* response) override {
    return Change(parts_, context, *request, response);
  }
  grpc::ServerUnaryReactor* DeleteWorker(grpc::CallbackServerContext* context,
                                         const v1::DeleteWorkerRequest* request,
                                         v1::DeleteWorkerResponse* response) override {
    return Change(parts_, context, *request, response);
  }
  grpc::ServerUnaryReactor* DeclareLost(grpc::CallbackServerContext* context,
                                        const v1::DeclareLostRequest* request,
                                        v1::DeclareLostResponse* response) override {
    return Change(parts_, context, *request, response);
  }

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

grpc::ServerUnaryReactor* WorkerServiceImpl::ListWorkers(grpc::CallbackServerContext* context,
                                                         const v1::ListWorkersRequest* request,
                                                         v1::ListWorkersResponse* response) {
  if (const absl::Status allowed = parts_.gate.Admit(*context, *request).status(); !allowed.ok()) {
    return FinishNow(context, allowed);
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (request->page_size() < 0) {
    reactor->Finish(rpc::ToGrpc(rpc::MakeError(absl::StatusCode::kInvalidArgument,
                                               "page_size is negative", "BAD_LIST_REQUEST")));
    return reactor;
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
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerUnaryReactor* WorkerServiceImpl::GetWorker(grpc::CallbackServerContext* context,
                                                       const v1::GetWorkerRequest* request,
                                                       v1::Worker* response) {
  if (const absl::Status allowed = parts_.gate.Admit(*context, *request).status(); !allowed.ok()) {
    return FinishNow(context, allowed);
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const WorkerPtr worker = parts_.view.FindWorker(request->worker_id());
  if (worker == nullptr) {
    reactor->Finish(rpc::ToGrpc(rpc::NotFoundError("worker", request->worker_id())));
    return reactor;
  }
  *response = *worker;
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace

std::unique_ptr<grpc::Service> MakeWorkerService(const ServiceParts& parts) {
  return std::make_unique<WorkerServiceImpl>(parts);
}

std::unique_ptr<grpc::Service> MakeAgentService(const ServiceParts& parts) {
  return std::make_unique<AgentServiceImpl>(parts);
}

}  // namespace hearth::coordinator
