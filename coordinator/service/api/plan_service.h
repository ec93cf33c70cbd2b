// PlanService: will a job fit, and how good were earlier plans.
#pragma once

#include <memory>
#include <vector>

#include "coordinator/service/api/service_parts.h"
#include "grpcpp/impl/codegen/service_type.h"
#include "hearth/v1/plan.pb.h"

namespace hearth::coordinator {

// Plans of ended jobs that were measured, the newest end first, at most `most`; of one row of
// configs/gpus.yaml, or of all if `gpu` is empty.
std::vector<v1::JobPlan> EndedPlans(const View& view, const std::string& gpu, size_t most);

// Thread-safe; works with `parts`, which outlive it.
std::unique_ptr<grpc::Service> MakePlanService(const ServiceParts& parts);

}  // namespace hearth::coordinator
