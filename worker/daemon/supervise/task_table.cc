#include "worker/daemon/supervise/task_table.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log/log.h"

namespace hearth::worker {

TaskTable::TaskTable(Options options, const CheckpointRoot& root, Clock& clock)
    : options_(std::move(options)),
      clock_(clock),
      http_address_(options_.identity.http_address()),
      tasks_(options_.tasks, root, clock) {}

void TaskTable::SetHttpAddress(std::string address) {
  absl::MutexLock lock(&mu_);
  http_address_ = std::move(address);
}

void TaskTable::Attach(TrainerHost& host, DiskRequests& disk, TextHost& texts) {
  absl::MutexLock lock(&mu_);
  tasks_.Attach(host);
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
  hello.set_stopping(stopping_);
  tasks_.BeginSession(hello);
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
  if (std::optional<v1::AgentMessage> message = tasks_.NextMessage()) {
    return message;
  }
  // Behind all reports, so that the coordinator has them when it hears the goodbye.
  return talk_.TakeGoodbye();
}

v1::AgentMessage TaskTable::MakeHeartbeat() const {
  v1::AgentMessage message;
  v1::Heartbeat& heartbeat = *message.mutable_heartbeat();
  *heartbeat.mutable_device() = device_status_;
  heartbeat.set_unhealthy_reason(unhealthy_reason_);
  heartbeat.set_stopping(stopping_);
  heartbeat.set_checkpoint_free_bytes(checkpoint_free_bytes_);
  tasks_.FillIn(heartbeat);
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
      return tasks_.Control(message.control());
    case v1::CoordinatorMessage::kKill:
      return tasks_.Kill(message.kill());
    case v1::CoordinatorMessage::kAck:
      return tasks_.Ack(message.ack());
    case v1::CoordinatorMessage::kKvValue:
      return tasks_.TakeKeyAnswer(message.kv_value());
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
      return tasks_.Forget(message.forget());
    case v1::CoordinatorMessage::MESSAGE_NOT_SET:
      HEARTH_LOG_WARNING("message of a kind that this version does not know");
      return;
  }
}

void TaskTable::HandleWelcome(const v1::Welcome& welcome) {
  talk_.TakeWelcome(welcome);
  for (const v1::ReportAck& ack : welcome.acks()) {
    tasks_.Ack(ack);
  }
}

void TaskTable::HandleStart(const v1::StartTask& start) {
  if (!tasks_.Admit(start.task(), stopping_)) {
    return;
  }
  if (writing_ != 0) {
    texts_->Stop(absl::StrCat("a task of ", start.task().job_id(),
                              " was placed on this worker, and jobs go before texts"));
  }
  StartPending();
}

void TaskTable::StartPending() {
  // One process at a time: it has the device to itself.
  if (writing_ == 0) {
    tasks_.StartPending();
  }
}

void TaskTable::HandleWrite(const v1::WriteText& write) {
  absl::Status refused;
  const std::string job_id = tasks_.JobHere();
  if (stopping_) {
    refused = absl::UnavailableError("the worker is stopping");
  } else if (!job_id.empty()) {
    refused = absl::UnavailableError(
        absl::StrCat("the worker runs ", job_id, ", and jobs go before texts"));
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

void TaskTable::OnTrainerMessage(const TaskKey& key, v1::FromTrainer message) {
  DeviceReading device;
  device.name = options_.device_name;
  // Without the lock: reading the counter asks the driver, which may hang.
  if (options_.energy && (message.has_step() || message.has_run_info())) {
    device.energy_joules = options_.energy();
  }
  {
    absl::MutexLock lock(&mu_);
    device.power_watts = device_status_.power_watts();
    device.temperature_celsius = device_status_.temperature_celsius();
    device.utilization_ratio = device_status_.utilization_ratio();
    if (!tasks_.Take(key, std::move(message), device)) {
      return;
    }
  }
  Wake();
}

void TaskTable::OnTrainerOutput(const TaskKey& key, std::string_view level, std::string text) {
  {
    absl::MutexLock lock(&mu_);
    if (!tasks_.TakeOutput(key, level, std::move(text))) {
      return;
    }
  }
  Wake();
}

void TaskTable::OnTrainerDying(const TaskKey& key,
                               const ExitFacts& facts,
                               bool known,
                               absl::Duration dying_for) {
  {
    absl::MutexLock lock(&mu_);
    if (!tasks_.ReportDying(key, facts, known, dying_for)) {
      return;
    }
  }
  Wake();
}

void TaskTable::OnTrainerExit(const TaskKey& key, const ExitFacts& facts) {
  {
    absl::MutexLock lock(&mu_);
    tasks_.End(key, facts);
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
    tasks_.Tick(status.energy_joules());
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
    BeginStop();
    longest = tasks_.StopAll();
  }
  Wake();
  return longest;
}

void TaskTable::BeginStop() {
  stopping_ = true;
  // Sent before the exits, so that the coordinator starts nothing here in answer to them.
  talk_.HeartbeatIsDue();
  if (writing_ != 0) {
    texts_->Stop("the worker is stopping");
  }
}

void TaskTable::KillAllNow() {
  absl::MutexLock lock(&mu_);
  BeginStop();
  tasks_.KillAll();
}

bool TaskTable::AwaitNoTask(absl::Duration timeout) {
  absl::MutexLock lock(&mu_);
  const auto none = [this] {
    mu_.AssertHeld();
    return !tasks_.lives() && writing_ == 0;
  };
  return clock_.AwaitWithTimeout(mu_, absl::Condition(&none), timeout);
}

bool TaskTable::AwaitDelivered(absl::Duration timeout) {
  absl::MutexLock lock(&mu_);
  const auto delivered = [this] {
    mu_.AssertHeld();
    return tasks_.delivered();
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

TaskSnapshot TaskTable::snapshot() const {
  absl::MutexLock lock(&mu_);
  TaskSnapshot out = tasks_.snapshot(device_status_.energy_joules());
  out.unhealthy_reason = unhealthy_reason_;
  return out;
}

}  // namespace hearth::worker
