#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "jobctl/commands/arguments.h"
#include "jobctl/commands/command_row.h"

namespace hearth::jobctl {
namespace {

struct Options {
  std::string job;
  std::vector<std::string> words;
  std::string request_id;
};

absl::StatusOr<int> Run(Context& context, const Options& options) {
  HEARTH_ASSIGN_OR_RETURN(Client * client, context.client());
  v1::AddNoteRequest request;
  request.set_job_id(options.job);
  request.set_text(absl::StrJoin(options.words, " "));
  request.set_request_id(options.request_id.empty() ? RandomUuid() : options.request_id);
  const absl::StatusOr<v1::Job> job = client->Call<v1::Job>(request);
  if (!job.ok()) {
    return SafeToRetry(job.status(), request.request_id());
  }
  HEARTH_RETURN_IF_ERROR(PrintMutation(context.format, context.quiet,
                                       absl::StrCat("job/", job->job_id()), "noted", *job));
  return kExitOk;
}

}  // namespace

Action SetupNote(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_option("job", options->job, "Job id")->required();
  app.add_option("text", options->words, "The note; several words need no quotes")->required();
  app.add_option("--request-id", options->request_id,
                 "UUID that makes repeating this command harmless (default: a new one)");
  return [options](Context& context) { return Run(context, *options); };
}

}  // namespace hearth::jobctl
