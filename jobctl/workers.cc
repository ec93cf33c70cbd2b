#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "jobctl/command.h"
#include "jobctl/job_actions.h"

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

struct DeclareOptions {
  std::vector<std::string> workers;
  bool all = false;
  bool yes = false;
};

absl::StatusOr<int> Declare(Context& context, const DeclareOptions& options) {
  if (options.workers.empty() != options.all) {
    WriteErr("error: name the workers, or give --all for every silent one that has a job\n");
    return kExitUsage;
  }
  if (!options.yes) {
    HEARTH_RETURN_IF_ERROR(
        Confirm("Declare them lost? Their jobs go on without them from the last checkpoint.",
                "declare-lost restarts jobs that may train on where they are"));
  }
  HEARTH_ASSIGN_OR_RETURN(Client * client, context.client());
  v1::DeclareLostRequest request;
  request.mutable_worker_ids()->Add(options.workers.begin(), options.workers.end());
  HEARTH_ASSIGN_OR_RETURN(const v1::DeclareLostResponse response, client->DeclareLost(request));
  if (context.format == OutputFormat::kJson || context.format == OutputFormat::kYaml) {
    HEARTH_RETURN_IF_ERROR(PrintWorkers(
        context.format, {response.workers().begin(), response.workers().end()}, response));
    return kExitOk;
  }
  for (const v1::Worker& worker : response.workers()) {
    HEARTH_RETURN_IF_ERROR(PrintMutation(context.format, context.quiet,
                                         absl::StrCat("worker/", worker.worker_id()),
                                         "declared lost", worker));
  }
  if (!context.quiet && response.workers().empty()) {
    WriteErr("no silent worker has a job\n");
  }
  if (!context.quiet && response.isolated()) {
    WriteErr(
        "others are silent, and the coordinator still takes itself to be cut off; --all ends "
        "that\n");
  }
  return kExitOk;
}

}  // namespace

Action SetupDeclareLost(CLI::App& app) {
  auto options = std::make_shared<DeclareOptions>();
  app.add_option("worker", options->workers, "Names of silent workers");
  app.add_flag("--all", options->all,
               "Every silent worker that has a job; the coordinator then no longer takes itself to "
               "be cut off");
  app.add_flag("-y,--yes", options->yes, "Do not ask");
  return [options](Context& context) { return Declare(context, *options); };
}

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
