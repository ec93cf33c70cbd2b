#include "worker/daemon/supervise/supervisor.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/fault/fault.h"
#include "common/log/log.h"
#include "common/log/task_scope.h"

namespace hearth::worker {
namespace {

// Messages to trainers that may wait for the thread. Starts and kills always find room.
constexpr size_t kMaxQueuedSends = 10000;
constexpr size_t kReadBytes = 64 << 10;
// A longer gap between two rounds means that this process itself stood still (a frozen container, a
// suspended machine), and its trainers with it: give them time to send a sign of life.
constexpr absl::Duration kStall = absl::Seconds(2);

}  // namespace

absl::StatusOr<std::unique_ptr<Supervisor>> Supervisor::Create(Options options,
                                                               Clock& clock,
                                                               TrainerListener& listener) {
  Fd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) {
    return absl::ErrnoToStatus(errno, "eventfd");
  }
  BecomeSubreaper();
  return std::unique_ptr<Supervisor>(
      new Supervisor(std::move(options), clock, listener, std::move(wake)));
}

Supervisor::Supervisor(Options options, Clock& clock, TrainerListener& listener, Fd wake)
    : options_(std::move(options)),
      clock_(clock),
      listener_(listener),
      wake_(std::move(wake)),
      buffer_(kReadBytes, '\0'),
      thread_([this] { Run(); }) {}

Supervisor::~Supervisor() {
  Post(StopCommand{});
  thread_.join();
}

void Supervisor::Start(v1::Task task) {
  Post(std::move(task));
}

void Supervisor::Send(const TaskKey& key, v1::ToTrainer message) {
  Post(SendCommand{key, std::move(message)});
}

void Supervisor::Kill(const TaskKey& key, absl::Duration grace) {
  Post(KillCommand{key, grace});
}

pid_t Supervisor::running_pid() const {
  absl::MutexLock lock(&mu_);
  return running_pid_;
}

std::string Supervisor::unhealthy_reason() const {
  absl::MutexLock lock(&mu_);
  return unhealthy_reason_;
}

void Supervisor::Post(Command command) {
  {
    absl::MutexLock lock(&mu_);
    if (std::holds_alternative<SendCommand>(command) && commands_.size() >= kMaxQueuedSends) {
      HEARTH_LOG_ERROR("{} messages wait for a trainer; one more is dropped", commands_.size());
      return;
    }
    commands_.push_back(std::move(command));
  }
  // Wakes PollOnce. If the counter is full already, it is awake.
  const uint64_t one = 1;
  static_cast<void>(!write(wake_.get(), &one, sizeof(one)));
}

void Supervisor::Run() {
  prctl(PR_SET_NAME, "supervisor");
  last_round_ = clock_.Monotonic();
  while (!Done()) {
    PollOnce();
    RunCommands();
    const absl::Duration gap = clock_.Monotonic() - last_round_;
    last_round_ += gap;
    for (const auto& child : children_) {
      child->Look(gap > kStall ? gap : absl::ZeroDuration());
    }
    std::erase_if(children_, [](const auto& child) { return child->Advance(); });
    PublishStatus();
  }
}

bool Supervisor::Done() {
  return stopping_ && (children_.empty() || clock_.Monotonic() >= stop_deadline_);
}

void Supervisor::RunCommands() {
  std::deque<Command> commands;
  {
    absl::MutexLock lock(&mu_);
    commands.swap(commands_);
  }
  // Without the lock: they start processes and call the listener.
  for (Command& command : commands) {
    std::visit([this](auto& value) { Apply(std::move(value)); }, command);
  }
}

void Supervisor::Apply(v1::Task task) {
  const TaskKey key{task.job_id(), task.epoch()};
  HEARTH_FAULT_POINT("agent.before_spawn");
  // Measured before the trainer is there: at its end the device must be back to this.
  const std::optional<int64_t> baseline =
      options_.child.device == nullptr ? std::nullopt : options_.child.device->Baseline();
  absl::StatusOr<ChildProcess> process = Spawn(options_.trainer);
  if (!process.ok()) {
    ExitFacts facts;
    facts.start_error = std::string(process.status().message());
    listener_.OnTrainerExit(key, facts);
    return;
  }
  HEARTH_FAULT_POINT("agent.after_spawn");
  const log::TaskScope scope(key.job_id, key.epoch, task.rank());
  HEARTH_LOG_INFO("{}: trainer started, process {}", key.ToString(), process->pid);
  children_.push_back(std::make_unique<TrainerChild>(
      options_.child, clock_, listener_, buffer_, key, task.rank(), *std::move(process), baseline));
  v1::ToTrainer message;
  *message.mutable_task() = std::move(task);
  Apply(SendCommand{key, std::move(message)});
}

void Supervisor::Apply(const SendCommand& command) {
  if (TrainerChild* child = Find(command.key)) {
    child->Send(command.message);
  }
}

void Supervisor::Apply(const KillCommand& command) {
  if (TrainerChild* child = Find(command.key)) {
    child->Kill(command.grace);
  }
}

void Supervisor::Apply(const StopCommand& /*command*/) {
  stopping_ = true;
  stop_deadline_ = clock_.Monotonic() + options_.child.gone_bound;
  for (const auto& child : children_) {
    child->Kill(absl::ZeroDuration());
  }
}

TrainerChild* Supervisor::Find(const TaskKey& key) {
  for (const auto& child : children_) {
    if (child->key() == key && !child->reported()) {
      return child.get();
    }
  }
  return nullptr;
}

void Supervisor::PollOnce() {
  std::vector<pollfd> fds = {{wake_.get(), POLLIN, 0}};
  absl::Duration wait = stopping_ ? stop_deadline_ - clock_.Monotonic() : absl::InfiniteDuration();
  for (const auto& child : children_) {
    const auto watched = child->Watched();
    fds.insert(fds.end(), watched.begin(), watched.end());
    wait = std::min(wait, child->NextLook());
  }
  int timeout = -1;
  if (wait != absl::InfiniteDuration()) {
    timeout = static_cast<int>(
        absl::ToInt64Milliseconds(std::clamp(wait, absl::ZeroDuration(), absl::Hours(1))) + 1);
  }
  if (poll(fds.data(), fds.size(), timeout) <= 0) {
    return;
  }
  uint64_t count = 0;
  static_cast<void>(!read(wake_.get(), &count, sizeof(count)));
  const pollfd* ready = fds.data() + 1;
  for (const auto& child : children_) {
    child->Serve(absl::MakeConstSpan(ready, TrainerChild::kWatched));
    ready += TrainerChild::kWatched;
  }
}

void Supervisor::PublishStatus() {
  pid_t pid = 0;
  std::string reason;
  for (const auto& child : children_) {
    if (child->reported()) {
      reason = absl::StrCat(child->key().ToString(), ": ", child->unclean_reason());
    } else {
      pid = child->pid();
    }
  }
  absl::MutexLock lock(&mu_);
  running_pid_ = pid;
  unhealthy_reason_ = std::move(reason);
}

}  // namespace hearth::worker
