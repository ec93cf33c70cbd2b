// Runs trainers as child processes: starts them, exchanges messages with them, kills them, and
// proves that they are gone.
//
// One thread does everything, including the forks, and lives as long as the object: the kernel
// kills a trainer when the thread that started it ends.
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

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/io/message_frame.h"
#include "common/time/clock.h"
#include "worker/daemon/device/device_check.h"
#include "worker/daemon/supervise/child_process.h"
#include "worker/daemon/supervise/line_splitter.h"
#include "worker/daemon/supervise/outbox.h"
#include "worker/daemon/supervise/silence.h"
#include "worker/daemon/supervise/trainer_host.h"

namespace hearth::worker {

class Supervisor : public TrainerHost {
 public:
  struct Options {
    SpawnOptions trainer;
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

  // `clock` and `listener` outlive the object. kResourceExhausted, kInternal: no event descriptor
  // is available.
  static absl::StatusOr<std::unique_ptr<Supervisor>> Create(Options options,
                                                            Clock& clock,
                                                            TrainerListener& listener);
  // SIGKILLs what still runs and waits for it, at most gone_bound. The listener is still told of
  // the exits.
  ~Supervisor() override;

  void Start(v1::Task task) override;
  void Send(const TaskKey& key, v1::ToTrainer message) override;
  void Kill(const TaskKey& key, absl::Duration grace) override;

  // Process of the newest trainer that has not been reported as ended, 0 = none.
  pid_t running_pid() const;
  // Why no task should be placed here: processes that survive SIGKILL, device memory that stays in
  // use after its trainer. "" = healthy.
  std::string unhealthy_reason() const;

 private:
  struct KillCommand {
    TaskKey key;
    absl::Duration grace;
  };
  struct SendCommand {
    TaskKey key;
    v1::ToTrainer message;
  };
  struct StopCommand {};
  using Command = std::variant<v1::Task, SendCommand, KillCommand, StopCommand>;

  enum class State { kRunning, kTerminating, kKilled, kReaping };
  struct Child {
    TaskKey key;
    int64_t rank = -1;
    ChildProcess process;
    State state = State::kRunning;
    absl::Duration deadline = absl::InfiniteDuration();  // of the state, on the clock's Monotonic()
    bool asked_to_end = false;  // SIGTERM was sent; a kTerminating one may also have left its pipe
    bool leader_reaped = false;
    DeathWatch death;
    absl::Duration heard = absl::ZeroDuration();  // when it last said anything (at first: started)
    bool spoke = false;                           // it has said something
    bool reported = false;  // OnTrainerExit was called; kept only until all of it is gone
    std::optional<int64_t> device_baseline;
    absl::Duration gone = absl::InfiniteDuration();  // when the group was first seen empty
    FrameReader reader;
    Outbox outbox;
    LineSplitter out;
    LineSplitter err;
    ExitFacts facts;
  };

  Supervisor(Options options, Clock& clock, TrainerListener& listener, Fd wake);

  void Post(Command command);
  void Run();
  // Handles queued commands; false: stop.
  void RunCommands();
  void Apply(v1::Task task);
  void Apply(const SendCommand& command);
  void Apply(const KillCommand& command);
  void Apply(const StopCommand& command);
  // Waits for descriptors, at most until the next deadline, and serves them.
  void PollOnce();
  void KillNow(Child& child);
  // Kills a running child that has been silent for too long.
  void CheckSilence(Child& child);
  // Tells the listener of a child whose end takes long.
  void CheckDying(Child& child);
  void Write(Child& child);
  void Read(Child& child);
  void ReadOutput(Child& child, Fd& fd, LineSplitter& splitter, std::string_view level);
  void LeaderEnded(Child& child);
  bool ProcessesGone(Child& child) const;
  // What a child whose processes are gone still holds on the device: "" = nothing.
  std::string DeviceHeld(const Child& child) const;
  // Moves `child` on when its deadline has passed or nothing of it is left. True: forget it.
  bool Advance(Child& child);
  void Report(Child& child);
  void Deliver(Child& child);
  void PublishStatus();
  Child* Find(const TaskKey& key);
  bool Done();

  const Options options_;
  Clock& clock_;
  TrainerListener& listener_;
  const Fd wake_;  // eventfd

  mutable absl::Mutex mu_;
  std::deque<Command> commands_ ABSL_GUARDED_BY(mu_);
  pid_t running_pid_ ABSL_GUARDED_BY(mu_) = 0;
  std::string unhealthy_reason_ ABSL_GUARDED_BY(mu_);

  // Used by the thread only.
  std::vector<std::unique_ptr<Child>> children_;
  std::string buffer_;  // to read into; not thread_local, whose space every thread's stack would
                        // have to hold
  bool stopping_ = false;
  absl::Duration stop_deadline_;
  absl::Duration last_round_;  // when the loop last went round

  std::thread thread_;
};

}  // namespace hearth::worker
