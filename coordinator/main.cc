// hearth-coordinator: takes jobs over gRPC, schedules them onto workers, keeps their history.
//
// Exit codes: 0 stopped by SIGTERM or SIGINT, or --check found no damage; 1 could not start; 2
// wrong usage; 3 the data dir is in use by another coordinator; 4 the store failed while running
// (disk full, I/O error): nothing acknowledged is lost, start it again once there is room; 5 the
// data dir is refused (not ours, damaged, older than its folder) or --check found damage: somebody
// has to decide, starting again changes nothing.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <string>

#include "CLI/CLI.hpp"
#include "common/base/version.h"
#include "common/fault/fault.h"
#include "common/log/log.h"
#include "coordinator/coordinator.h"
#include "coordinator/store/check.h"

namespace hearth::coordinator {
namespace {

constexpr int kExitStart = 1;
constexpr int kExitUsage = 2;
constexpr int kExitLocked = 3;
constexpr int kExitStore = 4;
constexpr int kExitRefused = 5;

volatile std::sig_atomic_t stop_signal = 0;

void OnSignal(int signal) {
  stop_signal = signal;
}

struct Flags {
  CoordinatorOptions options;
  std::string log_level;
  bool log_json = false;
  double heartbeat_seconds = 1;
  double silence_seconds = 5;
  double disconnect_seconds = 3;
  double reattach_grace_seconds = 30;
  double isolation_grace_seconds = 600;
  double kill_timeout_seconds = 60;
  double resize_interval_seconds = 300;
  double resize_settle_seconds = 30;
  int64_t min_free_mib = 16;
  bool check = false;
};

void AddFlags(CLI::App& app, Flags& flags) {
  CoordinatorOptions& options = flags.options;
  app.set_version_flag("--version", "hearth-coordinator " + VersionString());
  app.add_option("--data-dir", options.store.data_dir, "Folder of the store; made if absent")
      ->required();
  app.add_flag("--check", flags.check,
               "Read the whole data dir, say what is damaged, change nothing and end: 5 = damage");
  app.add_flag(
      "--restore", options.store.restore,
      "Start although store.db was put back from a copy or is missing: nothing is removed, "
      "what it does not know is set aside under <data-dir>/quarantine and listed, and the "
      "generation rises above any that workers have seen");
  app.add_option("--listen", options.listen, "gRPC address, port 0 = any free one")
      ->capture_default_str();
  app.add_option("--http", options.http,
                 "Address of the web page, /metrics, /sd/workers and /healthz")
      ->capture_default_str();
  app.add_flag("--insecure", options.insecure, "Allow clear text on non-loopback addresses");
  app.add_option("--tls-cert", options.tls.cert, "Certificate chain (PEM)");
  app.add_option("--tls-key", options.tls.key, "Private key (PEM)");
  app.add_option("--tls-ca", options.tls.ca, "Demand client certificates signed by this CA (PEM)");
  app.add_option("--log-level", flags.log_level, "trace | debug | info | warning | error | off");
  app.add_flag("--log-json", flags.log_json, "One JSON object a log line");
  app.add_option("--min-free-mib", flags.min_free_mib,
                 "Refuse changes with less free space than this in the data dir")
      ->capture_default_str();
  app.add_option("--heartbeat-seconds", flags.heartbeat_seconds, "Interval asked of workers")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--silence-seconds", flags.silence_seconds,
                 "A worker silent for longer, whose job makes no progress, is lost")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--disconnect-seconds", flags.disconnect_seconds,
                 "The same for a worker whose connection has ended and that does not dial again")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--reattach-grace-seconds", flags.reattach_grace_seconds,
                 "After a start no worker counts as silent for this long")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_option("--isolation-grace-seconds", flags.isolation_grace_seconds,
                 "Cut off from most workers, recover nothing for this long")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_option("--resize-interval-seconds", flags.resize_interval_seconds,
                 "A job that runs on fewer workers than it wants grows at the earliest so long "
                 "after it was started, at its next checkpoint")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_option("--resize-settle-seconds", flags.resize_settle_seconds,
                 "... onto workers that have been free for so long")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_option("--kill-timeout-seconds", flags.kill_timeout_seconds,
                 "A worker that does not confirm a kill for this long is unhealthy")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
}

void Convert(Flags& flags) {
  CoreOptions& core = flags.options.loop.core;
  core.heartbeat = absl::Seconds(flags.heartbeat_seconds);
  core.silence = absl::Seconds(flags.silence_seconds);
  core.disconnect_silence = std::min(core.silence, absl::Seconds(flags.disconnect_seconds));
  core.resize_interval = absl::Seconds(flags.resize_interval_seconds);
  core.resize_settle = absl::Seconds(flags.resize_settle_seconds);
  core.reattach_grace = absl::Seconds(flags.reattach_grace_seconds);
  core.isolation_grace = absl::Seconds(flags.isolation_grace_seconds);
  core.kill_timeout = absl::Seconds(flags.kill_timeout_seconds);
  flags.options.loop.min_free_bytes = flags.min_free_mib << 20;
}

int Fail(const absl::Status& status, int code) {
  std::fprintf(stderr, "hearth-coordinator: %s\n", std::string(status.message()).c_str());
  return code;
}

int StartFailure(const absl::Status& status) {
  const bool locked = absl::IsFailedPrecondition(status) &&
                      status.message().find("is in use by") != absl::string_view::npos;
  const bool refused = absl::IsFailedPrecondition(status) || absl::IsDataLoss(status);
  return Fail(status, locked                            ? kExitLocked
                      : refused                         ? kExitRefused
                      : absl::IsInvalidArgument(status) ? kExitUsage
                                                        : kExitStart);
}

int Check(const std::string& data_dir) {
  const absl::StatusOr<CheckReport> report = CheckDataDir(data_dir);
  if (!report.ok()) {
    return StartFailure(report.status());
  }
  for (const std::string& line : report->notes) {
    std::printf("note: %s\n", line.c_str());
  }
  for (const std::string& line : report->damage) {
    std::printf("DAMAGE: %s\n", line.c_str());
  }
  std::printf("%s: %lld jobs, %lld histories and logs read, %zu damaged\n", data_dir.c_str(),
              static_cast<long long>(report->jobs), static_cast<long long>(report->files),
              report->damage.size());
  return report->damage.empty() ? 0 : kExitRefused;
}

int Run(Flags& flags) {
  if (flags.check) {
    return Check(flags.options.store.data_dir);
  }
  Convert(flags);
  absl::Status ready = log::Init("hearth-coordinator", flags.log_level, flags.log_json);
  if (ready.ok()) {
    ready = fault::InitFromEnvironment();
  }
  if (!ready.ok()) {
    return Fail(ready, kExitUsage);
  }
  struct sigaction action {};
  action.sa_handler = OnSignal;
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
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
