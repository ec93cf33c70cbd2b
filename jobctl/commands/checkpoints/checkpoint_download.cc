#include "jobctl/commands/checkpoints/checkpoint_download.h"

#include <unistd.h>

#include <filesystem>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/units.h"
#include "common/io/sha256.h"
#include "common/time/clock.h"
#include "common/weights/manifest.h"
#include "jobctl/client/retry.h"
#include "jobctl/commands/command_context.h"

namespace hearth::jobctl {
namespace {

// Whether this machine has the folder of that very checkpoint.
bool IsHere(const v1::Checkpoint& checkpoint) {
  const absl::StatusOr<std::string> manifest = Env::Real().ReadFile(
      absl::StrCat(checkpoint.path(), "/", std::string(weights::kManifestFile)));
  return manifest.ok() && Sha256Hex(*manifest) == checkpoint.manifest_sha256();
}

}  // namespace

CLI::App* AddCheckpointDownload(CLI::App& app, DownloadOptions& options) {
  CLI::App* download = app.add_subcommand(
      "download",
      "Copy a checkpoint to this machine; after an interruption, repeat it to continue");
  download->add_option("job", options.job_id, "Job id, or an unambiguous beginning of one")
      ->required();
  download->add_option("--out", options.out, "Folder to create")->required();
  download->add_option("--step", options.step, "Step of the checkpoint (default: the newest)")
      ->check(CLI::PositiveNumber);
  download->add_flag("--state", options.state,
                     "Also copy master weights and optimizer state, which only a resume reads");
  return download;
}

absl::StatusOr<Downloaded> DownloadShown(Context& context, const DownloadOptions& options) {
  HEARTH_ASSIGN_OR_RETURN(Client * client, context.client());
  const bool show = !context.quiet && isatty(STDERR_FILENO) == 1;
  const absl::Duration began = Clock::Real().Monotonic();
  absl::Duration shown = began;
  int64_t before = -1;
  const auto progress = [&](const DownloadProgress& at) {
    const absl::Duration now = Clock::Real().Monotonic();
    before = before < 0 ? at.done : before;
    if (!show || now - shown < absl::Milliseconds(200)) {
      return;
    }
    shown = now;
    const double rate = static_cast<double>(at.done - before) / absl::ToDoubleSeconds(now - began);
    const absl::Duration left = absl::Seconds(static_cast<double>(at.total - at.done) / rate);
    WriteErr(absl::StrCat("\r\x1b[K", at.file, "  ", FormatBytes(at.done), " of ",
                          FormatBytes(at.total), "  ", FormatBytes(static_cast<int64_t>(rate)),
                          "/s  ", rate > 0 ? HumanDuration(left) : "-"));
  };
  const DownloadRetry retry = [](const auto& once) { return RetryStream(once); };
  absl::StatusOr<Downloaded> done =
      DownloadCheckpoint(Env::Real(), *client, options, retry, progress);
  if (show) {
    WriteErr("\r\x1b[K");
  }
  return done;
}

absl::StatusOr<int> CheckpointDownload(Context& context, const DownloadOptions& options) {
  HEARTH_ASSIGN_OR_RETURN(const Downloaded done, DownloadShown(context, options));
  HEARTH_ASSIGN_OR_RETURN(const bool printed, PrintMessage(context.format, done.checkpoint));
  if (!printed && !context.quiet) {
    WriteOut(absl::StrCat(
        options.out, ": step ", done.checkpoint.step(), " of ", options.job_id, ", ", done.files,
        " files, ", FormatBytes(done.bytes),
        done.fetched < done.bytes
            ? absl::StrCat(" (", FormatBytes(done.bytes - done.fetched), " were here already)")
            : "",
        ", checksums good\n"));
  }
  return kExitOk;
}

absl::StatusOr<LocalModel> LocalModel::Find(Context& context,
                                            const std::string& source,
                                            int64_t step,
                                            const std::string& beside,
                                            bool state) {
  LocalModel model;
  std::error_code unknown;
  if (std::filesystem::is_directory(source, unknown)) {
    if (step > 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("--step needs a job; ", source, " is a folder on this machine"));
    }
    model.folder_ = source;
    return model;
  }
  if (source.find('/') != std::string::npos) {
    return absl::NotFoundError(absl::StrCat(source, ": no such folder"));
  }
  HEARTH_ASSIGN_OR_RETURN(Client * client, context.client());
  v1::GetCheckpointRequest request;
  request.set_job_id(source);
  request.set_step(step);
  HEARTH_ASSIGN_OR_RETURN(const v1::Checkpoint checkpoint, client->Call<v1::Checkpoint>(request));
  if (IsHere(checkpoint)) {
    model.folder_ = checkpoint.path();
    return model;
  }
  DownloadOptions options;
  options.job_id = source;
  options.step = checkpoint.step();
  options.state = state;
  options.out = absl::StrCat(beside, ".source-", checkpoint.step());
  // An earlier command may have come as far as that.
  if (!Env::Real().Exists(options.out)) {
    HEARTH_RETURN_IF_ERROR(DownloadShown(context, options).status());
  }
  model.folder_ = options.out;
  model.copied_ = true;
  return model;
}

absl::Status LocalModel::Release() const {
  return copied_ ? Env::Real().RemoveAll(folder_) : absl::OkStatus();
}

}  // namespace hearth::jobctl
