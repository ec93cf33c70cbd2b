// What the built-in page reads, as JSON: jobs, a job's curve and events, workers. Read-only, of
// bounded size, made from the view and the history only.
//
// clang-format off
//   /api/v1/jobs              summaries of the newest 100
//   /api/v1/jobs/ID           the same for one job, under "job" what `jobctl get -o json` prints, and under "plan" what was planned and measured
//   /api/v1/jobs/ID/metrics       ?since_step=N&points=K (1..1000): columns of equal length
//   /api/v1/jobs/ID/events        the newest 200, and all notes
//   /api/v1/jobs/ID/checkpoints   all that are recorded, newest first
//   /api/v1/jobs/ID/evaluations   the newest 200 results of the job and of jobs that evaluated its checkpoints
//   /api/v1/jobs/ID/logs          ?after=CURSOR&tail=N (1..1000)&rank=R&epoch=E: the newest lines (log_tail.h)
//   /api/v1/workers           at most 1000, by name
// clang-format on
//
// Errors are {"error": {"code": 404, "message": ".."}}.
#pragma once

#include <cstddef>
#include <cstdint>
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
inline constexpr int64_t kMaxApiLines = 1000;

// From what answers are made; all of it outlives the call.
struct ApiParts {
  const View& view;
  CurveCache& curves;
  // The log of a job, null when it has none.
  CurveCache::FindLog find_log;
};

// Answers every path below /api/v1/.
metrics::HttpResponse ServeApi(const ApiParts& api, const metrics::HttpRequest& request);

// The page itself ("/", its scripts, "/style.css") and "/runbook": files built into the program.
std::map<std::string, metrics::HttpHandler> PageHandlers();

}  // namespace hearth::coordinator
