// JobService: gRPC on one side, commands to the loop and reads of the view on the other; no rules
// of its own.
#pragma once

#include <memory>

#include "coordinator/service/api/service_parts.h"
#include "grpcpp/impl/codegen/service_type.h"
#include "hearth/v1/job.pb.h"

namespace hearth::coordinator {

// Thread-safe; works with `parts`, which outlive it. `version` is answered by GetVersion, with the
// time and the room in its data_dir.
std::unique_ptr<grpc::Service> MakeJobService(const ServiceParts& parts,
                                              v1::GetVersionResponse version);

}  // namespace hearth::coordinator
