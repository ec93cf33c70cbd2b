#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "jobctl/commands/arguments.h"
#include "jobctl/commands/command_row.h"
#include "jobctl/commands/for_each.h"

namespace hearth::jobctl {
namespace {

// The call about one worker whose request is a `Request`.
template <typename Request, typename Response = v1::Worker>
absl::StatusOr<Response> CallWorker(Client& client, const std::string& worker_id) {
  Request request;
  request.set_worker_id(worker_id);
  return client.Call<Response>(request);
}

// cordon, uncordon, drain and forget differ in the call and the word.
template <typename Request, typename Response = v1::Worker>
Action SetupWorkerVerb(CLI::App& app, const char* verbed) {
  auto worker_ids = std::make_shared<std::vector<std::string>>();
  app.add_option("worker", *worker_ids, "Names of workers")->required();
  return [worker_ids, verbed](Context& context) -> absl::StatusOr<int> {
    HEARTH_ASSIGN_OR_RETURN(Client * client, context.client());
    return ForEach("worker", *worker_ids, [&](const std::string& worker_id) -> absl::Status {
      HEARTH_ASSIGN_OR_RETURN(const Response response,
                              (CallWorker<Request, Response>(*client, worker_id)));
      return PrintMutation(context.format, context.quiet, absl::StrCat("worker/", worker_id),
                           verbed, response);
    });
  };
}

absl::Status ListAll(Client& client, v1::ListWorkersResponse& all) {
  v1::ListWorkersRequest request;
  do {
    HEARTH_ASSIGN_OR_RETURN(const v1::ListWorkersResponse page,
                            client.Call<v1::ListWorkersResponse>(request));
    request.set_page_token(page.next_page_token());
    all.mutable_workers()->MergeFrom(page.workers());
  } while (!request.page_token().empty());
  return absl::OkStatus();
}

absl::StatusOr<int> List(Context& context, const std::vector<std::string>& worker_ids) {
  HEARTH_ASSIGN_OR_RETURN(Client * client, context.client());
  v1::ListWorkersResponse all;
  for (const std::string& worker_id : worker_ids) {
    HEARTH_ASSIGN_OR_RETURN(*all.add_workers(),
                            CallWorker<v1::GetWorkerRequest>(*client, worker_id));
  }
  if (worker_ids.size() == 1) {
    HEARTH_RETURN_IF_ERROR(PrintWorkers(context.format, {all.workers(0)}, all.workers(0)));
    return kExitOk;
  }
  if (worker_ids.empty()) {
    HEARTH_RETURN_IF_ERROR(ListAll(*client, all));
  }
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
  auto worker_ids = std::make_shared<std::vector<std::string>>();
  app.add_option("worker", *worker_ids, "Names of workers (default: all)");
  return [worker_ids](Context& context) { return List(context, *worker_ids); };
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
  return SetupWorkerVerb<v1::DeleteWorkerRequest, v1::DeleteWorkerResponse>(app, "forgotten");
}

}  // namespace hearth::jobctl
