// JobService: gRPC on one side, commands to the loop and reads of the view on the other; no rules
// of its own.
#pragma once

#include <memory>

#include "common/time/clock.h"
#include "coordinator/core/core.h"
#include "coordinator/service/executor.h"
#include "coordinator/service/loop.h"
#include "coordinator/service/spec_check.h"
#include "coordinator/service/stream_reactor.h"
#include "coordinator/service/view.h"
#include "coordinator/store/store.h"
#include "grpcpp/impl/codegen/service_type.h"
#include "hearth/v1/job.pb.h"

namespace hearth::coordinator {

// What the services work with; all outlive them.
struct ServiceParts {
  Loop& loop;
  View& view;
  Store& store;
  AgentHub& hub;
  Inspector& inspector;
  SpecChecker& checker;
  Executor& executor;
  StreamSet& streams;
  CoordinatorMetrics& metrics;
  Clock& clock;
};

// Thread-safe; works with `parts`, which outlive it. `version` is answered by GetVersion, with the
// time and the room in its data_dir.
std::unique_ptr<grpc::Service> MakeJobService(const ServiceParts& parts,
                                              v1::GetVersionResponse version);

}  // namespace hearth::coordinator
