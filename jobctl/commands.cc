#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "jobctl/command.h"

namespace hearth::jobctl {

absl::Span<const CommandDef> Commands() {
  static constexpr CommandDef kCommands[] = {
      {"submit", "Send a job file to the coordinator", SetupSubmit},
      {"list", "List jobs, newest first", SetupList},
      {"get", "Show one job in a row (or whole with -o json)", SetupGet},
      {"describe", "Show everything about a job, with its events", SetupDescribe},
      {"watch", "Follow a job: progress, loss, speed, time left", SetupWatch},
      {"logs", "Print a job's log", SetupLogs},
      {"events", "Print what happened to a job and why", SetupEvents},
      {"metrics", "Print or plot a job's step history", SetupMetrics},
      {"report", "Sum a job up to share: verdict, cost, versions, curve", SetupReport},
      {"cancel", "Stop a job (a checkpoint is written unless --now)", SetupCancel},
      {"pause", "Write a checkpoint and free the workers", SetupPause},
      {"resume", "Continue a paused, failed or cancelled job", SetupResume},
      {"update", "Change a job's priority or labels", SetupUpdate},
      {"delete", "Remove an ended or paused job and its history", SetupDelete},
      {"wait", "Wait for a job's end; the exit code says how it ended", SetupWait},
      {"top", "Watch the workers: speed, power, temperature, memory", SetupTop},
      {"workers", "List workers", SetupWorkers},
      {"cordon", "Place nothing new on a worker", SetupCordon},
      {"uncordon", "Use a worker again", SetupUncordon},
      {"drain", "Cordon a worker and move its job away", SetupDrain},
      {"forget", "Forget a worker, so that another daemon may take its name", SetupForget},
      {"declare-lost", "Say that silent workers are gone for good", SetupDeclareLost},
      {"checkpoints", "List a job's checkpoints; prune what nobody needs", SetupCheckpoints},
      {"dataset", "Build and inspect datasets", SetupDataset},
      {"plan", "Show the memory a job needs, without submitting it", SetupPlan},
      {"doctor", "Check this machine, the coordinator and the workers; or why a job is slow",
       SetupDoctor},
      {"completion", "Print a shell completion script", SetupCompletion},
      {"version", "Print the versions of jobctl and the coordinator", SetupVersion},
  };
  return kCommands;
}

void AcceptResourceNames(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    const std::string kind = option->get_name();
    if (option->get_positional() && (kind == "job" || kind == "worker")) {
      option->transform([kind](const std::string& text) {
        return std::string(absl::StripPrefix(text, absl::StrCat(kind, "/")));
      });
    }
  }
}

absl::StatusOr<Client*> Context::client() {
  if (client_ == nullptr) {
    auto connected = Client::Connect(connect);
    if (!connected.ok()) {
      return connected.status();
    }
    client_ = *std::move(connected);
  }
  return client_.get();
}

int ExitCodeOf(v1::JobState state) {
  switch (state) {
    case v1::JOB_STATE_FAILED:
      return kExitJobFailed;
    case v1::JOB_STATE_CANCELLED:
      return kExitJobCancelled;
    default:
      return kExitOk;
  }
}

}  // namespace hearth::jobctl
