#include "coordinator/http/http.h"

#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "coordinator/http/page_api.h"
#include "nlohmann/json.hpp"

namespace hearth::coordinator {
namespace {

constexpr size_t kMaxCurves = 32;  // about half a MiB each at most

// Silent workers stay in the list: their endpoint may still answer, and if not, `up` shows it.
bool IsListed(const v1::Worker& worker) {
  return !worker.http_address().empty() && worker.state() != v1::WORKER_STATE_OFFLINE &&
         worker.state() != v1::WORKER_STATE_UNSPECIFIED;
}

}  // namespace

metrics::HttpResponse ServiceDiscovery(const HttpParts& parts) {
  if (parts.in_reattach_grace()) {
    const std::vector<std::string> missing = parts.view.MissingWorkers();
    if (!missing.empty()) {
      return {
          503, "text/plain; charset=utf-8",
          absl::StrCat("workers that have not come back yet: ", absl::StrJoin(missing, " "), "\n")};
    }
  }
  nlohmann::json list = nlohmann::json::array();
  for (const WorkerPtr& worker : parts.view.Workers()) {
    if (!IsListed(*worker)) {
      continue;
    }
    list.push_back({{"targets", {worker->http_address()}},
                    {"labels",
                     {{"worker_id", worker->worker_id()},
                      {"host", worker->host()},
                      {"__meta_hearth_device_kind", worker->device().kind()},
                      {"__meta_hearth_device_model", worker->device().model()},
                      {"__meta_hearth_device_uuid", worker->device().uuid()},
                      {"__meta_hearth_version", worker->version()}}}});
  }
  // Names come from workers: bytes that are not UTF-8 are replaced; else the JSON library would
  // throw.
  return {200, "application/json",
          list.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)};
}

std::map<std::string, metrics::HttpHandler> MakeHttpHandlers(const HttpParts& parts) {
  const auto curves = std::make_shared<CurveCache>(parts.find_history, kMaxCurves);
  std::map<std::string, metrics::HttpHandler> handlers = {
      {"/metrics",
       [parts](const metrics::HttpRequest&) {
         return metrics::HttpResponse{200, std::string(metrics::kTextContentType),
                                      parts.metrics.Render(parts.view)};
       }},
      {"/sd/workers", [parts](const metrics::HttpRequest&) { return ServiceDiscovery(parts); }},
      {"/healthz",
       [parts](const metrics::HttpRequest&) {
         return parts.serving()
                    ? metrics::HttpResponse{200, "text/plain; charset=utf-8", "ok\n"}
                    : metrics::HttpResponse{503, "text/plain; charset=utf-8", "stopping\n"};
       }},
      {"/api/v1/*",
       [parts, curves](const metrics::HttpRequest& request) {
         return ServeApi({parts.view, *curves, parts.find_log}, request);
       }},
  };
  handlers.merge(PageHandlers());
  return handlers;
}

}  // namespace hearth::coordinator
