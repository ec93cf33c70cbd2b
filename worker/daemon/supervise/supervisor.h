// Runs trainers as child processes: starts them, exchanges messages with them, kills them, and
// proves that they are gone.
//
// One thread does everything, including the forks, and lives as long as the object: the kernel
// kills a trainer when the thread that started it ends.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/time/clock.h"
#include "worker/daemon/supervise/child_process.h"
#include "worker/daemon/supervise/trainer_child.h"
#include "worker/daemon/supervise/trainer_host.h"

namespace hearth::worker {

class Supervisor : public TrainerHost {
 public:
  struct Options {
    SpawnOptions trainer;
    TrainerChild::Options child;
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
  void PublishStatus();
  // Null: none, or its end was reported.
  TrainerChild* Find(const TaskKey& key);
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
  std::string
      buffer_;  // children read into it; not thread_local, whose space every thread's stack would
                // have to hold
  std::vector<std::unique_ptr<TrainerChild>> children_;
  bool stopping_ = false;
  absl::Duration stop_deadline_;
  absl::Duration last_round_;  // when the loop last went round

  std::thread thread_;
};

}  // namespace hearth::worker
