// The tasks of this worker, by (job, epoch): admits, starts, kills and forgets them. At most one
// has a trainer. The reports of a task are in its WorkerTask. Knows neither the coordinator's
// stream nor processes.
//
//   StartTask ──▶ pending ──no other lives──▶ running ──kill, forget, newer epoch──▶ ending
//                    │ kill                     │ exit                                │ exit
//                    └──────────▶ ended ◀───────┴─────────────────────────────────────┘
//                                   └── all reports acknowledged, or forgotten ──▶ (gone)
//
// Rules. Epochs of a job only grow, until the coordinator says to forget the newest: a StartTask of
// an older one is refused (its only report is an exit); anything else for a task that is not here
// is dropped. A StartTask of a newer epoch kills the older one first. A forgotten task reports
// nothing more.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "common/time/clock.h"
#include "hearth/v1/agent.pb.h"
#include "hearth/v1/trainer.pb.h"
#include "worker/daemon/agent/report_buffer.h"
#include "worker/daemon/disk/checkpoint_root.h"
#include "worker/daemon/supervise/epoch_memory.h"
#include "worker/daemon/supervise/task_key.h"
#include "worker/daemon/supervise/trainer_host.h"
#include "worker/daemon/supervise/worker_task.h"

namespace hearth::worker {

// What the metrics show.
struct TaskSnapshot {
  bool running = false;
  std::string job_id;  // of the running task, else ""
  int64_t epoch = 0;
  int64_t step = 0;
  // The running task's last StepReport; only rank 0 sends them.
  std::optional<v1::StepReport> last_step;
  double compute_seconds = 0;  // as in Progress; 0 = not known
  // What the device has used since the running task's first heartbeat.
  double energy_joules = 0.0;
  int64_t buffer_bytes = 0;
  int64_t dropped_log_bytes = 0;  // since the daemon started, as all below
  int64_t dropped_log_lines = 0;
  int64_t dropped_steps = 0;
  int64_t tasks_started = 0;
  std::map<v1::ExitReason, int64_t> exits;
  std::string unhealthy_reason;
};

// Not thread-safe.
class TaskRunner {
 public:
  // What only this worker knows of a task, and what it may keep.
  struct Options {
    // The trainer's --device: cpu | cuda:0 (the one GPU that it can see).
    std::string device = "cpu";
    int threads = 1;
    std::string advertise_host = "127.0.0.1";
    ReportLimits limits;
  };

  // `root` and `clock` outlive the object.
  TaskRunner(const Options& options, const CheckpointRoot& root, Clock& clock)
      : options_(options), root_(root), clock_(clock) {}

  // Call it before anything else. `host` outlives the object's use.
  void Attach(TrainerHost& host) { host_ = &host; }

  // Makes the task a pending one and ends older epochs of its job. False: it is here already, or is
  // refused, which its exit report tells. `stopping`: the worker takes no task any more.
  bool Admit(const v1::Task& task, bool stopping);
  // Starts a pending task if no other lives. The caller sees to it that the device is free.
  void StartPending();
  void Control(const v1::ControlTask& control);
  void Kill(const v1::KillTask& kill);
  void Forget(const v1::ForgetTask& forget);
  void Ack(const v1::ReportAck& ack);
  // The coordinator's answer about a key goes to the trainer, if it wants to hear of it.
  void TakeKeyAnswer(const v1::TaskKvValue& value);
  // Asks the tasks that live to stop, then ends all, each within the grace of its spec. Returns the
  // longest grace of those that live.
  absl::Duration StopAll();
  void KillAll();  // now

  // What trainers say and do. False: nothing changed, as for a task that is not here.
  bool Take(const TaskKey& key, v1::FromTrainer message, const DeviceReading& device);
  bool TakeOutput(const TaskKey& key, std::string_view level, std::string text);
  bool ReportDying(const TaskKey& key,
                   const ExitFacts& facts,
                   bool known,
                   absl::Duration dying_for);
  void End(const TaskKey& key, const ExitFacts& facts);

  // A new stream: adds the tasks to the Hello, and all that is not acknowledged is sent again.
  void BeginSession(v1::Hello& hello);
  // The next report or question of a task; nullopt: none waits.
  std::optional<v1::AgentMessage> NextMessage();
  // The task that lives, if the coordinator wants to hear of it.
  void FillIn(v1::Heartbeat& heartbeat) const;
  // As WorkerTask::Tick.
  void Tick(double energy_joules);

  // A trainer runs.
  bool lives() const;
  // Nothing lives or waits, and every report is acknowledged.
  bool delivered() const;
  // The job of a task that has not ended; "" = there is none.
  std::string JobHere() const;
  // `energy_joules`: the device's counter. Leaves unhealthy_reason out.
  TaskSnapshot snapshot(double energy_joules) const;

 private:
  WorkerTask* Find(const TaskKey& key);
  // The task ends without ever having run.
  void Refuse(WorkerTask& task, v1::ExitReason reason, const std::string& why);
  void EndLife(WorkerTask& task, absl::Duration grace);
  void EraseIfDone(const TaskKey& key);

  const Options options_;
  const CheckpointRoot& root_;
  Clock& clock_;
  TrainerHost* host_ = nullptr;
  std::map<TaskKey, WorkerTask> tasks_;
  EpochMemory epochs_;
  // Sums over tasks that are gone; those of tasks_ are added in snapshot().
  TaskSnapshot totals_;
};

}  // namespace hearth::worker
