#include <algorithm>
#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/base/status_macros.h"
#include "common/base/units.h"
#include "common/time/clock.h"
#include "jobctl/commands/arguments.h"
#include "jobctl/commands/checkpoints/checkpoint_download.h"
#include "jobctl/commands/checkpoints/checkpoint_export.h"
#include "jobctl/commands/command_row.h"
#include "jobctl/views/output/table.h"
#include "jobctl/views/text/display_text.h"

namespace hearth::jobctl {
namespace {

// How long to wait for a worker's new listing before its previous one is used.
constexpr absl::Duration kListingTime = absl::Seconds(20);
constexpr absl::Duration kListingPoll = absl::Milliseconds(200);

struct Options {
  std::string job_id;
  CLI::App* prune = nullptr;
  v1::PruneCheckpointsRequest request;
  std::string min_age = "1h";
  bool yes = false;
  CLI::App* download = nullptr;
  DownloadOptions download_options;
  CLI::App* exports = nullptr;
  CheckpointExportOptions export_options;
  CLI::App* average = nullptr;
  CheckpointAverageOptions average_options;
};

absl::StatusOr<int> List(Context& context, const std::string& job_id) {
  HEARTH_ASSIGN_OR_RETURN(Client * client, context.client());
  v1::ListCheckpointsRequest request;
  request.set_job_id(job_id);
  HEARTH_ASSIGN_OR_RETURN(const v1::ListCheckpointsResponse response,
                          client->Call<v1::ListCheckpointsResponse>(request));
  HEARTH_ASSIGN_OR_RETURN(const bool printed, PrintMessage(context.format, response));
  if (printed) {
    return kExitOk;
  }
  Table table({"STEP", "EPOCH", "SIZE", "HELD-OUT-LOSS", "CREATED", "PATH"});
  table.ShortenLast();
  if (context.format == OutputFormat::kWide) {
    table.Whole();
  }
  for (const v1::Checkpoint& checkpoint : response.checkpoints()) {
    table.Add({absl::StrCat(checkpoint.step()), absl::StrCat(checkpoint.epoch()),
               FormatBytes(checkpoint.bytes()),
               checkpoint.validation_loss() > 0 ? Number(checkpoint.validation_loss(), 4) : "-",
               TimeText(checkpoint.create_time()), checkpoint.path()});
  }
  WriteOut(table.Render(FitColumns()));
  return kExitOk;
}

// A dry run with new listings from the workers.
absl::StatusOr<v1::PruneCheckpointsResponse> Look(Client& client,
                                                  v1::PruneCheckpointsRequest request) {
  request.set_dry_run(true);
  const absl::Duration deadline = Clock::Real().Monotonic() + kListingTime;
  while (true) {
    HEARTH_ASSIGN_OR_RETURN(v1::PruneCheckpointsResponse found,
                            client.Call<v1::PruneCheckpointsResponse>(request));
    const auto& roots = found.roots();
    const bool pending =
        std::any_of(roots.begin(), roots.end(), [](const auto& root) { return root.pending(); });
    if (!pending) {
      return found;
    }
    if (Clock::Real().Monotonic() >= deadline) {
      WriteErr("a worker is still listing its folders; this is its previous list\n");
      return found;
    }
    absl::Mutex mu;
    const bool never = false;
    absl::MutexLock lock(&mu);
    Clock::Real().AwaitWithTimeout(mu, absl::Condition(&never), kListingPoll);
  }
}

void Print(const v1::PruneCheckpointsResponse& response) {
  Table table({"JOB", "SIZE", "CHANGED", "PATH", "WHY"});
  for (const v1::PrunableFolder& each : response.folders()) {
    const v1::CheckpointFolder& folder = each.folder();
    table.Add({folder.job_id(), FormatBytes(folder.bytes()), TimeText(folder.change_time()),
               each.path(),
               each.kept().empty() ? each.reason()
                                   : absl::StrCat("STAYS (", each.kept(), "): ", each.reason())});
  }
  WriteOut(table.Render(FitColumns()));
}

struct Sum {
  int folders = 0;
  int64_t bytes = 0;
};

Sum SumOf(const v1::PruneCheckpointsResponse& response) {
  Sum sum;
  for (const v1::PrunableFolder& each : response.folders()) {
    if (each.kept().empty()) {
      ++sum.folders;
      sum.bytes += each.folder().bytes();
    }
  }
  return sum;
}

absl::StatusOr<int> Prune(Context& context, Options& options) {
  HEARTH_ASSIGN_OR_RETURN(const absl::Duration min_age, ParseTimeout(options.min_age, "--min-age"));
  v1::PruneCheckpointsRequest request = options.request;
  request.set_min_age_seconds(absl::ToInt64Seconds(min_age));
  HEARTH_ASSIGN_OR_RETURN(Client * client, context.client());
  HEARTH_ASSIGN_OR_RETURN(v1::PruneCheckpointsResponse response, Look(*client, request));
  const Sum sum = SumOf(response);
  const std::string what = absl::StrCat(sum.folders, " folder", sum.folders == 1 ? "" : "s", ", ",
                                        FormatBytes(sum.bytes));
  if (!context.format.data()) {
    Print(response);
  }
  if (!request.dry_run() && sum.folders > 0) {
    if (!options.yes) {
      HEARTH_RETURN_IF_ERROR(
          Confirm(absl::StrCat("Remove ", what, "?"), absl::StrCat("prune removes ", what)));
    }
    HEARTH_ASSIGN_OR_RETURN(response, client->Call<v1::PruneCheckpointsResponse>(request));
  }
  HEARTH_RETURN_IF_ERROR(PrintMessage(context.format, response).status());
  if (!context.quiet) {
    WriteErr(absl::StrCat(what, request.dry_run() ? " would be removed\n" : " being removed\n"));
    if (response.truncated()) {
      WriteErr("there are more; run prune again for the rest\n");
    }
  }
  return kExitOk;
}

}  // namespace

Action SetupCheckpoints(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::Option* job =
      app.add_option("job", options->job_id,
                     "Job whose checkpoints are listed: its id, or an unambiguous beginning of it");
  options->prune = app.add_subcommand("prune", "Remove checkpoint folders that no job needs");
  CLI::App& prune = *options->prune;
  prune.add_flag_callback(
      "--dry-run", [options] { options->request.set_dry_run(true); }, "Only list the folders");
  prune.add_option_function<std::string>(
      "--job", [options](const std::string& id) { options->request.set_job_id(id); },
      "Only folders of this job (does not change --min-age)");
  prune
      .add_option("--min-age", options->min_age,
                  "Keep folders of unknown jobs that changed within this time: another "
                  "coordinator's job may be writing there")
      ->capture_default_str();
  prune.add_flag("-y,--yes", options->yes, "Do not ask");
  options->download = AddCheckpointDownload(app, options->download_options);
  options->exports = AddCheckpointExport(app, options->export_options);
  options->average = AddCheckpointAverage(app, options->average_options);
  return [options, job](Context& context) -> absl::StatusOr<int> {
    if (options->prune->parsed()) {
      return Prune(context, *options);
    }
    if (options->download->parsed()) {
      return CheckpointDownload(context, options->download_options);
    }
    if (options->exports->parsed()) {
      return CheckpointExport(context, options->export_options);
    }
    if (options->average->parsed()) {
      return CheckpointAverage(context, options->average_options);
    }
    if (job->count() == 0) {
      WriteErr("error: job is required (or: checkpoints download, export, average or prune)\n");
      return kExitUsage;
    }
    return List(context, options->job_id);
  };
}

}  // namespace hearth::jobctl
