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
  JobChoice choice;
  v1::DeleteJobRequest request;
  bool yes = false;
};

absl::Status ConfirmDelete(const Options& options, const std::vector<std::string>& job_ids) {
  const bool several = job_ids.size() > 1;
  const std::string what = absl::StrCat(
      several ? "their " : "its ",
      options.request.checkpoints() ? "history, log and all checkpoints" : "history and log");
  return Confirm(absl::StrCat("Delete job/", absl::StrJoin(job_ids, ", job/"), " with ", what, "?"),
                 absl::StrCat("delete removes job/", absl::StrJoin(job_ids, ", job/"), ", ", what));
}

// Says which checkpoint folders stay or are removed, as messages: they are not the command's data.
void SayFolders(const v1::DeleteJobResponse& response,
                const std::string& job_id,
                bool checkpoints) {
  for (const v1::JobFolder& folder : response.folders()) {
    if (folder.removing()) {
      WriteErr(absl::StrCat("worker ", folder.worker_id(), " removes ", folder.path(), "\n"));
    } else if (checkpoints) {
      WriteErr(absl::StrCat("no connected worker sees ", folder.path(),
                            ": it stays; jobctl checkpoints prune removes it later\n"));
    } else {
      WriteErr(absl::StrCat("its checkpoints stay in ", folder.path(),
                            "; jobctl checkpoints prune --job ", job_id,
                            " --min-age 0s removes them\n"));
    }
  }
}

absl::StatusOr<int> Delete(Context& context,
                           const Options& options,
                           const std::vector<std::string>& job_ids) {
  if (!options.yes) {
    HEARTH_RETURN_IF_ERROR(ConfirmDelete(options, job_ids));
  }
  HEARTH_ASSIGN_OR_RETURN(Client * client, context.client());
  return ForEach("job", job_ids, [&](const std::string& job_id) -> absl::Status {
    v1::DeleteJobRequest request = options.request;
    request.set_job_id(job_id);
    HEARTH_ASSIGN_OR_RETURN(const v1::DeleteJobResponse response,
                            client->Call<v1::DeleteJobResponse>(request));
    HEARTH_RETURN_IF_ERROR(PrintMutation(context.format, context.quiet,
                                         absl::StrCat("job/", job_id), "deleted", response));
    if (!context.quiet) {
      SayFolders(response, job_id, request.checkpoints());
    }
    return absl::OkStatus();
  });
}

}  // namespace

Action SetupDelete(CLI::App& app) {
  auto options = std::make_shared<Options>();
  AddJobChoice(app, options->choice, Labelled::kAtRest);
  app.add_flag_callback(
      "--checkpoints", [options] { options->request.set_checkpoints(true); },
      "Also remove checkpoint folders (default: they stay)");
  app.add_flag("-y,--yes", options->yes, "Do not ask");
  return [options](Context& context) {
    return ForChosenJobs(context, options->choice, [&](const std::vector<std::string>& job_ids) {
      return Delete(context, *options, job_ids);
    });
  };
}

}  // namespace hearth::jobctl
