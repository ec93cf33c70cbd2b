#include "coordinator/service/worker_service.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "coordinator/service/agent_stream.h"
#include "coordinator/service/finish.h"
#include "coordinator/service/limits.h"

namespace hearth::coordinator {
namespace {

constexpr size_t kDefaultPageSize = 50;
constexpr size_t kMaxPageSize = 1000;

}  // namespace

grpc::ServerUnaryReactor* WorkerServiceImpl::ListWorkers(grpc::CallbackServerContext* context,
                                                         const v1::ListWorkersRequest* request,
                                                         v1::ListWorkersResponse* response) {
  if (const absl::Status allowed = CheckRequest(*request); !allowed.ok()) {
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
  if (const absl::Status allowed = CheckRequest(*request); !allowed.ok()) {
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

grpc::ServerUnaryReactor* WorkerServiceImpl::Mutate(grpc::CallbackServerContext* context,
                                                    Command command,
                                                    v1::Worker* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  parts_.loop.Post(std::move(command), [reactor, response](const Reply& reply) {
    if (reply.worker.has_value()) {
      *response = *reply.worker;
    }
    reactor->Finish(rpc::ToGrpc(reply.status));
  });
  return reactor;
}

grpc::ServerUnaryReactor* WorkerServiceImpl::CordonWorker(grpc::CallbackServerContext* context,
                                                          const v1::CordonWorkerRequest* request,
                                                          v1::Worker* response) {
  if (const absl::Status allowed = CheckRequest(*request); !allowed.ok()) {
    return FinishNow(context, allowed);
  }
  return Mutate(context, coordinator::CordonWorker{request->worker_id()}, response);
}

grpc::ServerUnaryReactor* WorkerServiceImpl::UncordonWorker(
    grpc::CallbackServerContext* context,
    const v1::UncordonWorkerRequest* request,
    v1::Worker* response) {
  if (const absl::Status allowed = CheckRequest(*request); !allowed.ok()) {
    return FinishNow(context, allowed);
  }
  return Mutate(context, coordinator::UncordonWorker{request->worker_id()}, response);
}

grpc::ServerUnaryReactor* WorkerServiceImpl::DrainWorker(grpc::CallbackServerContext* context,
                                                         const v1::DrainWorkerRequest* request,
                                                         v1::Worker* response) {
  if (const absl::Status allowed = CheckRequest(*request); !allowed.ok()) {
    return FinishNow(context, allowed);
  }
  return Mutate(context, coordinator::DrainWorker{request->worker_id()}, response);
}

grpc::ServerUnaryReactor* WorkerServiceImpl::DeleteWorker(grpc::CallbackServerContext* context,
                                                          const v1::DeleteWorkerRequest* request,
                                                          v1::DeleteWorkerResponse*) {
  if (const absl::Status status = CheckRequest(*request); !status.ok()) {
    return FinishNow(context, status);
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  parts_.loop.Post(coordinator::DeleteWorker{request->worker_id()},
                   [reactor](const Reply& reply) { reactor->Finish(rpc::ToGrpc(reply.status)); });
  return reactor;
}

grpc::ServerUnaryReactor* WorkerServiceImpl::DeclareLost(grpc::CallbackServerContext* context,
                                                         const v1::DeclareLostRequest* request,
                                                         v1::DeclareLostResponse* response) {
  if (const absl::Status status = CheckRequest(*request); !status.ok()) {
    return FinishNow(context, status);
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  parts_.loop.Post(coordinator::DeclareLost{*request}, [reactor, response](const Reply& reply) {
    if (reply.declared.has_value()) {
      *response = *reply.declared;
    }
    reactor->Finish(rpc::ToGrpc(reply.status));
  });
  return reactor;
}

grpc::ServerBidiReactor<v1::AgentMessage, v1::CoordinatorMessage>* AgentServiceImpl::Connect(
    grpc::CallbackServerContext* context) {
  const auto stream =
      std::make_shared<AgentStream>(context, parts_.loop, parts_.hub, parts_.inspector,
                                    parts_.metrics, parts_.clock, next_connection_.fetch_add(1));
  stream->Start();
  return stream.get();
}

}  // namespace hearth::coordinator
