#include "worker/trainer/pulse/pulse_thread.h"

#include <unistd.h>

#include <string>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "worker/trainer/exit_codes.h"
#include "worker/trainer/pulse/stacks.h"

namespace hearth::trainer {
namespace {

constexpr const char* kKey = "hang";
// For everything between the verdict and the end: logging takes memory and locks, which the thread
// that hangs may hold.
constexpr unsigned kLastWordsSeconds = 15;
// A look takes memory, too: a thread that hangs with the allocator's lock ends the process so.
constexpr unsigned kLookSeconds = 60;
// Peers lose their connections when this rank leaves: until then they can say what they wait for.
// One that hangs too says nothing.
constexpr absl::Duration kPeersTalk = absl::Milliseconds(700);

// What a rank puts when it has said so.
std::string SaidKey(int rank) {
  return absl::StrCat(kKey, "/", rank);
}

class PulseThread {
 public:
  explicit PulseThread(const PulseThreadOptions& options)
      : options_(options),
        watch_(
            options.limits,
            options.on_gpu ? std::function<bool()>() : [] { return AnotherThreadRuns(); }),
        rank_(options.link->task().rank()) {}

  void Watch() {
    for (;;) {
      Pause(HangWatch::kPeriod);
      alarm(kLookSeconds);
      const std::string seen = watch_.Look(options_.pulse->Read(), options_.clock->Monotonic());
      alarm(0);
      if (!seen.empty()) {
        return Leave(absl::StrCat("rank ", rank_, " hangs: ", seen));
      }
    }
  }

  void ListenToPeers() {
    const absl::StatusOr<std::string> said = options_.link->Wait(kKey, absl::InfiniteDuration());
    if (!said.ok() || absl::StartsWith(*said, absl::StrCat("rank ", rank_, " "))) {
      return;  // the agent is gone, or these are our own words
    }
    const Pulse::Reading reading = options_.pulse->Read();
    options_.link->SendLog("warning",
                           absl::StrCat("rank ", rank_, " was at: ", reading.what, " (after step ",
                                        reading.step, ") when ", *said));
    LogStacks();
    static_cast<void>(options_.link->Put(SaidKey(rank_), "said"));
  }

 private:
  void Pause(absl::Duration time) const {
    absl::Mutex never;
    absl::MutexLock lock(&never);
    options_.clock->AwaitWithTimeout(never, absl::Condition(&no_), time);
  }

  void Leave(const std::string& text) {
    alarm(kLastWordsSeconds);
    Link& link = *options_.link;
    if (link.task().world_size() > 1) {
      // Before the log: peers need the time for stacks of their own.
      static_cast<void>(link.Put(kKey, text));
    }
    link.SendLog("error", text);
    LogStacks();
    LetPeersTalk();
    v1::TrainerExit exit;
    exit.set_reason(v1::EXIT_REASON_HUNG);
    exit.set_message(text);
    exit.set_step(options_.pulse->Read().step);
    link.SendExit(exit);
    options_.leave(ExitCodeOf(exit.reason()).code);
    alarm(0);
  }

  void LetPeersTalk() const {
    const absl::Duration over = options_.clock->Monotonic() + kPeersTalk;
    for (int peer = 0; peer < options_.link->task().world_size(); ++peer) {
      const absl::Duration left = over - options_.clock->Monotonic();
      if (peer != rank_ && left > absl::ZeroDuration()) {
        static_cast<void>(options_.link->Wait(SaidKey(peer), left));
      }
    }
  }

  void LogStacks() const {
    for (const std::string& line : DumpStacks()) {
      options_.link->SendLog("warning", line);
    }
  }

  const PulseThreadOptions options_;
  HangWatch watch_;
  const int rank_;
  const bool no_ = false;
};

}  // namespace

void StartPulseThread(const PulseThreadOptions& options) {
  if (options.limits.least == absl::InfiniteDuration()) {
    return;
  }
  PulseThreadOptions with_leave = options;
  if (!with_leave.leave) {
    with_leave.leave = [](int code) { _exit(code); };
  }
  std::thread([with_leave] { PulseThread(with_leave).Watch(); }).detach();
  if (options.link->task().world_size() > 1) {
    std::thread([with_leave] { PulseThread(with_leave).ListenToPeers(); }).detach();
  }
}

}  // namespace hearth::trainer
