// WorkerService, and AgentService, the other side of hearth-worker's stream.
#pragma once

#include <atomic>
#include <cstdint>

#include "coordinator/service/job_service.h"
#include "hearth/v1/agent.grpc.pb.h"
#include "hearth/v1/worker.grpc.pb.h"

namespace hearth::coordinator {

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
                                         v1::Worker* response) override;
  grpc::ServerUnaryReactor* UncordonWorker(grpc::CallbackServerContext* context,
                                           const v1::UncordonWorkerRequest* request,
                                           v1::Worker* response) override;
  grpc::ServerUnaryReactor* DrainWorker(grpc::CallbackServerContext* context,
                                        const v1::DrainWorkerRequest* request,
                                        v1::Worker* response) override;
  grpc::ServerUnaryReactor* DeleteWorker(grpc::CallbackServerContext* context,
                                         const v1::DeleteWorkerRequest* request,
                                         v1::DeleteWorkerResponse* response) override;
  grpc::ServerUnaryReactor* DeclareLost(grpc::CallbackServerContext* context,
                                        const v1::DeclareLostRequest* request,
                                        v1::DeclareLostResponse* response) override;

 private:
  grpc::ServerUnaryReactor* Mutate(grpc::CallbackServerContext* context,
                                   Command command,
                                   v1::Worker* response);

  const ServiceParts parts_;
};

class AgentServiceImpl final : public v1::AgentService::CallbackService {
 public:
  explicit AgentServiceImpl(const ServiceParts& parts) : parts_(parts) {}

  grpc::ServerBidiReactor<v1::AgentMessage, v1::CoordinatorMessage>* Connect(
      grpc::CallbackServerContext* context) override;

 private:
  const ServiceParts parts_;
  std::atomic<uint64_t> next_connection_{1};
};

}  // namespace hearth::coordinator
