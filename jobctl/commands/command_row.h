// What a command is: a row of JOBCTL_COMMANDS, whose setup function adds options to a CLI11
// subcommand and returns what to run.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "jobctl/client/client.h"
#include "jobctl/commands/cost.h"
#include "jobctl/views/output.h"

namespace CLI {
class App;
}

namespace hearth::jobctl {

// Exit codes, part of the interface (docs/jobctl.md).
enum ExitCode {
  kExitOk = 0,
  kExitError = 1,
  kExitUsage = 2,
  kExitDoesNotFit = 3,  // plan: NO on every GPU that was asked for
  kExitAuth = 4,        // no usable token, or the coordinator refuses the caller
  kExitJobFailed = 100,
  kExitTimedOut = 101,
  kExitNotFound = 102,
  kExitJobCancelled = 103,
};

// What all commands share. Lives as long as the process.
struct Context {
  ConnectOptions connect;
  std::string context_path;  // of the context file; need not exist
  std::string context_name;  // of the context that counts, "" = none
  OutputFormat format = OutputFormat::kTable;
  bool quiet = false;
  bool no_color = false;  // --no-color; ColorWanted() also reads NO_COLOR
  Prices prices;
  double temperature_limit = 85.0;  // degrees Celsius above which a device is too hot

  // Connects on first use.
  absl::StatusOr<Client*> client();

 private:
  std::unique_ptr<Client> client_;
};

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

// Makes the arguments "job", "worker", "token" and "context" of a command and its subcommands also
// take what `-o name` prints: job/ID, worker/NAME. Call it after the command's setup.
void AcceptResourceNames(CLI::App& app);

// clang-format off
// One row a command, in the order of the help text: ROW(Type, name, help). Its file in this folder
// defines Setup<Type>().
#define JOBCTL_COMMANDS(ROW) \
  ROW(Explain, "explain", "Explain the job file, or one of its fields") \
  ROW(Init, "init", "Write a commented job file to start from") \
  ROW(Submit, "submit", "Send a job file to the coordinator") \
  ROW(List, "list", "List jobs, newest first") \
  ROW(Get, "get", "Show one job in a row (everything with -o json)") \
  ROW(Describe, "describe", "Show everything about a job, with its events") \
  ROW(Watch, "watch", "Follow a job: progress, loss, speed, time left") \
  ROW(Logs, "logs", "Print a job's log") \
  ROW(Events, "events", "Print what happened to a job and why") \
  ROW(Metrics, "metrics", "Print or plot a job's step history") \
  ROW(Report, "report", "Summarise a job for others: verdict, cost, versions, curve") \
  ROW(Diff, "diff", "Show in which keys two jobs differ") \
  ROW(Rerun, "rerun", "Submit a job again as a new one, with changes") \
  ROW(Cancel, "cancel", "Stop a job (a checkpoint is written unless --now)") \
  ROW(Pause, "pause", "Write a checkpoint and free the workers") \
  ROW(Resume, "resume", "Continue a paused, failed or cancelled job") \
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
  ROW(Sample, "sample", "Have a job's newest checkpoint continue a text, on an idle worker") \
  ROW(Token, "token", "Make, list and revoke the tokens that say who may do what") \
  ROW(WhoAmI, "whoami", "Show whom the coordinator takes you for") \
  ROW(Audit, "audit", "Show who did what, and what was refused") \
  ROW(Backup, "backup", "Have the coordinator copy what it knows to a folder on its machine") \
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

// Follows a job until it ends or rests (paused); draws progress when `show`. Used by wait, watch
// and submit --watch/--wait. `timeout` zero = none. Returns an ExitCode; Ctrl-C detaches, says how
// to re-attach and returns kExitOk.
struct FollowOptions {
  std::string job_id;
  bool show = true;
  bool exit_status = true;  // map the end state to the exit codes; else 0
  absl::Duration timeout = absl::ZeroDuration();
};
absl::StatusOr<int> FollowJob(Context& context, const FollowOptions& options);

// The end state's exit code: succeeded and paused 0, failed 100, cancelled 103.
int ExitCodeOf(v1::JobState state);

// What a command that follows a job says while its coordinator is away: "reconnecting, 12 s" at
// once and then at most every few seconds, and that it is back. One for all streams of a command.
// Thread-safe.
class OutageNotice {
 public:
  // `say` gets whole lines without their end, one call at a time.
  explicit OutageNotice(std::function<void(const std::string& line)> say) : say_(std::move(say)) {}

  // The stream has been broken for this long, because of `why`.
  void Away(absl::Duration broken, const absl::Status& why) ABSL_LOCKS_EXCLUDED(mu_);
  // A stream delivers messages again. Says nothing if the outage was not reported.
  void Back() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  const std::function<void(const std::string& line)> say_;
  absl::Mutex mu_;
  bool away_ ABSL_GUARDED_BY(mu_) = false;
  absl::Duration said_ ABSL_GUARDED_BY(mu_);  // `broken` of the last line
};

// Repeats a stream that ends with kUnavailable (the coordinator restarts), for two minutes after
// its last message. `once` runs the stream from where it broke, calls its argument for each
// message, and returns how the stream ended. `pause` waits that long; it returns false when no
// repetition is needed, and the result is then OK.
using StreamOnce = std::function<absl::Status(const std::function<void()>& progressed)>;
absl::Status RetryStream(const StreamOnce& once,
                         const std::function<bool(absl::Duration)>& pause,
                         OutageNotice& notice);
// The same with real pauses and lines on stderr, for commands that do nothing else.
absl::Status RetryStream(const StreamOnce& once);

// Calls `handler` in a thread of its own on the first SIGINT; the second one ends the process at
// once. Call before any thread is started.
void OnInterrupt(std::function<void()> handler);
void BlockInterrupts();
bool Interrupted();
// Says on stderr that the job continues and that "jobctl `command` JOB" follows it again.
void SayDetached(const std::string& command, const std::string& job_id);

}  // namespace hearth::jobctl
