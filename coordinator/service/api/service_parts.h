// What the services of the API work with.
#pragma once

#include "common/time/clock.h"
#include "coordinator/service/agents/agent_hub.h"
#include "coordinator/service/agents/inspector.h"
#include "coordinator/service/checks/spec_check.h"
#include "coordinator/service/identity/gate.h"
#include "coordinator/service/identity/sessions.h"
#include "coordinator/service/loop/backups.h"
#include "coordinator/service/loop/executor.h"
#include "coordinator/service/loop/loop.h"
#include "coordinator/service/metrics/coordinator_metrics.h"
#include "coordinator/service/streams/stream_reactor.h"
#include "coordinator/service/view/view.h"
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
