// Ctrl-C detaches: a thread of its own takes SIGINT, so that no command needs async-signal-safe
// code.
#include "jobctl/client/interrupt.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "jobctl/views/output/output.h"

namespace hearth::jobctl {
namespace {

std::atomic<bool> g_interrupted{false};

constexpr int kExitSecondInterrupt = 130;

}  // namespace

void BlockInterrupts() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

void OnInterrupt(std::function<void()> handler) {
  // Ends with the process; it only ever waits.
  std::thread([handler = std::move(handler)] {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    int signal = 0;
    sigwait(&set, &signal);
    g_interrupted.store(true);
    handler();
    sigwait(&set, &signal);
    _exit(kExitSecondInterrupt);
  }).detach();
}

bool Interrupted() {
  return g_interrupted.load();
}

void SayDetached(const std::string& command, const std::vector<std::string>& job_ids) {
  WriteErr(
      absl::StrCat("\nDetached; the ",
                   job_ids.size() == 1 ? "job continues. Follow it" : "jobs continue. Follow them",
                   " again with: jobctl ", command, " ", absl::StrJoin(job_ids, " "), "\n"));
}

}  // namespace hearth::jobctl
