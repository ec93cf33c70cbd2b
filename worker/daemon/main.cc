// hearth-worker: one daemon per GPU, or per share of a CPU.
#include <signal.h>
#include <sys/signalfd.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "common/fault/fault.h"
#include "common/log/log.h"
#include "common/time/clock.h"
#include "worker/daemon/daemon.h"
#include "worker/daemon/options.h"

namespace hearth::worker {
namespace {

int Main(const std::vector<std::string>& arguments) {
  const auto options = ParseOptions(arguments);
  if (absl::IsCancelled(options.status())) {
    std::fputs(std::string(options.status().message()).c_str(), stdout);
    return kExitOk;
  }
  absl::Status status = options.status();
  if (status.ok()) {
    status = log::Init("hearth-worker", options->log_level, options->log_json);
  }
  if (status.ok()) {
    status = fault::InitFromEnvironment();
  }
  if (!status.ok()) {
    std::fprintf(stderr, "hearth-worker: %s\n", std::string(status.message()).c_str());
    return kExitUsage;
  }
  // Before any thread exists, so that every thread inherits the mask and signals come only through
  // the descriptor.
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signal(SIGPIPE, SIG_IGN);
  const Fd signals(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  auto daemon = Daemon::Create(*options, Clock::Real());
  if (!daemon.ok()) {
    const bool usage =
        absl::IsInvalidArgument(daemon.status()) || absl::IsUnimplemented(daemon.status());
    std::fprintf(stderr, "hearth-worker: %s\n", std::string(daemon.status().message()).c_str());
    return usage                                    ? kExitUsage
           : absl::IsAlreadyExists(daemon.status()) ? kExitNameTaken
                                                    : kExitError;
  }
  return (*daemon)->Run(signals.get());
}

}  // namespace
}  // namespace hearth::worker

// NOLINTNEXTLINE(bugprone-exception-escape): what escapes is a failed allocation, which may end it
int main(int argc, char** argv) {
  return hearth::worker::Main(std::vector<std::string>(argv + 1, argv + argc));
}
