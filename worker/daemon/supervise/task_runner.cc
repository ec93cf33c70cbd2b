#include "worker/daemon/supervise/task_runner.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log/log.h"
#include "common/log/task_scope.h"
#include "worker/daemon/supervise/task_exit.h"

namespace hearth::worker {

WorkerTask* TaskRunner::Find(const TaskKey& key) {
  const auto it = tasks_.find(key);
  return it == tasks_.end() ? nullptr : &it->second;
}

bool TaskRunner::Admit(const v1::Task& admitted, bool stopping) {
  const TaskKey key{admitted.job_id(), admitted.epoch()};
  if (Find(key) != nullptr) {
    return false;  // said twice
  }
  WorkerTask& task = tasks_.try_emplace(key, admitted, options_.limits, clock_).first->second;
  if (const std::optional<int64_t> newest = epochs_.Newest(key.job_id);
      newest.has_value() && key.epoch <= *newest) {
    // Answered, not dropped: a coordinator that expects this task would wait for ever.
    Refuse(task, v1::EXIT_REASON_ABORTED,
           absl::StrCat("stale start: epoch ", *newest, " was here already"));
    return false;
  }
  epochs_.Remember(key);
  const absl::StatusOr<std::string> dir = root_.EpochDir(key.job_id, key.epoch);
  if (!dir.ok()) {
    Refuse(task, v1::EXIT_REASON_BAD_SPEC, std::string(dir.status().message()));
    return false;
  }
  if (stopping) {
    Refuse(task, v1::EXIT_REASON_ABORTED, "the worker is stopping");
    return false;
  }
  task.FillIn(*dir, options_.advertise_host, options_.threads, options_.device);
  for (auto& [other_key, other] : tasks_) {
    if (other_key == key || other.ended()) {
      continue;
    }
    // An older epoch of this job, which the coordinator has given up. The new one starts when the
    // old trainer is gone (StartPending).
    if (other_key.job_id == key.job_id) {
      EndLife(other, absl::ZeroDuration());
    } else if (!other.ending()) {
      Refuse(task, v1::EXIT_REASON_ABORTED,
             absl::StrCat("the worker is busy with ", other_key.ToString()));
      return false;
    }
  }
  return true;
}

void TaskRunner::Refuse(WorkerTask& task, v1::ExitReason reason, const std::string& why) {
  const log::TaskScope scope(task.task().job_id(), task.task().epoch(), task.task().rank());
  HEARTH_LOG_WARNING("{}: not started: {}", task.key().ToString(), why);
  task.Refuse(reason, why);
  ++totals_.exits[reason];
}

void TaskRunner::StartPending() {
  // One process at a time: it has the device to itself.
  if (lives()) {
    return;
  }
  for (auto& [key, task] : tasks_) {
    if (task.pending()) {
      task.Run();
      ++totals_.tasks_started;
      host_->Start(task.task());
      return;
    }
  }
}

void TaskRunner::EndLife(WorkerTask& task, absl::Duration grace) {
  if (task.pending()) {
    Refuse(task, v1::EXIT_REASON_KILLED, "killed before it was started");
  } else if (task.lives()) {
    task.BeginEnd();
    host_->Kill(task.key(), grace);
  }
}

void TaskRunner::Control(const v1::ControlTask& control) {
  const TaskKey key{control.job_id(), control.epoch()};
  if (const WorkerTask* task = Find(key); task != nullptr && task->lives()) {
    v1::ToTrainer message;
    message.mutable_control()->set_bit(control.bit());
    host_->Send(key, std::move(message));
  }
}

void TaskRunner::Kill(const v1::KillTask& kill) {
  const TaskKey key{kill.job_id(), kill.epoch()};
  WorkerTask* task = Find(key);
  const log::TaskScope scope(key.job_id, key.epoch, task == nullptr ? -1 : task->task().rank());
  if (task == nullptr) {
    HEARTH_LOG_WARNING("{}: asked to kill a task that is not here: {}", key.ToString(),
                       kill.reason());
    return;
  }
  HEARTH_LOG_INFO("{}: kill, grace {} s: {}", key.ToString(), kill.grace_seconds(), kill.reason());
  EndLife(*task, absl::Seconds(kill.grace_seconds()));
}

void TaskRunner::Forget(const v1::ForgetTask& forget) {
  const TaskKey key{forget.job_id(), forget.epoch()};
  epochs_.Forget(key);
  WorkerTask* task = Find(key);
  if (task == nullptr) {
    return;
  }
  const log::TaskScope scope(key.job_id, key.epoch, task->task().rank());
  HEARTH_LOG_INFO("{}: forgotten by the coordinator", key.ToString());
  EndLife(*task, absl::ZeroDuration());
  // Nobody acknowledges its reports any more: kept, they would wait for ever.
  task->Forget();
  EraseIfDone(key);
}

void TaskRunner::Ack(const v1::ReportAck& ack) {
  const TaskKey key{ack.job_id(), ack.epoch()};
  WorkerTask* task = Find(key);
  if (task == nullptr) {
    return;
  }
  if (ack.seq() > task->reports().last_seq()) {
    const log::TaskScope scope(key.job_id, key.epoch, task->task().rank());
    HEARTH_LOG_WARNING("{}: ack of report {}, but the last one is {}", key.ToString(), ack.seq(),
                       task->reports().last_seq());
  }
  task->Ack(ack.seq());
  EraseIfDone(key);
}

void TaskRunner::TakeKeyAnswer(const v1::TaskKvValue& value) {
  const TaskKey key{value.job_id(), value.epoch()};
  WorkerTask* task = Find(key);
  if (task == nullptr || !task->TakeKeyAnswer(value.value())) {
    return;
  }
  v1::ToTrainer message;
  *message.mutable_kv_value() = value.value();
  host_->Send(key, std::move(message));
}

absl::Duration TaskRunner::StopAll() {
  absl::Duration longest = absl::ZeroDuration();
  for (auto& [key, task] : tasks_) {
    const absl::Duration grace = StopGrace(task.task().spec());
    if (task.lives()) {
      v1::ToTrainer message;
      // Asked first: within the grace it can write a checkpoint.
      message.mutable_control()->set_bit(v1::CONTROL_BIT_STOP);
      host_->Send(key, std::move(message));
      longest = std::max(longest, grace);
    }
    EndLife(task, grace);
  }
  return longest;
}

void TaskRunner::KillAll() {
  for (auto& [key, task] : tasks_) {
    EndLife(task, absl::ZeroDuration());
  }
}

bool TaskRunner::Take(const TaskKey& key, v1::FromTrainer message, const DeviceReading& device) {
  WorkerTask* task = Find(key);
  if (task != nullptr) {
    task->Take(std::move(message), device);
  }
  return task != nullptr;
}

bool TaskRunner::TakeOutput(const TaskKey& key, std::string_view level, std::string text) {
  WorkerTask* task = Find(key);
  if (task != nullptr) {
    task->TakeOutput(level, std::move(text));
  }
  return task != nullptr;
}

bool TaskRunner::ReportDying(const TaskKey& key,
                             const ExitFacts& facts,
                             bool known,
                             absl::Duration dying_for) {
  WorkerTask* task = Find(key);
  if (task == nullptr) {
    return false;
  }
  const std::optional<v1::TaskDying> dying = task->ReportDying(facts, known, dying_for);
  if (dying.has_value()) {
    const log::TaskScope scope(key.job_id, key.epoch, task->task().rank());
    HEARTH_LOG_WARNING("{}: ending, not gone yet: {}", key.ToString(), dying->exit().message());
  }
  return dying.has_value();
}

void TaskRunner::End(const TaskKey& key, const ExitFacts& facts) {
  WorkerTask* task = Find(key);
  if (task == nullptr) {
    return;
  }
  const v1::TrainerExit exit = task->End(facts).exit();
  const log::TaskScope scope(key.job_id, key.epoch, task->task().rank());
  HEARTH_LOG_INFO("{}: {} at step {}{}{}", key.ToString(), v1::ExitReason_Name(exit.reason()),
                  exit.step(), exit.message().empty() ? "" : ": ", exit.message());
  ++totals_.exits[exit.reason()];
  EraseIfDone(key);
}

void TaskRunner::EraseIfDone(const TaskKey& key) {
  const auto it = tasks_.find(key);
  if (it == tasks_.end() || !it->second.done()) {
    return;
  }
  const ReportBuffer& reports = it->second.reports();
  totals_.dropped_log_bytes += reports.dropped_log_bytes();
  totals_.dropped_log_lines += reports.dropped_log_lines();
  totals_.dropped_steps += reports.dropped_steps();
  tasks_.erase(it);
}

void TaskRunner::BeginSession(v1::Hello& hello) {
  for (auto& [key, task] : tasks_) {
    task.BeginSession();
    *hello.add_tasks() = task.Status();
  }
}

std::optional<v1::AgentMessage> TaskRunner::NextMessage() {
  for (auto& [key, task] : tasks_) {
    if (std::optional<v1::AgentMessage> message = task.NextMessage()) {
      return message;
    }
  }
  return std::nullopt;
}

void TaskRunner::FillIn(v1::Heartbeat& heartbeat) const {
  for (const auto& [key, task] : tasks_) {
    if (task.lives() && !task.forgotten()) {
      heartbeat.set_job_id(key.job_id);
      heartbeat.set_epoch(key.epoch);
      heartbeat.set_step(task.step());
      heartbeat.set_phase(task.phase());
      heartbeat.set_compute_seconds(task.compute_seconds());
    }
  }
}

void TaskRunner::Tick(double energy_joules) {
  for (auto& [key, task] : tasks_) {
    task.Tick(energy_joules);
  }
}

bool TaskRunner::lives() const {
  return std::any_of(tasks_.begin(), tasks_.end(),
                     [](const auto& entry) { return entry.second.lives(); });
}

bool TaskRunner::delivered() const {
  return std::all_of(tasks_.begin(), tasks_.end(),
                     [](const auto& entry) { return entry.second.delivered(); });
}

std::string TaskRunner::JobHere() const {
  const auto task = std::find_if(tasks_.begin(), tasks_.end(),
                                 [](const auto& entry) { return !entry.second.ended(); });
  return task == tasks_.end() ? "" : task->first.job_id;
}

TaskSnapshot TaskRunner::snapshot(double energy_joules) const {
  TaskSnapshot out = totals_;
  for (const auto& [key, task] : tasks_) {
    out.buffer_bytes += task.reports().bytes();
    out.dropped_log_bytes += task.reports().dropped_log_bytes();
    out.dropped_log_lines += task.reports().dropped_log_lines();
    out.dropped_steps += task.reports().dropped_steps();
    if (task.lives() && !task.forgotten()) {
      out.running = true;
      out.job_id = key.job_id;
      out.epoch = key.epoch;
      out.step = task.step();
      out.compute_seconds = task.compute_seconds();
      out.last_step = task.last_step();
      out.energy_joules = task.EnergyTotal(energy_joules);
    }
  }
  return out;
}

}  // namespace hearth::worker
