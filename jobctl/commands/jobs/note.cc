#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "jobctl/commands/arguments.h"
#include "jobctl/commands/command_row.h"
#include "jobctl/commands/jobs/job_actions.h"

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
  HEARTH_ASSIGN_OR_RETURN(const v1::Job job, CallWithId(*client, options.request_id, request));
  HEARTH_RETURN_IF_ERROR(PrintMutation(context.format, context.quiet,
                                       absl::StrCat("job/", job.job_id()), "noted", job));
  return kExitOk;
}

}  // namespace

Action SetupNote(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_option("job", options->job, "Job id")->required();
  app.add_option("text", options->words, "The note; several words need no quotes")->required();
  AddRequestId(app, options->request_id);
  return [options](Context& context) { return Run(context, *options); };
}

}  // namespace hearth::jobctl
