// IdentityService: tokens, who the caller is, the audit log.
#pragma once

#include <memory>

#include "coordinator/service/api/service_parts.h"
#include "grpcpp/impl/codegen/service_type.h"

namespace hearth::coordinator {

// Thread-safe; works with `parts`, which outlive it.
std::unique_ptr<grpc::Service> MakeIdentityService(const ServiceParts& parts);

}  // namespace hearth::coordinator
