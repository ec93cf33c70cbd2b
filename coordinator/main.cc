// hearth-coordinator: takes jobs over gRPC, schedules them onto workers, keeps their history.
//
// Exit codes: 0 stopped by SIGTERM or SIGINT; 1 could not start; 2 wrong usage; 3 the data dir is
// in use by another coordinator; 4 the store failed while running (disk full, I/O error): nothing
// acknowledged is lost, start it again once there is room.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <string>

#include "CLI/CLI.hpp"
#include "common/base/version.h"
#include "common/fault/fault.h"
#include "common/log/log.h"
#include "coordinator/coordinator.h"

namespace hearth::coordinator {
namespace {

constexpr int kExitStart = 1;
constexpr int kExitUsage = 2;
constexpr int kExitLocked = 3;
constexpr int kExitStore = 4;

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
  double reattach_prompt_seconds = 8;
  double isolation_grace_seconds = 600;
  double kill_timeout_seconds = 60;
  double resize_interval_seconds = 300;
  double resize_settle_seconds = 30;
  int64_t min_free_mib = 16;
};

void AddFlags(CLI::App& app, Flags& flags) {
  CoordinatorOptions& options = flags.options;
  app.set_version_flag("--version", "hearth-coordinator " + VersionString());
  app.add_option("--data-dir", options.store.data_dir, "Folder of the store; made if absent")
      ->required();
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
  app.add_option("--reattach-prompt-seconds", flags.reattach_prompt_seconds,
                 "... or this long, once the rest of its gang, or all other workers with tasks, "
                 "are back")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_option("--isolation-grace-seconds", flags.isolation_grace_seconds,
                 "Cut off from the workers, replace none for this long")
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
  core.reattach_prompt =
      absl::Seconds(std::min(flags.reattach_grace_seconds, flags.reattach_prompt_seconds));
  core.isolation_grace = absl::Seconds(flags.isolation_grace_seconds);
  core.kill_timeout = absl::Seconds(flags.kill_timeout_seconds);
  flags.options.loop.min_free_bytes = flags.min_free_mib << 20;
}

int Fail(const absl::Status& status, int code) {
  std::fprintf(stderr, "hearth-coordinator: %s\n", std::string(status.message()).c_str());
  return code;
}

int Run(Flags& flags) {
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
    const bool locked = absl::IsFailedPrecondition(coordinator.status()) &&
                        coordinator.status().message().find("in use") != absl::string_view::npos;
    return Fail(coordinator.status(), locked                                          ? kExitLocked
                                      : absl::IsInvalidArgument(coordinator.status()) ? kExitUsage
                                                                                      : kExitStart);
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
