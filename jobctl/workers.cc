#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "jobctl/command.h"

namespace hearth::jobctl {
namespace {

using WorkerCall = absl::StatusOr<v1::Worker> (Client::*)(const std::string&);

// cordon, uncordon and drain differ in the call and the word.
Action SetupWorkerVerb(CLI::App& app, WorkerCall call, const char* verbed) {
  auto worker_id = std::make_shared<std::string>();
  app.add_option("worker", *worker_id, "Worker name")->required();
  return [worker_id, call, verbed](Context& context) -> absl::StatusOr<int> {
    HEARTH_ASSIGN_OR_RETURN(Client * client, context.client());
    HEARTH_ASSIGN_OR_RETURN(const v1::Worker worker, (client->*call)(*worker_id));
    HEARTH_RETURN_IF_ERROR(PrintMutation(context.format, context.quiet,
                                         absl::StrCat("worker/", worker.worker_id()), verbed,
                                         worker));
    return kExitOk;
  };
}

absl::StatusOr<int> List(Context& context, const std::string& worker_id) {
  HEARTH_ASSIGN_OR_RETURN(Client * client, context.client());
  if (!worker_id.empty()) {
    HEARTH_ASSIGN_OR_RETURN(const v1::Worker worker, client->GetWorker(worker_id));
    HEARTH_RETURN_IF_ERROR(PrintWorkers(context.format, {worker}, worker));
    return kExitOk;
  }
  v1::ListWorkersResponse all;
  v1::ListWorkersRequest request;
  do {
    HEARTH_ASSIGN_OR_RETURN(v1::ListWorkersResponse page, client->ListWorkers(request));
    request.set_page_token(page.next_page_token());
    for (v1::Worker& worker : *page.mutable_workers()) {
      *all.add_workers() = std::move(worker);
    }
  } while (!request.page_token().empty());
  HEARTH_RETURN_IF_ERROR(
      PrintWorkers(context.format, {all.workers().begin(), all.workers().end()}, all));
  return kExitOk;
}

}  // namespace

Action SetupWorkers(CLI::App& app) {
  auto worker_id = std::make_shared<std::string>();
  app.add_option("worker", *worker_id, "Worker name (default: all)");
  return [worker_id](Context& context) { return List(context, *worker_id); };
}

Action SetupCordon(CLI::App& app) {
  return SetupWorkerVerb(app, &Client::CordonWorker, "cordoned");
}

Action SetupUncordon(CLI::App& app) {
  return SetupWorkerVerb(app, &Client::UncordonWorker, "uncordoned");
}

Action SetupDrain(CLI::App& app) {
  return SetupWorkerVerb(app, &Client::DrainWorker, "draining");
}

Action SetupForget(CLI::App& app) {
  auto worker_id = std::make_shared<std::string>();
  app.add_option("worker", *worker_id, "Worker name")->required();
  return [worker_id](Context& context) -> absl::StatusOr<int> {
    HEARTH_ASSIGN_OR_RETURN(Client * client, context.client());
    HEARTH_ASSIGN_OR_RETURN(const v1::DeleteWorkerResponse response,
                            client->DeleteWorker(*worker_id));
    HEARTH_RETURN_IF_ERROR(PrintMutation(
        context.format, context.quiet, absl::StrCat("worker/", *worker_id), "forgotten", response));
    return kExitOk;
  };
}

}  // namespace hearth::jobctl
