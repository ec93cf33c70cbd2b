// What the services of the API work with.
#pragma once

#include "common/time/clock.h"
#include "coordinator/service/agent_hub.h"
#include "coordinator/service/backups.h"
#include "coordinator/service/coordinator_metrics.h"
#include "coordinator/service/executor.h"
#include "coordinator/service/identity/gate.h"
#include "coordinator/service/identity/sessions.h"
#include "coordinator/service/inspector.h"
#include "coordinator/service/loop.h"
#include "coordinator/service/spec_check.h"
#include "coordinator/service/stream_reactor.h"
#include "coordinator/service/view.h"
#include "coordinator/store/store.h"

namespace hearth::coordinator {

// All outlive the services.
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
  Gate& gate;
  Sessions& sessions;
  Backups& backups;
};

}  // namespace hearth::coordinator
