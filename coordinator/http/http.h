// The coordinator's HTTP endpoints: /metrics (Prometheus text 0.0.4), /sd/workers (Prometheus
// http_sd), /healthz, the runbook, and the built-in page with what it reads (page_api.h). access.h
// says who may read.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "common/metrics/http_server.h"
#include "coordinator/http/curve.h"
#include "coordinator/service/metrics/coordinator_metrics.h"
#include "coordinator/service/view/view.h"

namespace hearth::coordinator {

struct HttpParts {
  const View& view;
  CoordinatorMetrics& metrics;
  // True for reattach_grace after the start, while workers may still come back.
  std::function<bool()> in_reattach_grace;
  // False when the process is stopping or has failed.
  std::function<bool()> serving;
  // The step history of a job, null when it has none.
  CurveCache::FindLog find_history;
  // Its log, null when it has none.
  CurveCache::FindLog find_log;
};

// Every online worker that has an HTTP endpoint: [{"targets": ["host:port"], "labels":
// {"worker_id": .., "host": ..}}], in order of worker id. 503 while workers of before the restart
// may still come back, so that Prometheus keeps its old list.
metrics::HttpResponse ServiceDiscovery(const HttpParts& parts);

// The handlers by path; `parts` is copied, what it refers to outlives the server.
std::map<std::string, metrics::HttpHandler> MakeHttpHandlers(const HttpParts& parts);

}  // namespace hearth::coordinator
