// One trainer as a child process: its messages and output, its silence, and the proof that it is
// gone.
//
//   running ──Kill(grace)──▶ terminating ──deadline──▶ killed
//      ├───────Kill(0)──────────────┴──────Kill(0)────────▶│
//      │  stopped or hung         │                        │
//      ├───────(no sign of life)──┴────────────────────────▶│
//      └──────────────────────────┴── leader ended ────────┴──▶ reaping
//   reaping: SIGKILL to whatever is left of the group and session, then
//      group empty, device free ──▶ OnTrainerExit, clean
//      bound passed ──▶ OnTrainerExit, unclean; watched, and the worker unhealthy, until it is so
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/fd.h"
#include "common/io/message_frame.h"
#include "common/time/clock.h"
#include "hearth/v1/trainer.pb.h"
#include "worker/daemon/device/device_check.h"
#include "worker/daemon/supervise/child_process.h"
#include "worker/daemon/supervise/line_splitter.h"
#include "worker/daemon/supervise/outbox.h"
#include "worker/daemon/supervise/silence.h"
#include "worker/daemon/supervise/task_key.h"
#include "worker/daemon/supervise/trainer_host.h"

namespace hearth::worker {

// Used by the thread that started the process. It never waits.
class TrainerChild {
 public:
  struct Options {
    // How long SIGKILLed processes may take to be gone before the exit is reported as unclean.
    absl::Duration gone_bound = absl::Seconds(10);
    // How long a trainer may live on after it closed its pipe.
    absl::Duration pipe_grace = absl::Seconds(30);
    // When a trainer counts as stopped or hung.
    SilenceLimits silence;
    // Bytes waiting to be read by a trainer; one that lets more pile up is killed.
    size_t outgoing_bytes_max = 128 << 20;
    // Reads the state of a trainer's process; ReadProcessStat except in tests.
    std::function<absl::StatusOr<ProcessStat>(pid_t)> read_stat = ReadProcessStat;
    // Asked whether an ended trainer has given back the device; outlives the object. Null = nothing
    // to give back (CPU).
    DeviceCheck* device = nullptr;
  };
  static constexpr size_t kWatched = 4;  // descriptors

  // All references outlive the object; `buffer` is scratch memory to read into. `device_baseline`:
  // what the device held before the process was started; absent = not measured.
  TrainerChild(const Options& options,
               Clock& clock,
               TrainerListener& listener,
               std::string& buffer,
               TaskKey key,
               int64_t rank,
               ChildProcess process,
               std::optional<int64_t> device_baseline);

  const TaskKey& key() const { return key_; }
  pid_t pid() const { return process_.pid; }
  // OnTrainerExit was called; the child is kept only until all of it is gone.
  bool reported() const { return reported_; }
  // Why its end was reported without proof.
  const std::string& unclean_reason() const { return facts_.unclean_reason; }

  void Send(const v1::ToTrainer& message);
  // SIGTERM, and SIGKILL after `grace`; SIGKILL at once if that is zero.
  void Kill(absl::Duration grace);

  // What poll() is to watch, and for how long at most.
  std::array<pollfd, kWatched> Watched() const;
  absl::Duration NextLook() const;
  // Serves what Watched() gave, with the answers of poll().
  void Serve(absl::Span<const pollfd> ready);
  // Kills it if it has been silent for too long, and tells the listener if its end takes long.
  // `stood_still`: for so long this process itself did, which is no silence of the trainer.
  void Look(absl::Duration stood_still);
  // Goes on when its deadline has passed or nothing of it is left. True: forget it.
  bool Advance();

 private:
  enum class State { kRunning, kTerminating, kKilled, kReaping };

  void KillNow();
  void CheckSilence();
  void CheckDying();
  void Write();
  void Read();
  void Deliver();
  void ReadOutput(Fd& fd, LineSplitter& splitter, std::string_view level);
  void LeaderEnded();
  bool ProcessesGone();
  // What it still holds on the device when its processes are gone: "" = nothing.
  std::string DeviceHeld() const;
  void Report();

  const Options& options_;
  Clock& clock_;
  TrainerListener& listener_;
  std::string& buffer_;
  const TaskKey key_;
  const int64_t rank_;
  ChildProcess process_;
  State state_ = State::kRunning;
  absl::Duration deadline_ = absl::InfiniteDuration();  // of the state, on the clock's Monotonic()
  bool asked_to_end_ = false;  // SIGTERM was sent; a kTerminating one may also have left its pipe
  bool leader_reaped_ = false;
  DeathWatch death_;
  absl::Duration heard_;  // when it last said anything (at first: started)
  bool spoke_ = false;    // it has said something
  bool reported_ = false;
  const std::optional<int64_t> device_baseline_;
  absl::Duration gone_ = absl::InfiniteDuration();  // when the group was first seen empty
  FrameReader reader_;
  Outbox outbox_;
  LineSplitter out_;
  LineSplitter err_;
  ExitFacts facts_;
};

}  // namespace hearth::worker
