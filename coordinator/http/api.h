// What the built-in page reads: jobs, a job's curve and events, workers, as JSON. Read-only, of
// bounded size, out of the view and the history alone.
//
//   /api/v1/jobs                      newest 100, in short
//   /api/v1/jobs/ID                   the same of one job, and under "job" what `jobctl get -o
//   json` prints /api/v1/jobs/ID/metrics           ?since_step=N&points=K (1..1000): columns of
//   equal length /api/v1/jobs/ID/events            newest 200 /api/v1/workers                   at
//   most 1000, by name
//
// Errors are {"error": {"code": 404, "message": ".."}}.
#pragma once

#include <map>
#include <string>

#include "common/metrics/http_server.h"
#include "coordinator/http/curve.h"
#include "coordinator/service/view.h"

namespace hearth::coordinator {

inline constexpr size_t kMaxApiJobs = 100;
inline constexpr size_t kMaxApiPoints = 1000;
inline constexpr size_t kMaxApiEvents = 200;
inline constexpr size_t kMaxApiWorkers = 1000;

// Answers every path below /api/v1/.
metrics::HttpResponse ServeApi(const View& view,
                               CurveCache& curves,
                               const metrics::HttpRequest& request);

// The page itself, "/", "/app.js" and "/style.css", and "/runbook", out of the program's own text.
std::map<std::string, metrics::HttpHandler> PageHandlers();

}  // namespace hearth::coordinator
