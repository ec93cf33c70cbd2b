// What the built-in page reads, as JSON: jobs, a job's curve and events, workers. Read-only, of
// bounded size, made from the view and the history only.
//
// clang-format off
//   /api/v1/jobs              summaries of the newest 100
//   /api/v1/jobs/ID           the same for one job, under "job" what `jobctl get -o json` prints, and under "plan" what was planned and measured
//   /api/v1/jobs/ID/metrics   ?since_step=N&points=K (1..1000): columns of equal length
//   /api/v1/jobs/ID/events    the newest 200
//   /api/v1/workers           at most 1000, by name
// clang-format on
//
// Errors are {"error": {"code": 404, "message": ".."}}.
#pragma once

#include <map>
#include <string>

#include "common/metrics/http_server.h"
#include "coordinator/http/curve.h"
#include "coordinator/service/view/view.h"

namespace hearth::coordinator {

inline constexpr size_t kMaxApiJobs = 100;
inline constexpr size_t kMaxApiPoints = 1000;
inline constexpr size_t kMaxApiEvents = 200;
inline constexpr size_t kMaxApiWorkers = 1000;

// Answers every path below /api/v1/.
metrics::HttpResponse ServeApi(const View& view,
                               CurveCache& curves,
                               const metrics::HttpRequest& request);

// The page itself ("/", "/app.js", "/style.css") and "/runbook", from files built into the program.
std::map<std::string, metrics::HttpHandler> PageHandlers();

}  // namespace hearth::coordinator
