// hearth-coordinator: accepts jobs over gRPC, schedules them onto workers, keeps their history.
//
// Exit codes: 0 stopped by SIGTERM or SIGINT, --check found no damage (or --repair left none), or
// --backup made a copy; 1 could not start or copy; 2 wrong usage; 3 the data dir is in use by
// another coordinator; 4 the store failed while running (disk full, I/O error): nothing
// acknowledged is lost, start it again once there is room; 5 the data dir is refused (not ours,
// damaged, older than its folder), or --check or --backup found damage: a person has to decide, a
// restart does not help.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/version.h"
#include "common/fault/fault.h"
#include "common/io/env.h"
#include "common/log/log.h"
#include "common/time/clock.h"
#include "coordinator/coordinator.h"
#include "coordinator/service/notify/notify_config.h"
#include "coordinator/store/backup.h"
#include "coordinator/store/check.h"

namespace hearth::coordinator {
namespace {

// The runbook tells people what to do about them.
enum ExitCode : int { kExitStart = 1, kExitUsage, kExitLocked, kExitStore, kExitRefused };

volatile std::sig_atomic_t stop_signal = 0;

void OnSignal(int signal) {
  stop_signal = signal;
}

struct Flags {
  CoordinatorOptions options;
  std::string log_level;
  bool log_json = false;
  int64_t min_free_mib = 16;
  bool check = false;
  bool repair = false;
  std::string backup;
  std::string notify;  // file of NotifyConfig, "" = none
  bool list_fault_points = false;
};

// Durations of the core, in seconds; CoreOptions has the defaults.
struct SecondsRow {
  const char* flag;
  absl::Duration CoreOptions::*option;
  bool may_be_zero;
  const char* help;
};
constexpr SecondsRow kSeconds[] = {
    {"--heartbeat-seconds", &CoreOptions::heartbeat, false, "How often workers send a heartbeat"},
    {"--silence-seconds", &CoreOptions::silence, false,
     "A worker that is silent for longer than this, and whose job makes no progress, is lost"},
    {"--disconnect-seconds", &CoreOptions::disconnect_silence, false,
     "The same for a worker whose connection has ended and that does not reconnect"},
    {"--reattach-grace-seconds", &CoreOptions::reattach_grace, true,
     "For this long after a start of the coordinator, no worker counts as silent"},
    {"--reattach-prompt-seconds", &CoreOptions::reattach_prompt, true,
     "... or this long, once the rest of its gang, or all other workers with tasks, are back"},
    {"--isolation-grace-seconds", &CoreOptions::isolation_grace, true,
     "For this long after it was cut off from its workers, the coordinator replaces none"},
    {"--aging-seconds", &CoreOptions::aging, true,
     "A waiting job goes ahead of a job whose priority is one level higher if that job is "
     "submitted this much later, so that no job waits for ever; 0 = never"},
    {"--resize-interval-seconds", &CoreOptions::resize_interval, true,
     "A job that runs on fewer workers than it wants grows no sooner than this after its start, at "
     "a checkpoint"},
    {"--resize-settle-seconds", &CoreOptions::resize_settle, true,
     "... onto workers that have been free for this long"},
    {"--rendezvous-seconds", &CoreOptions::rendezvous_timeout, false,
     "A gang whose ranks have all come to the rendezvous but are not connected after this long is "
     "restarted"},
    {"--loading-seconds", &CoreOptions::loading_timeout, false,
     "A gang with a rank that has been loading data and model for this long is restarted"},
    {"--stuck-seconds", &CoreOptions::stuck, false,
     "A running job that makes no step for this long counts as stuck, and its receivers are told"},
    {"--kill-timeout-seconds", &CoreOptions::kill_timeout, false,
     "A worker that has not confirmed a kill after this long is unhealthy"},
};

// All but a list of the fault points needs a data dir.
void AddDataDir(CLI::App& app, Flags& flags) {
  CLI::Option* data_dir = app.add_option("--data-dir", flags.options.store.data_dir,
                                         "Folder of the store; created if absent");
  data_dir->required();
  app.add_flag_callback(
      "--list-fault-points",
      [&flags, data_dir] {
        flags.list_fault_points = true;
        data_dir->required(false);
      },
      "Print the fault points for HEARTH_FAULTS, which makes a program fail in tests, and exit");
}

void AddFlags(CLI::App& app, Flags& flags) {
  CoordinatorOptions& options = flags.options;
  app.set_version_flag("--version", "hearth-coordinator " + VersionString());
  AddDataDir(app, flags);
  CLI::Option* check = app.add_flag("--check", flags.check,
                                    "Read the whole data dir, report damage and how to repair it, "
                                    "change nothing and exit; code 5 = "
                                    "damaged");
  app.add_flag("--repair", flags.repair,
               "With --check: repair what needs no human decision, say what was done, and check "
               "again; nothing is removed")
      ->needs(check);
  app.add_option("--backup", flags.backup,
                 "Copy the data dir to this new folder, read the copy back and exit; a coordinator "
                 "may be running on the data dir")
      ->type_name("FOLDER")
      ->excludes(check);
  app.add_option("--backup-dir", options.backups.path,
                 "Where `jobctl backup` puts its copies (default: the data dir's name followed "
                 "by -backups)")
      ->type_name("FOLDER");
  app.add_option("--backup-keep", options.backups.keep,
                 "How many of these copies are kept; older ones are removed")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_flag(
      "--restore", options.store.restore,
      "Start although store.db was put back from a copy or is missing: nothing is removed; what "
      "store.db does not know is moved to <data-dir>/quarantine and logged, and the new generation "
      "is above any that workers have seen");
  app.add_option("--listen", options.listen, "gRPC address, port 0 = any free one")
      ->capture_default_str();
  app.add_option("--http", options.http,
                 "Address of the web page, /metrics, /sd/workers and /healthz; TLS beyond "
                 "loopback if --tls-cert is given")
      ->capture_default_str();
  app.add_option("--http-host", options.http_hosts,
                 "Another name under which a proxy reaches the web page on loopback, repeatable")
      ->type_name("NAME");
  app.add_flag("--open-metrics", options.open_metrics,
               "/metrics and /sd/workers need no token beyond loopback");
  app.add_option(
         "--notify", flags.notify,
         "File (YAML) with the receivers of notifications of all jobs, and the commands and "
         "URLs that job files may name")
      ->type_name("FILE");
  app.add_flag("--insecure", options.insecure, "Allow clear text on non-loopback addresses");
  app.add_flag("--no-auth", options.no_auth,
               "Ask for no tokens: everyone who reaches the coordinator may do everything");
  app.add_option("--tls-cert", options.tls.cert, "Certificate chain (PEM)");
  app.add_option("--tls-key", options.tls.key, "Private key (PEM)");
  app.add_option("--tls-ca", options.tls.ca, "Require client certificates signed by this CA (PEM)");
  app.add_option("--log-level", flags.log_level, "trace | debug | info | warning | error | off");
  app.add_flag("--log-json", flags.log_json, "Log JSON objects, one a line");
  app.add_option("--min-free-mib", flags.min_free_mib,
                 "Refuse changes while the data dir has less free space than this")
      ->capture_default_str();
  app.add_option("--max-jobs", flags.options.loop.core.max_jobs,
                 "Refuse new jobs when this many are stored, whatever their state")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  for (const SecondsRow& row : kSeconds) {
    absl::Duration& value = options.loop.core.*row.option;
    app.add_option_function<double>(
           row.flag, [&value](const double& seconds) { value = absl::Seconds(seconds); }, row.help)
        ->default_str(absl::StrCat(absl::ToDoubleSeconds(value)))
        ->check(row.may_be_zero ? CLI::NonNegativeNumber : CLI::PositiveNumber);
  }
}

void Convert(Flags& flags) {
  CoreOptions& core = flags.options.loop.core;
  core.disconnect_silence = std::min(core.silence, core.disconnect_silence);
  core.reattach_prompt = std::min(core.reattach_grace, core.reattach_prompt);
  flags.options.loop.min_free_bytes = flags.min_free_mib << 20;
}

int Fail(const absl::Status& status, int code) {
  std::fprintf(stderr, "hearth-coordinator: %s\n", std::string(status.message()).c_str());
  return code;
}

int StartFailure(const absl::Status& status) {
  // The store has no code of its own for this: it is known by its words (Store::TakeLock).
  const bool locked = absl::IsFailedPrecondition(status) &&
                      status.message().find("is in use by") != absl::string_view::npos;
  const bool refused = absl::IsFailedPrecondition(status) || absl::IsDataLoss(status);
  return Fail(status, locked                            ? kExitLocked
                      : refused                         ? kExitRefused
                      : absl::IsInvalidArgument(status) ? kExitUsage
                                                        : kExitStart);
}

int Print(const std::string& data_dir, const CheckReport& report) {
  for (const bool damage : {false, true}) {
    for (const Finding& finding : report.findings) {
      if (finding.kind->damage == damage) {
        std::printf("%s: %s\n    %s\n", damage ? "DAMAGE" : "note", finding.text.c_str(),
                    MendText(*finding.kind).c_str());
      }
    }
  }
  const size_t damaged = report.damage().size();
  std::printf("%s: %lld jobs, %lld histories and logs read, %zu damaged\n", data_dir.c_str(),
              static_cast<long long>(report.jobs), static_cast<long long>(report.files), damaged);
  return damaged == 0 ? 0 : kExitRefused;
}

int Check(const std::string& data_dir) {
  const absl::StatusOr<CheckReport> report = CheckDataDir(data_dir);
  return report.ok() ? Print(data_dir, *report) : StartFailure(report.status());
}

int Repair(const std::string& data_dir) {
  const absl::StatusOr<RepairReport> report = RepairDataDir(data_dir, Clock::Real().Now());
  if (!report.ok()) {
    return StartFailure(report.status());
  }
  for (const std::string& line : report->done) {
    std::printf("repaired: %s\n", line.c_str());
  }
  return Print(data_dir, report->after);
}

int Backup(const std::string& data_dir, const std::string& folder) {
  const absl::StatusOr<BackupReport> report = BackupDataDir(data_dir, folder);
  if (!report.ok()) {
    return StartFailure(report.status());
  }
  std::printf("%s: %lld jobs, %lld histories and logs, %lld bytes copied and read back\n",
              folder.c_str(), static_cast<long long>(report->jobs),
              static_cast<long long>(report->files), static_cast<long long>(report->bytes));
  return 0;
}

int Run(Flags& flags) {
  if (flags.list_fault_points) {
    std::fputs(fault::PointList().c_str(), stdout);
    return 0;
  }
  if (flags.check) {
    return flags.repair ? Repair(flags.options.store.data_dir)
                        : Check(flags.options.store.data_dir);
  }
  if (!flags.backup.empty()) {
    return Backup(flags.options.store.data_dir, flags.backup);
  }
  Convert(flags);
  absl::Status ready = log::Init("hearth-coordinator", flags.log_level, flags.log_json);
  if (ready.ok()) {
    ready = fault::InitFromEnvironment();
  }
  if (ready.ok() && !flags.notify.empty()) {
    auto settings = LoadNotifySettings(Env::Real(), flags.notify);
    ready = settings.status();
    if (settings.ok()) {
      flags.options.notify.settings = *std::move(settings);
    }
  }
  if (!ready.ok()) {
    return Fail(ready, kExitUsage);
  }
  struct sigaction action {};
  action.sa_handler = OnSignal;
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  // A client that goes away is a failed write, and not the end of this process.
  std::signal(SIGPIPE, SIG_IGN);

  auto coordinator = Coordinator::Start(flags.options);
  if (!coordinator.ok()) {
    return StartFailure(coordinator.status());
  }
  (*coordinator)->WaitUntil([] { return stop_signal != 0; });
  if ((*coordinator)->failed()) {
    const absl::Status failure = (*coordinator)->failure();
    (*coordinator)->Stop();
    return Fail(failure, kExitStore);
  }
  HEARTH_LOG_INFO("stopping on signal {}", static_cast<int>(stop_signal));
  (*coordinator)->Stop();
  return 0;
}

}  // namespace
}  // namespace hearth::coordinator

// NOLINTNEXTLINE(bugprone-exception-escape): what escapes is a failed allocation, which may end it
int main(int argc, char** argv) {
  CLI::App app("Hearth's coordinator: accepts jobs, schedules them onto workers, keeps history.");
  hearth::coordinator::Flags flags;
  hearth::coordinator::AddFlags(app, flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? 0 : hearth::coordinator::kExitUsage;
  }
  return hearth::coordinator::Run(flags);
}
