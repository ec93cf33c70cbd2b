#include "worker/daemon/supervise/task_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log/log.h"
#include "common/log/task_scope.h"
#include "worker/daemon/supervise/task_exit.h"

namespace hearth::worker {

TaskTable::TaskTable(Options options, const CheckpointRoot& root, Clock& clock)
    : options_(std::move(options)),
      root_(root),
      clock_(clock),
      http_address_(options_.identity.http_address()) {}

void TaskTable::SetHttpAddress(std::string address) {
  absl::MutexLock lock(&mu_);
  http_address_ = std::move(address);
}

void TaskTable::Attach(TrainerHost& host, DiskRequests& disk, TextHost& texts) {
  absl::MutexLock lock(&mu_);
  host_ = &host;
  disk_ = &disk;
  texts_ = &texts;
}

void TaskTable::SetWake(std::function<void()> wake) {
  absl::MutexLock lock(&mu_);
  wake_ = std::move(wake);
}

void TaskTable::Wake() {
  // A copy, called without the lock: whoever wakes up comes back for a message.
  std::function<void()> wake;
  {
    absl::MutexLock lock(&mu_);
    wake = wake_;
  }
  if (wake) {
    wake();
  }
}

WorkerTask* TaskTable::Find(const TaskKey& key) {
  const auto it = tasks_.find(key);
  return it == tasks_.end() ? nullptr : &it->second;
}

bool TaskTable::Lives() const {
  return std::any_of(tasks_.begin(), tasks_.end(),
                     [](const auto& entry) { return entry.second.lives(); });
}

v1::AgentMessage TaskTable::BeginSession() {
  absl::MutexLock lock(&mu_);
  talk_.Begin();
  if (writing_ != 0) {
    texts_->Stop("");  // those who wait for it have heard that the stream broke
  }
  v1::AgentMessage message;
  v1::Hello& hello = *message.mutable_hello();
  hello = options_.identity;
  hello.set_http_address(http_address_);
  hello.set_generation(talk_.generation());
  hello.set_unhealthy_reason(unhealthy_reason_);
  for (auto& [key, task] : tasks_) {
    task.BeginSession();
    *hello.add_tasks() = task.Status();
  }
  return message;
}

std::optional<v1::AgentMessage> TaskTable::NextMessage() {
  absl::MutexLock lock(&mu_);
  // In front of everything else: one that waits behind reports would look like silence.
  if (talk_.TakeHeartbeat()) {
    return MakeHeartbeat();
  }
  if (!talk_.welcomed()) {
    return std::nullopt;
  }
  if (std::optional<v1::AgentMessage> answer = talk_.TakeAnswer()) {
    return answer;
  }
  for (auto& [key, task] : tasks_) {
    if (std::optional<v1::AgentMessage> message = task.NextMessage()) {
      return message;
    }
  }
  // Behind all reports, so that the coordinator has them when it hears the goodbye.
  return talk_.TakeGoodbye();
}

v1::AgentMessage TaskTable::MakeHeartbeat() const {
  v1::AgentMessage message;
  v1::Heartbeat& heartbeat = *message.mutable_heartbeat();
  *heartbeat.mutable_device() = device_status_;
  heartbeat.set_unhealthy_reason(unhealthy_reason_);
  heartbeat.set_checkpoint_free_bytes(checkpoint_free_bytes_);
  for (const auto& [key, task] : tasks_) {
    if (task.lives() && !task.forgotten()) {
      heartbeat.set_job_id(key.job_id);
      heartbeat.set_epoch(key.epoch);
      heartbeat.set_step(task.step());
      heartbeat.set_phase(task.phase());
      heartbeat.set_compute_seconds(task.compute_seconds());
    }
  }
  return message;
}

absl::Status TaskTable::OnMessage(const v1::CoordinatorMessage& message) {
  {
    absl::MutexLock lock(&mu_);
    if (absl::Status heard = talk_.Hear(message.generation()); !heard.ok()) {
      return heard;
    }
    Handle(message);
  }
  Wake();
  return absl::OkStatus();
}

void TaskTable::Handle(const v1::CoordinatorMessage& message) {
  switch (message.message_case()) {
    case v1::CoordinatorMessage::kWelcome:
      return HandleWelcome(message.welcome());
    case v1::CoordinatorMessage::kStart:
      return HandleStart(message.start());
    case v1::CoordinatorMessage::kControl:
      return HandleControl(message.control());
    case v1::CoordinatorMessage::kKill:
      return HandleKill(message.kill());
    case v1::CoordinatorMessage::kAck:
      return HandleAck(message.ack());
    case v1::CoordinatorMessage::kKvValue:
      return HandleKvValue(message.kv_value());
    case v1::CoordinatorMessage::kInspect:
      return disk_->Inspect(message.inspect());
    case v1::CoordinatorMessage::kDeleteCheckpoint:
      return disk_->Delete(message.delete_checkpoint());
    case v1::CoordinatorMessage::kListCheckpoints:
      return disk_->List(message.list_checkpoints());
    case v1::CoordinatorMessage::kReadCheckpoint:
      return disk_->Read(message.read_checkpoint());
    case v1::CoordinatorMessage::kWrite:
      return HandleWrite(message.write());
    case v1::CoordinatorMessage::kStopWriting:
      return HandleStopWriting(message.stop_writing());
    case v1::CoordinatorMessage::kForget:
      return HandleForget(message.forget());
    case v1::CoordinatorMessage::MESSAGE_NOT_SET:
      HEARTH_LOG_WARNING("message of a kind that this version does not know");
      return;
  }
}

void TaskTable::HandleWelcome(const v1::Welcome& welcome) {
  talk_.TakeWelcome(welcome);
  for (const v1::ReportAck& ack : welcome.acks()) {
    HandleAck(ack);
  }
}

void TaskTable::HandleAck(const v1::ReportAck& ack) {
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

void TaskTable::HandleStart(const v1::StartTask& start) {
  const TaskKey key{start.task().job_id(), start.task().epoch()};
  if (Find(key) != nullptr) {
    return;  // said twice
  }
  WorkerTask& task = tasks_.try_emplace(key, start.task(), options_.limits, clock_).first->second;
  if (const std::optional<int64_t> newest = epochs_.Newest(key.job_id);
      newest.has_value() && key.epoch <= *newest) {
    // Answered, not dropped: a coordinator that expects this task would wait for ever.
    return Refuse(task, v1::EXIT_REASON_ABORTED,
                  absl::StrCat("stale start: epoch ", *newest, " was here already"));
  }
  epochs_.Remember(key);
  const absl::StatusOr<std::string> dir = root_.EpochDir(key.job_id, key.epoch);
  if (!dir.ok()) {
    return Refuse(task, v1::EXIT_REASON_BAD_SPEC, std::string(dir.status().message()));
  }
  if (stopping_) {
    return Refuse(task, v1::EXIT_REASON_ABORTED, "the worker is stopping");
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
      return Refuse(task, v1::EXIT_REASON_ABORTED,
                    absl::StrCat("the worker is busy with ", other_key.ToString()));
    }
  }
  if (writing_ != 0) {
    texts_->Stop(absl::StrCat("a task of ", key.job_id,
                              " was placed on this worker, and jobs go before texts"));
  }
  StartPending();
}

void TaskTable::Refuse(WorkerTask& task, v1::ExitReason reason, const std::string& why) {
  const log::TaskScope scope(task.task().job_id(), task.task().epoch(), task.task().rank());
  HEARTH_LOG_WARNING("{}: not started: {}", task.key().ToString(), why);
  task.Refuse(reason, why);
  ++totals_.exits[reason];
}

void TaskTable::StartPending() {
  // One process at a time: it has the device to itself.
  if (Lives() || writing_ != 0) {
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

void TaskTable::EndLife(WorkerTask& task, absl::Duration grace) {
  if (task.pending()) {
    Refuse(task, v1::EXIT_REASON_KILLED, "killed before it was started");
  } else if (task.lives()) {
    task.BeginEnd();
    host_->Kill(task.key(), grace);
  }
}

void TaskTable::HandleControl(const v1::ControlTask& control) {
  const TaskKey key{control.job_id(), control.epoch()};
  if (const WorkerTask* task = Find(key); task != nullptr && task->lives()) {
    v1::ToTrainer message;
    message.mutable_control()->set_bit(control.bit());
    host_->Send(key, std::move(message));
  }
}

void TaskTable::HandleKill(const v1::KillTask& kill) {
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

void TaskTable::HandleForget(const v1::ForgetTask& forget) {
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

void TaskTable::HandleWrite(const v1::WriteText& write) {
  absl::Status refused;
  const auto task = std::find_if(tasks_.begin(), tasks_.end(),
                                 [](const auto& entry) { return !entry.second.ended(); });
  if (stopping_) {
    refused = absl::UnavailableError("the worker is stopping");
  } else if (task != tasks_.end()) {
    refused = absl::UnavailableError(
        absl::StrCat("the worker runs ", task->first.job_id, ", and jobs go before texts"));
  } else if (writing_ != 0) {
    refused = absl::ResourceExhaustedError("the worker writes another text");
  }
  if (refused.ok()) {
    writing_ = write.request_id();
    return texts_->Write(write);
  }
  v1::AgentMessage message;
  v1::WrittenText& answer = *message.mutable_written();
  answer.set_request_id(write.request_id());
  answer.set_code(static_cast<int32_t>(refused.code()));
  answer.set_error(std::string(refused.message()));
  talk_.AddAnswer(std::move(message));
}

void TaskTable::HandleStopWriting(const v1::StopWriting& stop) {
  if (writing_ != 0 && writing_ == stop.request_id()) {
    texts_->Stop("");
  }
}

bool TaskTable::OnText(v1::AgentMessage answer) {
  return Answer(std::move(answer));
}

void TaskTable::OnTextOver() {
  {
    absl::MutexLock lock(&mu_);
    writing_ = 0;
    StartPending();
  }
  Wake();
}

void TaskTable::HandleKvValue(const v1::TaskKvValue& value) {
  const TaskKey key{value.job_id(), value.epoch()};
  WorkerTask* task = Find(key);
  if (task == nullptr || !task->TakeKeyAnswer(value.value())) {
    return;
  }
  v1::ToTrainer message;
  *message.mutable_kv_value() = value.value();
  host_->Send(key, std::move(message));
}

void TaskTable::EraseIfDone(const TaskKey& key) {
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

void TaskTable::OnTrainerMessage(const TaskKey& key, v1::FromTrainer message) {
  DeviceReading device;
  device.name = options_.device_name;
  // Without the lock: reading the counter asks the driver, which may hang.
  if (options_.energy && (message.has_step() || message.has_run_info())) {
    device.energy_joules = options_.energy();
  }
  {
    absl::MutexLock lock(&mu_);
    WorkerTask* task = Find(key);
    if (task == nullptr) {
      return;
    }
    device.power_watts = device_status_.power_watts();
    device.temperature_celsius = device_status_.temperature_celsius();
    device.utilization_ratio = device_status_.utilization_ratio();
    task->Take(std::move(message), device);
  }
  Wake();
}

void TaskTable::OnTrainerOutput(const TaskKey& key, std::string_view level, std::string text) {
  {
    absl::MutexLock lock(&mu_);
    WorkerTask* task = Find(key);
    if (task == nullptr) {
      return;
    }
    task->TakeOutput(level, std::move(text));
  }
  Wake();
}

void TaskTable::OnTrainerDying(const TaskKey& key,
                               const ExitFacts& facts,
                               bool known,
                               absl::Duration dying_for) {
  {
    absl::MutexLock lock(&mu_);
    WorkerTask* task = Find(key);
    if (task == nullptr) {
      return;
    }
    const std::optional<v1::TaskDying> dying = task->ReportDying(facts, known, dying_for);
    if (!dying.has_value()) {
      return;
    }
    const log::TaskScope scope(key.job_id, key.epoch, task->task().rank());
    HEARTH_LOG_WARNING("{}: ending, not gone yet: {}", key.ToString(), dying->exit().message());
  }
  Wake();
}

void TaskTable::OnTrainerExit(const TaskKey& key, const ExitFacts& facts) {
  {
    absl::MutexLock lock(&mu_);
    if (WorkerTask* task = Find(key)) {
      const v1::TrainerExit exit = task->End(facts).exit();
      const log::TaskScope scope(key.job_id, key.epoch, task->task().rank());
      HEARTH_LOG_INFO("{}: {} at step {}{}{}", key.ToString(), v1::ExitReason_Name(exit.reason()),
                      exit.step(), exit.message().empty() ? "" : ": ", exit.message());
      ++totals_.exits[exit.reason()];
      EraseIfDone(key);
    }
    StartPending();
  }
  Wake();
}

bool TaskTable::welcomed() const {
  absl::MutexLock lock(&mu_);
  return talk_.welcomed();
}

absl::Duration TaskTable::heartbeat_interval() const {
  absl::MutexLock lock(&mu_);
  return talk_.heartbeat_interval();
}

void TaskTable::Tick(const v1::DeviceStatus& status,
                     const std::string& unhealthy_reason,
                     int64_t checkpoint_free_bytes) {
  {
    absl::MutexLock lock(&mu_);
    device_status_ = status;
    unhealthy_reason_ = unhealthy_reason;
    checkpoint_free_bytes_ = checkpoint_free_bytes;
    for (auto& [key, task] : tasks_) {
      task.Tick(status.energy_joules());
    }
    talk_.HeartbeatIsDue();
  }
  Wake();
}

bool TaskTable::Answer(v1::AgentMessage message) {
  {
    absl::MutexLock lock(&mu_);
    if (!talk_.AddAnswer(std::move(message))) {
      HEARTH_LOG_WARNING("{} answers wait for the coordinator; one more is dropped",
                         Conversation::kMaxAnswers);
      return false;
    }
  }
  Wake();
  return true;
}

absl::Duration TaskTable::StopAll() {
  absl::Duration longest = absl::ZeroDuration();
  {
    absl::MutexLock lock(&mu_);
    StopText();
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
  }
  Wake();
  return longest;
}

void TaskTable::StopText() {
  stopping_ = true;
  if (writing_ != 0) {
    texts_->Stop("the worker is stopping");
  }
}

void TaskTable::KillAllNow() {
  absl::MutexLock lock(&mu_);
  StopText();
  for (auto& [key, task] : tasks_) {
    EndLife(task, absl::ZeroDuration());
  }
}

bool TaskTable::AwaitNoTask(absl::Duration timeout) {
  absl::MutexLock lock(&mu_);
  const auto none = [this] {
    mu_.AssertHeld();
    return !Lives() && writing_ == 0;
  };
  return clock_.AwaitWithTimeout(mu_, absl::Condition(&none), timeout);
}

bool TaskTable::AllDelivered() const {
  return std::all_of(tasks_.begin(), tasks_.end(),
                     [](const auto& entry) { return entry.second.delivered(); });
}

bool TaskTable::AwaitDelivered(absl::Duration timeout) {
  absl::MutexLock lock(&mu_);
  const auto delivered = [this] {
    mu_.AssertHeld();
    return AllDelivered();
  };
  return clock_.AwaitWithTimeout(mu_, absl::Condition(&delivered), timeout);
}

void TaskTable::SayGoodbye(std::string reason) {
  {
    absl::MutexLock lock(&mu_);
    talk_.SayGoodbye(std::move(reason));
  }
  Wake();
}

bool TaskTable::goodbye_sent() const {
  absl::MutexLock lock(&mu_);
  return talk_.goodbye_sent();
}

TaskTable::Snapshot TaskTable::snapshot() const {
  absl::MutexLock lock(&mu_);
  Snapshot out = totals_;
  out.unhealthy_reason = unhealthy_reason_;
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
      out.energy_joules = task.EnergyTotal(device_status_.energy_joules());
    }
  }
  return out;
}

}  // namespace hearth::worker
