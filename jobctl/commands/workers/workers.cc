#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "jobctl/commands/arguments.h"
#include "jobctl/commands/command_row.h"

namespace hearth::jobctl {
namespace {

// The call about one worker whose request is a `Request`.
template <typename Request>
absl::StatusOr<v1::Worker> CallWorker(Client& client, const std::string& worker_id) {
  Request request;
  request.set_worker_id(worker_id);
  return client.Call<v1::Worker>(request);
}

// cordon, uncordon and drain differ in the call and the word.
template <typename Request>
Action SetupWorkerVerb(CLI::App& app, const char* verbed) {
  auto worker_id = std::make_shared<std::string>();
  app.add_option("worker", *worker_id, "Worker name")->required();
  return [worker_id, verbed](Context& context) -> absl::StatusOr<int> {
    HEARTH_ASSIGN_OR_RETURN(Client * client, context.client());
    HEARTH_ASSIGN_OR_RETURN(const v1::Worker worker, CallWorker<Request>(*client, *worker_id));
    HEARTH_RETURN_IF_ERROR(PrintMutation(context.format, context.quiet,
                                         absl::StrCat("worker/", worker.worker_id()), verbed,
                                         worker));
    return kExitOk;
  };
}

absl::StatusOr<int> List(Context& context, const std::string& worker_id) {
  HEARTH_ASSIGN_OR_RETURN(Client * client, context.client());
  if (!worker_id.empty()) {
    HEARTH_ASSIGN_OR_RETURN(const v1::Worker worker,
                            CallWorker<v1::GetWorkerRequest>(*client, worker_id));
    HEARTH_RETURN_IF_ERROR(PrintWorkers(context.format, {worker}, worker));
    return kExitOk;
  }
  v1::ListWorkersResponse all;
  v1::ListWorkersRequest request;
  do {
    HEARTH_ASSIGN_OR_RETURN(v1::ListWorkersResponse page,
                            client->Call<v1::ListWorkersResponse>(request));
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
    WriteErr("error: name the workers, or give --all for all silent workers that have a job\n");
    return kExitUsage;
  }
  if (!options.yes) {
    HEARTH_RETURN_IF_ERROR(
        Confirm("Declare them lost? Their jobs continue without them from the last checkpoint.",
                "declare-lost restarts jobs that may still be training"));
  }
  HEARTH_ASSIGN_OR_RETURN(Client * client, context.client());
  v1::DeclareLostRequest request;
  request.mutable_worker_ids()->Add(options.workers.begin(), options.workers.end());
  HEARTH_ASSIGN_OR_RETURN(const v1::DeclareLostResponse response,
                          client->Call<v1::DeclareLostResponse>(request));
  if (context.format.data()) {
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
        "other workers are silent, and the coordinator still assumes that it is cut off; --all "
        "ends that\n");
  }
  return kExitOk;
}

}  // namespace

Action SetupDeclareLost(CLI::App& app) {
  auto options = std::make_shared<DeclareOptions>();
  app.add_option("worker", options->workers, "Names of silent workers");
  app.add_flag(
      "--all", options->all,
      "All silent workers that have a job; the coordinator then no longer assumes that it is "
      "cut off");
  app.add_flag("-y,--yes", options->yes, "Do not ask");
  return [options](Context& context) { return Declare(context, *options); };
}

Action SetupWorkers(CLI::App& app) {
  auto worker_id = std::make_shared<std::string>();
  app.add_option("worker", *worker_id, "Worker name (default: all)");
  return [worker_id](Context& context) { return List(context, *worker_id); };
}

Action SetupCordon(CLI::App& app) {
  return SetupWorkerVerb<v1::CordonWorkerRequest>(app, "cordoned");
}

Action SetupUncordon(CLI::App& app) {
  return SetupWorkerVerb<v1::UncordonWorkerRequest>(app, "uncordoned");
}

Action SetupDrain(CLI::App& app) {
  return SetupWorkerVerb<v1::DrainWorkerRequest>(app, "draining");
}

Action SetupForget(CLI::App& app) {
  auto worker_id = std::make_shared<std::string>();
  app.add_option("worker", *worker_id, "Worker name")->required();
  return [worker_id](Context& context) -> absl::StatusOr<int> {
    HEARTH_ASSIGN_OR_RETURN(Client * client, context.client());
    v1::DeleteWorkerRequest request;
    request.set_worker_id(*worker_id);
    HEARTH_ASSIGN_OR_RETURN(const v1::DeleteWorkerResponse response,
                            client->Call<v1::DeleteWorkerResponse>(request));
    HEARTH_RETURN_IF_ERROR(PrintMutation(
        context.format, context.quiet, absl::StrCat("worker/", *worker_id), "forgotten", response));
    return kExitOk;
  };
}

}  // namespace hearth::jobctl
