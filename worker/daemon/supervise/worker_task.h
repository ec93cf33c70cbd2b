// One task of this worker: its state, what its trainer said, and the reports that the coordinator
// has not acknowledged. Decides nothing: the TaskRunner decides which task runs and when one is
// killed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "common/time/clock.h"
#include "hearth/v1/agent.pb.h"
#include "hearth/v1/trainer.pb.h"
#include "worker/daemon/agent/report_buffer.h"
#include "worker/daemon/device/energy_meter.h"
#include "worker/daemon/supervise/key_waits.h"
#include "worker/daemon/supervise/task_exit.h"
#include "worker/daemon/supervise/task_key.h"

namespace hearth::worker {

// What the daemon adds to the words of a trainer.
struct DeviceReading {
  std::string name;                     // for RunInfo; "" = as the trainer says
  std::optional<double> energy_joules;  // the device's counter
  double power_watts = 0.0;             // here and below, 0 = not measured
  double temperature_celsius = 0.0;
  double utilization_ratio = 0.0;
};

// Not thread-safe. `clock` outlives the object.
class WorkerTask {
 public:
  WorkerTask(const v1::Task& task, const ReportLimits& limits, Clock& clock);

  const v1::Task& task() const { return task_; }
  TaskKey key() const { return {task_.job_id(), task_.epoch()}; }
  int64_t step() const { return step_; }
  const std::string& phase() const { return phase_; }
  double compute_seconds() const { return compute_seconds_; }  // as in Progress
  const ReportBuffer& reports() const { return reports_; }
  const std::optional<v1::StepReport>& last_step() const { return last_step_; }
  double EnergyTotal(double counter) const { return energy_.Total(counter); }

  // Its life goes one way: pending, running, ending, ended; any of these may be left out.
  bool pending() const { return life_ == Life::kPending; }
  bool running() const { return life_ == Life::kRunning; }
  bool ending() const { return life_ == Life::kEnding; }
  bool ended() const { return life_ == Life::kEnded; }
  // A trainer holds the device for it.
  bool lives() const { return running() || ending(); }
  // It is to be started: what only this worker knows of it. An empty checkpoint_dir stays.
  void FillIn(const std::string& checkpoint_dir,
              const std::string& advertise_host,
              int threads,
              const std::string& device);
  void Run() { life_ = Life::kRunning; }
  void BeginEnd() { life_ = Life::kEnding; }
  // It never ran. Returns its last report.
  v1::TaskExit Refuse(v1::ExitReason reason, const std::string& why);
  // Its trainer is gone. Returns its last report.
  v1::TaskExit End(const ExitFacts& facts);
  // Its trainer computes no more and is not gone. Nothing when that need not be reported.
  std::optional<v1::TaskDying> ReportDying(const ExitFacts& facts,
                                           bool known,
                                           absl::Duration dying_for);
  // The coordinator wants to hear no more of it: from now on it reports nothing.
  void Forget() { forgotten_ = true; }
  bool forgotten() const { return forgotten_; }
  bool delivered() const { return ended() && reports_.empty(); }
  // Nothing keeps it here.
  bool done() const { return ended() && (forgotten_ || reports_.empty()); }

  // What a trainer says becomes state and reports; texts are clipped. `device` is read for run info
  // and steps alone.
  void Take(v1::FromTrainer message, const DeviceReading& device);
  void TakeOutput(std::string_view level, std::string text);
  // About once a second: lines that wait for the rate go on, and energy counts from the first one
  // on. `energy_joules`: the device's counter.
  void Tick(double energy_joules);

  // A new stream: all that is not acknowledged or answered is sent again.
  void BeginSession();
  v1::TaskStatus Status() const;
  // The next KvWait or report; nothing for now, or forgotten.
  std::optional<v1::AgentMessage> NextMessage();
  void Ack(int64_t seq);
  // True when the trainer is to hear of it: it waits for the key, or its put was refused.
  bool TakeKeyAnswer(const v1::KvValue& value);

 private:
  enum class Life { kPending, kRunning, kEnding, kEnded };

  void Report(v1::TaskReport report);
  void ReportExit(const v1::TaskExit& exit);
  void TakeStep(v1::StepReport step, const DeviceReading& device);
  void TakeLog(const v1::LogLine& log);
  v1::LogLine MakeLine(std::string_view level, std::string text) const;

  v1::Task task_;
  Clock& clock_;
  Life life_ = Life::kPending;
  bool forgotten_ = false;
  ReportBuffer reports_;
  int64_t sent_seq_ = 0;  // on this stream
  int64_t step_ = 0;
  int64_t checkpoint_step_ = 0;
  std::string phase_;
  double compute_seconds_ = 0;
  std::optional<v1::TrainerExit> said_;  // the trainer's own word on its end
  std::optional<v1::StepReport> last_step_;
  EnergyMeter energy_;
  KeyWaits keys_;
};

}  // namespace hearth::worker
