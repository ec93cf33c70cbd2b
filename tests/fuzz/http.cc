#include <string>

#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "coordinator/http/access.h"
#include "coordinator/http/page_api.h"
#include "coordinator/service/identity/authorization.h"
#include "nlohmann/json.hpp"
#include "tests/fuzz/targets.h"

namespace hearth::fuzz {
namespace {

using coordinator::CurveCache;
using coordinator::View;

// One job without a history.
View& ViewOfOneJob() {
  static View* const view = [] {
    auto* made = new View(coordinator::EventBounds{10});
    coordinator::Effects effects;
    v1::Job& job = *effects.jobs.emplace_back().record.mutable_job();
    job.set_job_id("a");
    job.set_state(v1::JOB_STATE_RUNNING);
    made->Apply({&effects, 1});
    return made;
  }();
  return *view;
}

bool Ask(const metrics::HttpRequest& request, bool loopback) {
  const coordinator::HttpAccessOptions options{.loopback = loopback, .hosts = {"Lab.example"}};
  const auto admit = [](const metrics::HttpRequest& asked) {
    const absl::Status bearer = coordinator::BearerOf(asked.authorization).status();
    return bearer.ok() ? bearer : coordinator::PasswordOf(asked.authorization).status();
  };
  const auto refusal = coordinator::MakeHttpGuard(options, admit)(request);
  if (refusal.has_value()) {
    return false;
  }
  const auto none = [](std::string_view /*job_id*/) { return nullptr; };
  static CurveCache* const curves = new CurveCache(none, 2);
  const metrics::HttpResponse answer =
      coordinator::ServeApi({ViewOfOneJob(), *curves, none}, request);
  HEARTH_CHECK(nlohmann::json::accept(answer.body), "every answer is JSON");
  return answer.status == 200;
}

}  // namespace

// Lines: path, query, Host, Authorization.
bool Http(std::string_view bytes) {
  const std::vector<std::string> lines =
      absl::StrSplit(absl::string_view(bytes.data(), bytes.size()), '\n');
  metrics::HttpRequest request;
  request.path = lines[0];
  request.query = lines.size() > 1 ? lines[1] : "";
  request.host = lines.size() > 2 ? lines[2] : "";
  request.authorization = lines.size() > 3 ? lines[3] : "";
  const bool local = Ask(request, true);
  const bool remote = Ask(request, false);
  for (const char* path : {"/api/v1/jobs/a/metrics", "/api/v1/jobs/a/logs"}) {
    request.path = path;
    Ask(request, false);
  }
  return local || remote;
}

}  // namespace hearth::fuzz
