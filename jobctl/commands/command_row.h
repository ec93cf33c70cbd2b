// What a command is: a row of JOBCTL_COMMANDS, whose setup function adds options to a CLI11
// subcommand and returns what to run.
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "jobctl/commands/command_context.h"

namespace CLI {
class App;
}

namespace hearth::jobctl {

// Runs after parsing; returns the exit code, or an error that main prints (exit code 1).
using Action = std::function<absl::StatusOr<int>(Context&)>;

struct CommandDef {
  const char* name;
  const char* help;
  // Adds options to `app`; the returned action owns what they write into.
  Action (*setup)(CLI::App& app);
};

// All commands, in the order of the help text.
absl::Span<const CommandDef> Commands();

// Makes the arguments "worker", "token" and "context" of a command and its subcommands, and all
// that name jobs (FindJobArgument), also take what `-o name` prints: job/ID, worker/NAME. Call it
// after the command's setup.
void AcceptResourceNames(CLI::App& app);

// clang-format off
// One row a command, in the order of the help text: ROW(Type, name, help). A file below this
// folder defines Setup<Type>().
#define JOBCTL_COMMANDS(ROW) \
  ROW(Explain, "explain", "Explain the job file, or one of its fields") \
  ROW(Init, "init", "Write a commented job file to start from") \
  ROW(Submit, "submit", "Send a job file to the coordinator") \
  ROW(List, "list", "List jobs, newest first") \
  ROW(Get, "get", "Show jobs, one per row (everything with -o json)") \
  ROW(Describe, "describe", "Show everything about a job, with its events") \
  ROW(Watch, "watch", "Follow a job: progress, loss, speed, time left") \
  ROW(Logs, "logs", "Print a job's log") \
  ROW(Events, "events", "Print what happened to a job and why") \
  ROW(Metrics, "metrics", "Print or plot a job's step history") \
  ROW(Report, "report", "Summarise a job for others: verdict, cost, versions, curve") \
  ROW(Diff, "diff", "Show the keys in which two jobs differ") \
  ROW(Rerun, "rerun", "Submit a job again as a new one, with changes") \
  ROW(Cancel, "cancel", "Stop a job (a checkpoint is written unless --now)") \
  ROW(Pause, "pause", "Write a checkpoint and free the workers") \
  ROW(Resume, "resume", "Continue a job that is paused or has ended") \
  ROW(Note, "note", "Add a note to a job's events") \
  ROW(Update, "update", "Change a job's priority or labels") \
  ROW(Delete, "delete", "Remove an ended or paused job and its history") \
  ROW(Wait, "wait", "Wait until a job ends; the exit code says how it ended") \
  ROW(Top, "top", "Watch the workers: speed, power, temperature, memory") \
  ROW(Workers, "workers", "List workers") \
  ROW(Cordon, "cordon", "Give a worker no new jobs") \
  ROW(Uncordon, "uncordon", "Use a worker again") \
  ROW(Drain, "drain", "Cordon a worker and move its job away") \
  ROW(Forget, "forget", "Forget a worker, so that another daemon may take its name") \
  ROW(DeclareLost, "declare-lost", "Say that silent workers are gone for good") \
  ROW(Checkpoints, "checkpoints", "List, copy, export and average checkpoints; remove folders that no job needs") \
  ROW(Sample, "sample", "Continue a text with a job's newest checkpoint, on an idle worker") \
  ROW(Token, "token", "Make, list and revoke the tokens that say who may do what") \
  ROW(WhoAmI, "whoami", "Show the user and role that your calls have") \
  ROW(Audit, "audit", "Show who did what, and what was refused") \
  ROW(Backup, "backup", "Have the coordinator back up its data to a folder on its machine") \
  ROW(Contexts, "context", "Keep the settings of several coordinators, and choose one") \
  ROW(Dataset, "dataset", "Build, inspect and mix datasets") \
  ROW(Plan, "plan", "Say whether a job fits a GPU, how long it takes and what it costs") \
  ROW(Doctor, "doctor", "Check this machine, the coordinator and the workers, or find why a job is slow") \
  ROW(Completion, "completion", "Print a shell completion script") \
  ROW(Version, "version", "Print the versions of jobctl and the coordinator")
// clang-format on

#define JOBCTL_DECLARE(type, name, help) Action Setup##type(CLI::App& app);
JOBCTL_COMMANDS(JOBCTL_DECLARE)
#undef JOBCTL_DECLARE

}  // namespace hearth::jobctl
