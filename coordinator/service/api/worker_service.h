// WorkerService, and AgentService, the other side of hearth-worker's stream.
#pragma once

#include <memory>

#include "coordinator/service/api/service_parts.h"
#include "grpcpp/impl/codegen/service_type.h"

namespace hearth::coordinator {

// Both are thread-safe and work with `parts`, which outlive them.
std::unique_ptr<grpc::Service> MakeWorkerService(const ServiceParts& parts);
std::unique_ptr<grpc::Service> MakeAgentService(const ServiceParts& parts);

}  // namespace hearth::coordinator
