// What a command is: a row of kCommands (commands.cc) that hangs options on a CLI11 subcommand and
// returns what to run.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "jobctl/client.h"
#include "jobctl/cost.h"
#include "jobctl/output.h"

namespace CLI {
class App;
}

namespace hearth::jobctl {

// Exit codes, part of the interface (docs/jobctl.md).
enum ExitCode {
  kExitOk = 0,
  kExitError = 1,
  kExitUsage = 2,
  kExitJobFailed = 100,
  kExitTimedOut = 101,
  kExitNotFound = 102,
  kExitJobCancelled = 103,
};

// What all commands share. Lives as long as the process.
struct Context {
  ConnectOptions connect;
  OutputFormat format = OutputFormat::kTable;
  bool quiet = false;
  bool no_color = false;  // --no-color; NO_COLOR is asked for by ColorWanted()
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

// Makes the arguments "job" and "worker" of a command take what `-o name` prints, too: job/ID,
// worker/NAME. To be called after the command's setup.
void AcceptResourceNames(CLI::App& app);

Action SetupSubmit(CLI::App& app);
Action SetupList(CLI::App& app);
Action SetupGet(CLI::App& app);
Action SetupDescribe(CLI::App& app);
Action SetupWatch(CLI::App& app);
Action SetupLogs(CLI::App& app);
Action SetupEvents(CLI::App& app);
Action SetupMetrics(CLI::App& app);
Action SetupCancel(CLI::App& app);
Action SetupPause(CLI::App& app);
Action SetupResume(CLI::App& app);
Action SetupUpdate(CLI::App& app);
Action SetupDelete(CLI::App& app);
Action SetupWait(CLI::App& app);
Action SetupReport(CLI::App& app);
Action SetupTop(CLI::App& app);
Action SetupWorkers(CLI::App& app);
Action SetupCordon(CLI::App& app);
Action SetupUncordon(CLI::App& app);
Action SetupDrain(CLI::App& app);
Action SetupForget(CLI::App& app);
Action SetupDeclareLost(CLI::App& app);
Action SetupCheckpoints(CLI::App& app);
Action SetupDataset(CLI::App& app);
Action SetupPlan(CLI::App& app);
Action SetupDoctor(CLI::App& app);
Action SetupCompletion(CLI::App& app);
Action SetupVersion(CLI::App& app);

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

  // The stream has been broken for so long, because of `why`.
  void Away(absl::Duration broken, const absl::Status& why) ABSL_LOCKS_EXCLUDED(mu_);
  // A stream brings something again. Says nothing if nothing was said of an outage.
  void Back() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  const std::function<void(const std::string& line)> say_;
  absl::Mutex mu_;
  bool away_ ABSL_GUARDED_BY(mu_) = false;
  absl::Duration said_ ABSL_GUARDED_BY(mu_);  // `broken` of the last line
};

// Repeats a stream over passing trouble (kUnavailable: a coordinator that restarts), for two
// minutes after it last brought something. `once` runs the stream from where it broke, calls its
// argument for each message that it brings, and returns how it ended. `pause` waits that long;
// false: there is no more need, and the result is OK.
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
// Says on stderr that the job goes on and that "jobctl `command` JOB" follows it again.
void SayDetached(const std::string& command, const std::string& job_id);

}  // namespace hearth::jobctl
