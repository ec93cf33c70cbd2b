// What a command is: a row of JOBCTL_COMMANDS, whose setup function adds options to a CLI11
// subcommand and returns what to run.
#pragma once

#include <functional>
#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "jobctl/commands/command_context.h"

namespace CLI {
class App;
}

namespace hearth::jobctl {

// Runs after parsing; returns the exit code, or an error that main prints (exit code 1).
using Action = std::function<absl::StatusOr<int>(Context&)>;

// What a command takes for the id of a job where nobody sees which job was chosen: in a script.
enum class InScripts {
  kWholeIds,    // it changes something, or a script acts on its exit code
  kBeginnings,  // it shows something
};

struct CommandDef {
  const char* name;
  const char* help;
  InScripts in_scripts;  // of no effect if it takes no job
  FormatSet formats;     // of -o; of its commands see kSubcommandFormats in commands.cc
  // Adds options to `app`; the returned action owns what they write into.
  Action (*setup)(CLI::App& app);
};

// All commands, in the order of the help text.
absl::Span<const CommandDef> Commands();

// What the command or subcommand at `path` ("list", "dataset mix") prints by -o. Absent: there is
// no such command.
std::optional<FormatSet> FormatsOf(std::string_view path);

// kInvalidArgument: the command at `path` does not print `format`; the text names those it prints.
absl::Status CheckFormat(std::string_view path, const OutputFormat& format);

// Makes the arguments "worker", "token" and "context" of a command and its subcommands, and all
// that name jobs (FindJobArgument), also take what `-o name` prints: job/ID, worker/NAME. Call it
// after the command's setup.
void AcceptResourceNames(CLI::App& app);

// clang-format off
// One row a command, in the order of the help text: ROW(Type, name, help, in_scripts,
// formats). A file below this folder defines Setup<Type>().
#define JOBCTL_COMMANDS(ROW) \
  ROW(Explain, "explain", "Explain the job file, or one of its fields", kWholeIds, kPrintsData) \
  ROW(Init, "init", "Write a commented job file to start from", kWholeIds, kPrintsText) \
  ROW(Submit, "submit", "Send a job file to the coordinator", kWholeIds, kPrintsChange) \
  ROW(List, "list", "List jobs, newest first", kWholeIds, kPrintsRows) \
  ROW(Get, "get", "Show jobs, one per row (everything with -o json)", kBeginnings, kPrintsRows) \
  ROW(Describe, "describe", "Show everything about jobs, with their events", kBeginnings, kPrintsRows) \
  ROW(Watch, "watch", "Follow jobs: progress, loss, speed, time left", kBeginnings, kPrintsText) \
  ROW(Logs, "logs", "Print the logs of jobs", kBeginnings, kPrintsJson) \
  ROW(Events, "events", "Print what happened to jobs and why", kBeginnings, kPrintsMessage | kPrintsWide) \
  ROW(Metrics, "metrics", "Print a job's step history, or plot that of several", kBeginnings, kPrintsJson | kPrintsWide) \
  ROW(Report, "report", "Summarise jobs for others: verdict, cost, versions, curve", kBeginnings, kPrintsJson) \
  ROW(Diff, "diff", "Show the keys in which two jobs or job files differ", kBeginnings, kPrintsData | kPrintsWide) \
  ROW(Rerun, "rerun", "Submit jobs again as new ones, with changes", kWholeIds, kPrintsChange) \
  ROW(Cancel, "cancel", "Stop jobs, after a checkpoint unless --now is given", kWholeIds, kPrintsChange) \
  ROW(Pause, "pause", "Pause jobs: write a checkpoint and free the workers", kWholeIds, kPrintsChange) \
  ROW(Resume, "resume", "Continue jobs that are paused or have ended", kWholeIds, kPrintsChange) \
  ROW(Note, "note", "Add a note to the events of jobs", kWholeIds, kPrintsChange) \
  ROW(Update, "update", "Change the priority or labels of jobs", kWholeIds, kPrintsChange) \
  ROW(Delete, "delete", "Remove ended or paused jobs and their history", kWholeIds, kPrintsChange) \
  ROW(Wait, "wait", "Wait until jobs end; the exit code says how they ended", kWholeIds, kPrintsText) \
  ROW(Top, "top", "Watch the workers: speed, power, temperature, memory", kWholeIds, kPrintsText) \
  ROW(Workers, "workers", "List workers", kWholeIds, kPrintsRows) \
  ROW(Cordon, "cordon", "Give workers no new jobs", kWholeIds, kPrintsChange) \
  ROW(Uncordon, "uncordon", "Use workers again", kWholeIds, kPrintsChange) \
  ROW(Drain, "drain", "Cordon workers and move their jobs away", kWholeIds, kPrintsChange) \
  ROW(Forget, "forget", "Forget workers, so that other daemons may take their names", kWholeIds, kPrintsChange) \
  ROW(DeclareLost, "declare-lost", "Say that silent workers are gone for good", kWholeIds, kPrintsChange) \
  ROW(Checkpoints, "checkpoints", "List, copy, export and average checkpoints; remove folders that no job needs", kBeginnings, kPrintsMessage | kPrintsWide) \
  ROW(Sample, "sample", "Continue a text with a job's newest checkpoint, on an idle worker", kBeginnings, kPrintsData) \
  ROW(Token, "token", "Make, list and revoke the tokens that say who may do what", kWholeIds, kPrintsText) \
  ROW(WhoAmI, "whoami", "Show the user and role that your calls have", kWholeIds, kPrintsChange) \
  ROW(Audit, "audit", "Show who did what, and what was refused", kWholeIds, kPrintsMessage | kPrintsWide) \
  ROW(Backup, "backup", "Have the coordinator back up its data to a folder on its machine", kWholeIds, kPrintsChange) \
  ROW(Contexts, "context", "Keep the settings of several coordinators, and choose one", kWholeIds, kPrintsText) \
  ROW(Dataset, "dataset", "Build, inspect and mix datasets", kWholeIds, kPrintsText) \
  ROW(Plan, "plan", "Say whether a job fits a GPU, how long it takes and what it costs", kWholeIds, kPrintsJson) \
  ROW(Doctor, "doctor", "Check this machine, the coordinator and the workers, or find why a job is slow", kBeginnings, kPrintsData | kPrintsWide) \
  ROW(Completion, "completion", "Print a shell completion script", kWholeIds, kPrintsText) \
  ROW(Version, "version", "Print the versions of jobctl and the coordinator", kWholeIds, kPrintsMessage)
// clang-format on

#define JOBCTL_DECLARE(type, name, help, in_scripts, formats) Action Setup##type(CLI::App& app);
JOBCTL_COMMANDS(JOBCTL_DECLARE)
#undef JOBCTL_DECLARE

}  // namespace hearth::jobctl
