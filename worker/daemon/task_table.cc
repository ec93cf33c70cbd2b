#include "worker/daemon/task_table.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/clip_text.h"
#include "common/log/log.h"
#include "common/log/task_scope.h"
#include "worker/daemon/clip_texts.h"
#include "worker/daemon/line_splitter.h"
#include "worker/daemon/task_exit.h"

namespace hearth::worker {
namespace {

constexpr size_t kMaxAnswers = 64;
constexpr size_t kMaxRememberedJobs = 4096;
// Bound on every text for people that a trainer sends.
constexpr size_t kMaxTextBytes = 4000;
constexpr size_t kMaxPhaseBytes = 64;
}  // namespace

TaskTable::TaskTable(Options options, const CheckpointRoot& root, Clock& clock)
    : options_(std::move(options)),
      root_(root),
      clock_(clock),
      http_address_(options_.identity.http_address()) {}

void TaskTable::SetHttpAddress(std::string address) {
  absl::MutexLock lock(&mu_);
  http_address_ = std::move(address);
}

void TaskTable::Attach(TrainerHost& host, DiskRequests& disk) {
  absl::MutexLock lock(&mu_);
  host_ = &host;
  disk_ = &disk;
}

void TaskTable::SetWake(std::function<void()> wake) {
  absl::MutexLock lock(&mu_);
  wake_ = std::move(wake);
}

void TaskTable::Wake() {
  std::function<void()> wake;
  {
    absl::MutexLock lock(&mu_);
    wake = wake_;
  }
  if (wake) {
    wake();
  }
}

TaskTable::TaskState* TaskTable::Find(const TaskKey& key) {
  const auto it = tasks_.find(key);
  return it == tasks_.end() ? nullptr : &it->second;
}

bool TaskTable::Lives() const {
  return std::any_of(tasks_.begin(), tasks_.end(),
                     [](const auto& entry) { return entry.second.lives(); });
}

v1::AgentMessage TaskTable::BeginSession() {
  absl::MutexLock lock(&mu_);
  welcomed_ = false;
  heartbeat_due_ = false;
  goodbye_sent_ = false;
  answers_.clear();  // to questions of the previous stream
  v1::AgentMessage message;
  v1::Hello& hello = *message.mutable_hello();
  hello = options_.identity;
  hello.set_http_address(http_address_);
  hello.set_generation(generation_);
  hello.set_unhealthy_reason(unhealthy_reason_);
  for (auto& [key, state] : tasks_) {
    state.sent_seq = 0;
    state.keys_to_ask = state.waiting_keys;
    v1::TaskStatus& task = *hello.add_tasks();
    task.set_job_id(key.job_id);
    task.set_epoch(key.epoch);
    task.set_rank(state.task.rank());
    task.set_running(state.life != Life::kEnded);
    task.set_last_seq(state.reports.last_seq());
    task.set_first_unacked_seq(state.reports.first_unacked_seq());
    task.set_step(state.step);
  }
  return message;
}

std::optional<v1::AgentMessage> TaskTable::NextMessage() {
  absl::MutexLock lock(&mu_);
  if (heartbeat_due_) {
    heartbeat_due_ = false;
    return MakeHeartbeat();
  }
  if (!welcomed_) {
    return std::nullopt;
  }
  if (!answers_.empty()) {
    v1::AgentMessage message = std::move(answers_.front());
    answers_.pop_front();
    return message;
  }
  v1::AgentMessage message;
  for (auto& [key, state] : tasks_) {
    if (state.forgotten) {
      continue;
    }
    if (!state.keys_to_ask.empty()) {
      const auto first = state.keys_to_ask.begin();
      v1::TaskKvWait& wait = *message.mutable_kv_wait();
      wait.set_job_id(key.job_id);
      wait.set_epoch(key.epoch);
      wait.set_rank(state.task.rank());
      wait.set_key(*first);
      state.keys_to_ask.erase(first);
      return message;
    }
    std::optional<v1::TaskReport> report = state.reports.After(state.sent_seq);
    if (!report.has_value() && state.reports.SealLogs()) {
      report = state.reports.After(state.sent_seq);
    }
    if (report.has_value()) {
      state.sent_seq = report->seq();
      *message.mutable_report() = *std::move(report);
      return message;
    }
  }
  if (goodbye_.has_value() && !goodbye_sent_) {
    goodbye_sent_ = true;
    message.mutable_goodbye()->set_reason(*goodbye_);
    return message;
  }
  return std::nullopt;
}

v1::AgentMessage TaskTable::MakeHeartbeat() const {
  v1::AgentMessage message;
  v1::Heartbeat& heartbeat = *message.mutable_heartbeat();
  *heartbeat.mutable_device() = device_status_;
  heartbeat.set_unhealthy_reason(unhealthy_reason_);
  heartbeat.set_checkpoint_free_bytes(checkpoint_free_bytes_);
  for (const auto& [key, state] : tasks_) {
    if (state.lives() && !state.forgotten) {
      heartbeat.set_job_id(key.job_id);
      heartbeat.set_epoch(key.epoch);
      heartbeat.set_step(state.step);
      heartbeat.set_phase(state.phase);
    }
  }
  return message;
}

absl::Status TaskTable::OnMessage(const v1::CoordinatorMessage& message) {
  {
    absl::MutexLock lock(&mu_);
    if (message.generation() < generation_) {
      return absl::FailedPreconditionError(
          absl::StrCat("coordinator of generation ", message.generation(),
                       "; a newer one, generation ", generation_, ", has taken over"));
    }
    generation_ = message.generation();
    switch (message.message_case()) {
      case v1::CoordinatorMessage::kWelcome:
        HandleWelcome(message.welcome());
        break;
      case v1::CoordinatorMessage::kStart:
        HandleStart(message.start());
        break;
      case v1::CoordinatorMessage::kControl: {
        const TaskKey key{message.control().job_id(), message.control().epoch()};
        if (TaskState* state = Find(key); state != nullptr && state->lives()) {
          v1::ToTrainer to_trainer;
          to_trainer.mutable_control()->set_bit(message.control().bit());
          host_->Send(key, std::move(to_trainer));
        }
        break;
      }
      case v1::CoordinatorMessage::kKill:
        HandleKill(message.kill());
        break;
      case v1::CoordinatorMessage::kAck:
        HandleAck(message.ack());
        break;
      case v1::CoordinatorMessage::kKvValue:
        HandleKvValue(message.kv_value());
        break;
      case v1::CoordinatorMessage::kInspect:
        disk_->Inspect(message.inspect());
        break;
      case v1::CoordinatorMessage::kDeleteCheckpoint:
        disk_->Delete(message.delete_checkpoint());
        break;
      case v1::CoordinatorMessage::kListCheckpoints:
        disk_->List(message.list_checkpoints());
        break;
      case v1::CoordinatorMessage::kForget:
        HandleForget(message.forget());
        break;
      case v1::CoordinatorMessage::MESSAGE_NOT_SET:
        HEARTH_LOG_WARNING("message of a kind that this version does not know");
        break;
    }
  }
  Wake();
  return absl::OkStatus();
}

void TaskTable::HandleWelcome(const v1::Welcome& welcome) {
  welcomed_ = true;
  if (welcome.heartbeat_seconds() > 0.0) {
    heartbeat_seconds_ = welcome.heartbeat_seconds();
  }
  for (const v1::ReportAck& ack : welcome.acks()) {
    HandleAck(ack);
  }
}

void TaskTable::HandleAck(const v1::ReportAck& ack) {
  const TaskKey key{ack.job_id(), ack.epoch()};
  TaskState* state = Find(key);
  if (state == nullptr) {
    return;
  }
  if (ack.seq() > state->reports.last_seq()) {
    const log::TaskScope scope(key.job_id, key.epoch, state->task.rank());
    HEARTH_LOG_WARNING("{}: ack of report {}, but the last one is {}", key.ToString(), ack.seq(),
                       state->reports.last_seq());
  }
  state->reports.Ack(ack.seq());
  EraseIfDone(key);
}

void TaskTable::RememberEpoch(const TaskKey& key) {
  const auto [it, inserted] = epochs_.try_emplace(key.job_id, key.epoch);
  it->second = std::max(it->second, key.epoch);
  if (inserted) {
    epoch_order_.push_back(key.job_id);
  }
  if (epoch_order_.size() > kMaxRememberedJobs) {
    epochs_.erase(epoch_order_.front());
    epoch_order_.pop_front();
  }
}

void TaskTable::HandleStart(const v1::StartTask& start) {
  const v1::Task& task = start.task();
  const TaskKey key{task.job_id(), task.epoch()};
  if (Find(key) != nullptr) {
    return;  // said twice
  }
  if (const auto known = epochs_.find(key.job_id);
      known != epochs_.end() && key.epoch <= known->second) {
    // Answered, not dropped: a coordinator that expects this task would wait for ever.
    return Refuse(tasks_.emplace(key, TaskState(task, options_.limits)).first->second,
                  v1::EXIT_REASON_ABORTED,
                  absl::StrCat("stale start: epoch ", known->second, " was here already"));
  }
  RememberEpoch(key);
  TaskState& state = tasks_.emplace(key, TaskState(task, options_.limits)).first->second;
  const absl::StatusOr<std::string> dir = root_.EpochDir(key.job_id, key.epoch);
  if (!dir.ok()) {
    return Refuse(state, v1::EXIT_REASON_BAD_SPEC, std::string(dir.status().message()));
  }
  if (stopping_) {
    return Refuse(state, v1::EXIT_REASON_ABORTED, "the worker is stopping");
  }
  if (state.task.checkpoint_dir().empty()) {
    state.task.set_checkpoint_dir(*dir);
  }
  state.task.set_advertise_host(options_.advertise_host);
  state.task.set_threads(options_.threads);
  state.task.set_device(options_.device);
  for (auto& [other_key, other] : tasks_) {
    if (other_key == key || other.life == Life::kEnded) {
      continue;
    }
    if (other_key.job_id == key.job_id) {
      EndLife(other_key, other, absl::ZeroDuration());
    } else if (other.life != Life::kEnding) {
      return Refuse(state, v1::EXIT_REASON_ABORTED,
                    absl::StrCat("the worker is busy with ", other_key.ToString()));
    }
  }
  StartPending();
}

void TaskTable::Refuse(TaskState& state, v1::ExitReason reason, const std::string& why) {
  const log::TaskScope scope(state.task.job_id(), state.task.epoch(), state.task.rank());
  HEARTH_LOG_WARNING("{} e{}: not started: {}", state.task.job_id(), state.task.epoch(), why);
  state.life = Life::kEnded;
  v1::TaskReport report;
  v1::TaskExit& exit = *report.mutable_exit();
  exit.mutable_exit()->set_reason(reason);
  exit.mutable_exit()->set_message(why);
  *exit.mutable_exit()->mutable_time() = ToProtoTime(clock_.Now());
  exit.set_clean(true);
  ++totals_.exits[reason];
  Report(state, std::move(report));
}

void TaskTable::StartPending() {
  if (Lives()) {
    return;
  }
  for (auto& [key, state] : tasks_) {
    if (state.life == Life::kPending) {
      state.life = Life::kRunning;
      ++totals_.tasks_started;
      host_->Start(state.task);
      return;
    }
  }
}

void TaskTable::EndLife(const TaskKey& key, TaskState& state, absl::Duration grace) {
  switch (state.life) {
    case Life::kPending:
      Refuse(state, v1::EXIT_REASON_KILLED, "killed before it was started");
      break;
    case Life::kRunning:
    case Life::kEnding:
      state.life = Life::kEnding;
      host_->Kill(key, grace);
      break;
    case Life::kEnded:
      break;
  }
}

void TaskTable::HandleKill(const v1::KillTask& kill) {
  const TaskKey key{kill.job_id(), kill.epoch()};
  TaskState* state = Find(key);
  const log::TaskScope scope(key.job_id, key.epoch, state == nullptr ? -1 : state->task.rank());
  if (state == nullptr) {
    HEARTH_LOG_WARNING("{}: asked to kill what is not here: {}", key.ToString(), kill.reason());
    return;
  }
  HEARTH_LOG_INFO("{}: kill, grace {} s: {}", key.ToString(), kill.grace_seconds(), kill.reason());
  EndLife(key, *state, absl::Seconds(kill.grace_seconds()));
}

void TaskTable::HandleForget(const v1::ForgetTask& forget) {
  const TaskKey key{forget.job_id(), forget.epoch()};
  // A deleted job's id may be used again, and its epochs begin at 1 again.
  if (const auto known = epochs_.find(key.job_id);
      known != epochs_.end() && known->second <= key.epoch) {
    epochs_.erase(known);
  }
  TaskState* state = Find(key);
  if (state == nullptr) {
    return;
  }
  const log::TaskScope scope(key.job_id, key.epoch, state->task.rank());
  HEARTH_LOG_INFO("{}: forgotten by the coordinator", key.ToString());
  EndLife(key, *state, absl::ZeroDuration());
  state->forgotten = true;
  EraseIfDone(key);
}

void TaskTable::HandleKvValue(const v1::TaskKvValue& value) {
  const TaskKey key{value.job_id(), value.epoch()};
  TaskState* state = Find(key);
  if (state == nullptr || state->life == Life::kEnded ||
      (state->waiting_keys.erase(value.value().key()) == 0 && value.value().error().empty())) {
    return;
  }
  state->keys_to_ask.erase(value.value().key());
  v1::ToTrainer message;
  *message.mutable_kv_value() = value.value();
  host_->Send(key, std::move(message));
}

void TaskTable::EraseIfDone(const TaskKey& key) {
  const auto it = tasks_.find(key);
  if (it == tasks_.end()) {
    return;
  }
  const TaskState& state = it->second;
  if (state.life != Life::kEnded || !(state.forgotten || state.reports.empty())) {
    return;
  }
  totals_.dropped_log_bytes += state.reports.dropped_log_bytes();
  totals_.dropped_log_lines += state.reports.dropped_log_lines();
  totals_.dropped_steps += state.reports.dropped_steps();
  tasks_.erase(it);
}

void TaskTable::Report(TaskState& state, v1::TaskReport report) {
  if (!state.forgotten) {
    // A coordinator ends the stream of a worker that sends it more; log lines have limits of their
    // own, keys and values are answered by it.
    if (!report.has_kv_put()) {
      ClipTexts(report, kMaxTextBytes);
    }
    state.reports.Add(std::move(report));
  }
}

v1::LogLine TaskTable::MakeLine(const TaskState& state, std::string_view level, std::string text) {
  v1::LogLine line;
  *line.mutable_time() = ToProtoTime(clock_.Now());
  line.set_epoch(state.task.epoch());
  line.set_rank(state.task.rank());
  line.set_level(level.data(), level.size());
  line.set_text(std::move(text));
  return line;
}

double TaskTable::EnergySince(TaskState& state, std::optional<double> counter) {
  if (!counter.has_value()) {
    return 0.0;
  }
  // The counter restarts at 0 when the driver is reloaded.
  const double used = std::max(0.0, *counter - state.energy_reported.value_or(*counter));
  state.energy_reported = counter;
  return used;
}

void TaskTable::FillIn(TaskState& state, std::optional<double> counter, v1::StepReport& step) {
  const double joules = EnergySince(state, counter);
  if (step.energy_joules() == 0.0) {
    step.set_energy_joules(joules);
  }
  if (step.power_watts() == 0.0) {
    step.set_power_watts(device_status_.power_watts());
  }
}

void TaskTable::OnTrainerMessage(const TaskKey& key, v1::FromTrainer message) {
  std::optional<double> counter;
  if (options_.energy && (message.has_step() || message.has_run_info())) {
    counter = options_.energy();
  }
  {
    absl::MutexLock lock(&mu_);
    TaskState* state = Find(key);
    if (state == nullptr || state->forgotten) {
      return;
    }
    v1::TaskReport report;
    switch (message.message_case()) {
      case v1::FromTrainer::kRunInfo:
        EnergySince(*state, counter);  // loading is no step's energy
        if (!options_.device_name.empty()) {
          message.mutable_run_info()->set_device(options_.device_name);
        }
        *report.mutable_run_info() = std::move(*message.mutable_run_info());
        break;
      case v1::FromTrainer::kStep:
        FillIn(*state, counter, *message.mutable_step());
        state->step = message.step().step();
        state->last_step = message.step();
        message.mutable_step()->set_epoch(key.epoch);
        *report.mutable_step() = std::move(*message.mutable_step());
        break;
      case v1::FromTrainer::kLog: {
        v1::LogLine line =
            MakeLine(*state, message.log().level(),
                     SanitizeUtf8(ClipBytes(message.log().text(), LineSplitter::kMaxLineBytes)));
        if (message.log().has_time()) {
          *line.mutable_time() = message.log().time();
        }
        state->reports.AddLog(std::move(line), clock_.Monotonic());
        break;
      }
      case v1::FromTrainer::kCheckpoint:
        state->checkpoint_step = message.checkpoint().step();
        *report.mutable_checkpoint() = std::move(*message.mutable_checkpoint());
        break;
      case v1::FromTrainer::kTrial:
        *report.mutable_trial() = std::move(*message.mutable_trial());
        break;
      case v1::FromTrainer::kKvPut:
        *report.mutable_kv_put() = std::move(*message.mutable_kv_put());
        break;
      case v1::FromTrainer::kKvWait:
        state->waiting_keys.insert(message.kv_wait().key());
        state->keys_to_ask.insert(message.kv_wait().key());
        break;
      case v1::FromTrainer::kExit:
        state->exit = std::move(*message.mutable_exit());
        break;
      case v1::FromTrainer::kPhase:
        state->phase = ClipText(message.phase().name(), kMaxPhaseBytes);
        break;
      case v1::FromTrainer::kProgress:
        state->step = std::max(state->step, message.progress().step());
        break;
      case v1::FromTrainer::kAlive:  // the host has taken note
      case v1::FromTrainer::MESSAGE_NOT_SET:
        break;
    }
    if (report.report_case() != v1::TaskReport::REPORT_NOT_SET) {
      Report(*state, std::move(report));
    }
  }
  Wake();
}

void TaskTable::OnTrainerOutput(const TaskKey& key, std::string_view level, std::string text) {
  {
    absl::MutexLock lock(&mu_);
    TaskState* state = Find(key);
    if (state == nullptr || state->forgotten) {
      return;
    }
    state->reports.AddLog(MakeLine(*state, level, std::move(text)), clock_.Monotonic());
  }
  Wake();
}

void TaskTable::OnTrainerDying(const TaskKey& key,
                               const ExitFacts& facts,
                               bool known,
                               absl::Duration dying_for) {
  {
    absl::MutexLock lock(&mu_);
    TaskState* state = Find(key);
    // If the end was asked for, nobody needs a report that the task is dying.
    if (state == nullptr || state->life != Life::kRunning) {
      return;
    }
    std::optional<v1::TaskDying> dying =
        MakeTaskDying(facts, known, dying_for, state->exit, state->step, clock_.Now());
    if (!dying.has_value()) {
      return;
    }
    const log::TaskScope scope(key.job_id, key.epoch, state->task.rank());
    HEARTH_LOG_WARNING("{}: ending, not gone yet: {}", key.ToString(), dying->exit().message());
    v1::TaskReport report;
    *report.mutable_dying() = *std::move(dying);
    Report(*state, std::move(report));
  }
  Wake();
}

void TaskTable::OnTrainerExit(const TaskKey& key, const ExitFacts& facts) {
  {
    absl::MutexLock lock(&mu_);
    TaskState* state = Find(key);
    if (state != nullptr) {
      v1::TaskExit exit =
          MakeTaskExit(facts, state->exit, state->step, state->checkpoint_step, clock_.Now());
      const log::TaskScope scope(key.job_id, key.epoch, state->task.rank());
      HEARTH_LOG_INFO("{}: {} at step {}{}{}", key.ToString(),
                      v1::ExitReason_Name(exit.exit().reason()), exit.exit().step(),
                      exit.exit().message().empty() ? "" : ": ", exit.exit().message());
      ++totals_.exits[exit.exit().reason()];
      state->life = Life::kEnded;
      state->waiting_keys.clear();
      state->keys_to_ask.clear();
      v1::TaskReport report;
      *report.mutable_exit() = std::move(exit);
      Report(*state, std::move(report));
      EraseIfDone(key);
    }
    StartPending();
  }
  Wake();
}

bool TaskTable::welcomed() const {
  absl::MutexLock lock(&mu_);
  return welcomed_;
}

absl::Duration TaskTable::heartbeat_interval() const {
  absl::MutexLock lock(&mu_);
  return absl::Seconds(heartbeat_seconds_);
}

void TaskTable::Tick(const v1::DeviceStatus& status,
                     const std::string& unhealthy_reason,
                     int64_t checkpoint_free_bytes) {
  {
    absl::MutexLock lock(&mu_);
    device_status_ = status;
    unhealthy_reason_ = unhealthy_reason;
    checkpoint_free_bytes_ = checkpoint_free_bytes;
    for (auto& [key, state] : tasks_) {
      state.reports.LetIn(clock_.Monotonic());
      if (state.lives() && state.energy_begin == 0.0) {
        state.energy_begin = status.energy_joules();
      }
    }
    heartbeat_due_ = true;
  }
  Wake();
}

void TaskTable::Answer(v1::AgentMessage message) {
  {
    absl::MutexLock lock(&mu_);
    if (answers_.size() >= kMaxAnswers) {
      HEARTH_LOG_WARNING("{} answers wait for the coordinator; one more is dropped", kMaxAnswers);
      return;
    }
    answers_.push_back(std::move(message));
  }
  Wake();
}

absl::Duration TaskTable::StopAll() {
  absl::Duration longest = absl::ZeroDuration();
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
    for (auto& [key, state] : tasks_) {
      const absl::Duration grace = StopGrace(state.task.spec());
      if (state.lives()) {
        v1::ToTrainer message;
        message.mutable_control()->set_bit(v1::CONTROL_BIT_STOP);
        host_->Send(key, std::move(message));
        longest = std::max(longest, grace);
      }
      EndLife(key, state, grace);
    }
  }
  Wake();
  return longest;
}

void TaskTable::KillAllNow() {
  absl::MutexLock lock(&mu_);
  stopping_ = true;
  for (auto& [key, state] : tasks_) {
    EndLife(key, state, absl::ZeroDuration());
  }
}

bool TaskTable::AwaitNoTask(absl::Duration timeout) {
  absl::MutexLock lock(&mu_);
  const auto none = [this] {
    mu_.AssertHeld();
    return !Lives();
  };
  return clock_.AwaitWithTimeout(mu_, absl::Condition(&none), timeout);
}

bool TaskTable::AllDelivered() const {
  return std::all_of(tasks_.begin(), tasks_.end(), [](const auto& entry) {
    return entry.second.life == Life::kEnded && entry.second.reports.empty();
  });
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
    goodbye_ = std::move(reason);
  }
  Wake();
}

bool TaskTable::goodbye_sent() const {
  absl::MutexLock lock(&mu_);
  return goodbye_sent_;
}

TaskTable::Snapshot TaskTable::snapshot() const {
  absl::MutexLock lock(&mu_);
  Snapshot out = totals_;
  out.unhealthy_reason = unhealthy_reason_;
  for (const auto& [key, state] : tasks_) {
    out.buffer_bytes += state.reports.bytes();
    out.dropped_log_bytes += state.reports.dropped_log_bytes();
    out.dropped_log_lines += state.reports.dropped_log_lines();
    out.dropped_steps += state.reports.dropped_steps();
    if (state.lives() && !state.forgotten) {
      out.running = true;
      out.job_id = key.job_id;
      out.epoch = key.epoch;
      out.step = state.step;
      out.last_step = state.last_step;
      out.energy_joules = state.energy_begin == 0.0
                              ? 0.0
                              : std::max(0.0, device_status_.energy_joules() - state.energy_begin);
    }
  }
  return out;
}

}  // namespace hearth::worker
