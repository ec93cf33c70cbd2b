// CoordinatorService: what operators ask of the coordinator itself.
#pragma once

#include <memory>

#include "coordinator/service/api/service_parts.h"
#include "grpcpp/impl/codegen/service_type.h"

namespace hearth::coordinator {

// Thread-safe; works with `parts`, which outlive it.
std::unique_ptr<grpc::Service> MakeCoordinatorService(const ServiceParts& parts);

}  // namespace hearth::coordinator
