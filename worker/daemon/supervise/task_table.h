// Hands messages between the coordinator's stream and the trainers, and decides who has the device:
// a task or the text that a checkpoint's model writes. The tasks are in TaskRunner, the state of
// the conversation with the coordinator is in Conversation. Knows neither sockets nor processes.
//
// Losing the stream affects no task. A task that is to start ends the text, and waits until the
// device is free; no text begins beside a task.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/time/clock.h"
#include "hearth/v1/agent.pb.h"
#include "worker/daemon/agent/conversation.h"
#include "worker/daemon/disk/checkpoint_root.h"
#include "worker/daemon/supervise/task_runner.h"
#include "worker/daemon/supervise/text_host.h"
#include "worker/daemon/supervise/trainer_host.h"

namespace hearth::worker {

// Slow answers about files. Thread-safe; calls only queue the request.
class DiskRequests {
 public:
  virtual ~DiskRequests() = default;
  virtual void Inspect(const v1::InspectPaths& request) = 0;
  virtual void Read(const v1::ReadCheckpointFile& request) = 0;
  virtual void Delete(const v1::DeleteCheckpointFolder& request) = 0;
  virtual void List(const v1::ListCheckpointFolders& request) = 0;
};

// Thread-safe.
class TaskTable : public TrainerListener, public TextListener {
 public:
  struct Options {
    // Sent with every Hello; tasks, generation and unhealthy_reason are filled in.
    v1::Hello identity;
    TaskRunner::Options tasks;
    // The device's name for people, for RunInfo; "" = as the trainer says.
    std::string device_name;
    // The device's energy counter in joules, absent when there is none; null = no counter. Called
    // without a lock held.
    std::function<std::optional<double>()> energy;
  };

  // `root` and `clock` outlive the object.
  TaskTable(Options options, const CheckpointRoot& root, Clock& clock);

  // Before the first message. All outlive every other call.
  void Attach(TrainerHost& host, DiskRequests& disk, TextHost& texts);

  // The address that Hellos name from now on; it is known only once the port is bound.
  void SetHttpAddress(std::string address);

  // `wake` is called, without a lock held, whenever NextMessage may have something new. Null =
  // nobody listens.
  void SetWake(std::function<void()> wake);

  // A stream was opened: returns the Hello to send on it. Until Welcome only heartbeats follow;
  // then all unacknowledged reports, from the first, and open KvWaits are sent again.
  v1::AgentMessage BeginSession();

  // The next message for the stream; nullopt: none waits.
  std::optional<v1::AgentMessage> NextMessage();

  // kFailedPrecondition: its generation is lower than one seen before; the caller must close the
  // stream. The message then had no effect.
  absl::Status OnMessage(const v1::CoordinatorMessage& message);

  // True between Welcome and the next BeginSession.
  bool welcomed() const;
  // As the last Welcome set it; 1 s before the first one.
  absl::Duration heartbeat_interval() const;

  // Time for a heartbeat. `checkpoint_free_bytes` 0 = not known.
  void Tick(const v1::DeviceStatus& status,
            const std::string& unhealthy_reason,
            int64_t checkpoint_free_bytes = 0);

  // Queues an answer of DiskRequests; beyond 64 waiting ones it is dropped (the asker times out and
  // asks again), and this returns false.
  bool Answer(v1::AgentMessage message);

  // The daemon is leaving: tasks get the stop bit and SIGTERM, and SIGKILL after their spec's
  // checkpoint.grace_seconds; no new one is accepted, which the next heartbeat says. Returns the
  // longest grace.
  absl::Duration StopAll();
  // SIGKILL to all, now.
  void KillAllNow();
  // Waits until no task lives. False: `timeout` passed.
  bool AwaitNoTask(absl::Duration timeout);
  // Waits until no task lives and every report is acknowledged. False: `timeout` passed.
  bool AwaitDelivered(absl::Duration timeout);
  // Queues a Goodbye; it goes out after everything else that is ready.
  void SayGoodbye(std::string reason);
  bool goodbye_sent() const;

  TaskSnapshot snapshot() const;

  void OnTrainerMessage(const TaskKey& key, v1::FromTrainer message) override;
  void OnTrainerOutput(const TaskKey& key, std::string_view level, std::string text) override;
  void OnTrainerDying(const TaskKey& key,
                      const ExitFacts& facts,
                      bool known,
                      absl::Duration dying_for) override;
  void OnTrainerExit(const TaskKey& key, const ExitFacts& facts) override;
  bool OnText(v1::AgentMessage answer) override;
  void OnTextOver() override;

 private:
  void Wake();
  void Handle(const v1::CoordinatorMessage& message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void HandleStart(const v1::StartTask& start) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void HandleWrite(const v1::WriteText& write) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The worker is stopping: the coordinator hears of it, and a text ends.
  void BeginStop() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void HandleStopWriting(const v1::StopWriting& stop) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void HandleWelcome(const v1::Welcome& welcome) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Starts a task that waits, if no text holds the device.
  void StartPending() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  v1::AgentMessage MakeHeartbeat() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  Clock& clock_;

  mutable absl::Mutex mu_;
  std::string http_address_ ABSL_GUARDED_BY(mu_);
  DiskRequests* disk_ ABSL_GUARDED_BY(mu_) = nullptr;
  TextHost* texts_ ABSL_GUARDED_BY(mu_) = nullptr;
  int64_t writing_ ABSL_GUARDED_BY(mu_) = 0;  // id of the text that holds the device; 0: none
  std::function<void()> wake_ ABSL_GUARDED_BY(mu_);
  Conversation talk_ ABSL_GUARDED_BY(mu_);
  TaskRunner tasks_ ABSL_GUARDED_BY(mu_);
  v1::DeviceStatus device_status_ ABSL_GUARDED_BY(mu_);
  int64_t checkpoint_free_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  std::string unhealthy_reason_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace hearth::worker
