#include "worker/daemon/supervise/supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/fault/fault.h"
#include "common/log/log.h"
#include "common/log/task_scope.h"

namespace hearth::worker {
namespace {

// Messages to trainers that may wait for the thread. Starts and kills always find room.
constexpr size_t kMaxQueuedSends = 10000;
constexpr size_t kReadBytes = 64 << 10;
constexpr int kLastReads = 64;
// How often to check whether a process group is empty; no descriptor reports it.
constexpr absl::Duration kReapPoll = absl::Milliseconds(5);
// The same while the group is gone and the device's next sample is awaited.
constexpr absl::Duration kDevicePoll = absl::Milliseconds(20);
constexpr absl::Duration kStuckPoll = absl::Seconds(1);
// How often a running trainer's silence is measured, and its state looked at.
constexpr absl::Duration kSilencePoll = absl::Milliseconds(200);
// The same for the state of one that was killed and whose end has not been reported yet.
constexpr absl::Duration kDyingPoll = absl::Milliseconds(100);
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
      child->heard += gap > kStall ? gap : absl::ZeroDuration();
      CheckSilence(*child);
      CheckDying(*child);
    }
    std::erase_if(children_, [this](const auto& child) { return Advance(*child); });
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
      options_.device == nullptr ? std::nullopt : options_.device->Baseline();
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
  auto child = std::make_unique<Child>();
  child->key = key;
  child->rank = task.rank();
  child->device_baseline = baseline;
  child->heard = clock_.Monotonic();
  child->process = *std::move(process);
  children_.push_back(std::move(child));
  v1::ToTrainer message;
  *message.mutable_task() = std::move(task);
  Apply(SendCommand{key, std::move(message)});
}

void Supervisor::Apply(const SendCommand& command) {
  Child* child = Find(command.key);
  if (child == nullptr || !child->process.pipe.valid()) {
    return;
  }
  if (const absl::Status added = child->outbox.Add(command.message); !added.ok()) {
    // The trainer would wait for it: what is not sent ends the task.
    child->facts.protocol_error = std::string(added.message());
    KillNow(*child);
    return;
  }
  Write(*child);
  if (child->outbox.waiting() > options_.outgoing_bytes_max) {
    child->facts.protocol_error = "the trainer does not read its messages";
    KillNow(*child);
  }
}

void Supervisor::Apply(const KillCommand& command) {
  Child* child = Find(command.key);
  if (child == nullptr || child->state == State::kKilled || child->state == State::kReaping) {
    return;
  }
  if (command.grace <= absl::ZeroDuration()) {
    KillNow(*child);
    return;
  }
  // The whole group: a trainer may have children.
  kill(-child->process.pid, SIGTERM);
  child->asked_to_end = true;
  child->state = State::kTerminating;
  // Another command may shorten the grace and never makes it longer.
  child->deadline = std::min(child->deadline, clock_.Monotonic() + command.grace);
}

void Supervisor::Apply(const StopCommand& /*command*/) {
  stopping_ = true;
  stop_deadline_ = clock_.Monotonic() + options_.gone_bound;
  for (const auto& child : children_) {
    if (child->state == State::kRunning || child->state == State::kTerminating) {
      KillNow(*child);
    }
  }
}

void Supervisor::KillNow(Child& child) {
  HEARTH_FAULT_POINT("agent.before_kill");
  const absl::StatusOr<ProcessStat> stat = options_.read_stat(child.process.pid);
  // Whether it was ending by itself already: then this signal is not why.
  child.facts.before_kill = stat.ok() && LooksDying(*stat);
  KillAll(child.process.pid);
  child.state = State::kKilled;
  child.death.Dying(clock_.Monotonic());
  child.deadline = clock_.Monotonic() + options_.gone_bound;
}

void Supervisor::CheckSilence(Child& child) {
  // Once the pipe is closed the trainer is leaving, which has a deadline of its own.
  if ((child.state != State::kRunning && child.state != State::kTerminating) ||
      !child.process.pipe.valid()) {
    return;
  }
  const absl::Duration silent = clock_.Monotonic() - child.heard;
  if (!WorthALook(options_.silence, silent)) {
    return;
  }
  const absl::StatusOr<ProcessStat> stat = options_.read_stat(child.process.pid);
  child.facts.hung =
      TooSilent(options_.silence, silent, child.spoke, stat.ok() ? stat->state : '\0');
  if (child.facts.hung.empty()) {
    return;
  }
  child.facts.silent = silent;
  const log::TaskScope scope(child.key.job_id, child.key.epoch, child.rank);
  HEARTH_LOG_WARNING("{}: {}, SIGKILL", child.key.ToString(), child.facts.hung);
  KillNow(child);
}

void Supervisor::CheckDying(Child& child) {
  if (child.reported) {
    return;
  }
  const absl::Duration now = clock_.Monotonic();
  if (!child.leader_reaped && child.death.LookIsDue(now)) {
    const absl::StatusOr<ProcessStat> stat = options_.read_stat(child.process.pid);
    if (stat.ok() && LooksDying(*stat)) {
      child.death.Dying(now);
    }
  }
  if (!child.death.NoticeIsDue(now)) {
    return;
  }
  // Its last messages may still be in the pipe, perhaps also its TrainerExit. Read no more than a
  // pipe holds: a grandchild may keep writing.
  pollfd ready = {child.process.pipe.get(), POLLIN, 0};
  for (int i = 0; i < kLastReads && child.process.pipe.valid() && poll(&ready, 1, 0) > 0; ++i) {
    Read(child);
  }
  ExitFacts facts = child.facts;
  bool known = child.leader_reaped || !facts.hung.empty() || !facts.protocol_error.empty();
  // Not reaped yet, but what it will have died of is known.
  if (!known && child.state == State::kKilled) {
    facts.wait_status = -SIGKILL;
    known = true;
  }
  if (!known) {
    const absl::StatusOr<ProcessStat> stat = options_.read_stat(child.process.pid);
    const int code = stat.ok() ? stat->exit_code : 0;
    facts.wait_status = WIFEXITED(code) ? WEXITSTATUS(code) : -WTERMSIG(code);
    known = code != 0;
  }
  const log::TaskScope scope(child.key.job_id, child.key.epoch, child.rank);
  HEARTH_LOG_INFO("{}: the trainer has been ending for {} ms", child.key.ToString(),
                  absl::ToInt64Milliseconds(child.death.For(now)));
  listener_.OnTrainerDying(child.key, facts, known, child.death.For(now));
}

Supervisor::Child* Supervisor::Find(const TaskKey& key) {
  for (const auto& child : children_) {
    if (child->key == key && !child->reported) {
      return child.get();
    }
  }
  return nullptr;
}

void Supervisor::PollOnce() {
  std::vector<pollfd> fds = {{wake_.get(), POLLIN, 0}};
  absl::Duration wait = stopping_ ? stop_deadline_ - clock_.Monotonic() : absl::InfiniteDuration();
  for (const auto& child : children_) {
    // An invalid descriptor is -1, which poll() skips.
    const bool writing = child->outbox.waiting() > 0;
    fds.push_back({child->process.pidfd.get(), POLLIN, 0});
    fds.push_back(
        {child->process.pipe.get(), static_cast<int16_t>(writing ? POLLIN | POLLOUT : POLLIN), 0});
    fds.push_back({child->process.out.get(), POLLIN, 0});
    fds.push_back({child->process.err.get(), POLLIN, 0});
    wait = std::min(wait, child->deadline - clock_.Monotonic());
    if (child->state == State::kRunning || child->state == State::kTerminating) {
      wait = std::min(wait, kSilencePoll);
    }
    if (child->state == State::kKilled && !child->reported) {
      wait = std::min(wait, kDyingPoll);
    }
    if (child->state == State::kReaping || child->reported) {
      const bool gone = child->gone != absl::InfiniteDuration();
      wait = std::min(wait, child->reported ? kStuckPoll : gone ? kDevicePoll : kReapPoll);
    }
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
  for (size_t i = 0; i < children_.size(); ++i) {
    Child& child = *children_[i];
    // Messages and output come before the end: they were written before it.
    const pollfd* ready = &fds[1 + 4 * i];
    if (ready[1].revents & POLLOUT) {
      Write(child);
    }
    if (ready[1].revents & ~POLLOUT) {
      Read(child);
    }
    if (ready[2].revents != 0) {
      ReadOutput(child, child.process.out, child.out, "info");
    }
    if (ready[3].revents != 0) {
      ReadOutput(child, child.process.err, child.err, "warning");
    }
    if (ready[0].revents != 0) {
      LeaderEnded(child);
    }
  }
}

void Supervisor::Write(Child& child) {
  if (child.process.pipe.valid() && child.outbox.waiting() > 0) {
    HEARTH_FAULT_POINT("agent.trainer_send");
    child.outbox.SendTo(child.process.pipe.get());
  }
}

void Supervisor::Read(Child& child) {
  if (!child.process.pipe.valid()) {
    return;
  }
  HEARTH_FAULT_POINT("agent.trainer_receive");
  const ssize_t got = recv(child.process.pipe.get(), buffer_.data(), buffer_.size(), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
    return;
  }
  if (got <= 0) {
    child.process.pipe.Reset();
    // The trainer has closed its end and has pipe_grace to leave.
    if (child.state == State::kRunning) {
      child.state = State::kTerminating;
      child.deadline = clock_.Monotonic() + options_.pipe_grace;
    }
    return;
  }
  child.reader.Append(std::string_view(buffer_.data(), static_cast<size_t>(got)));
  Deliver(child);
}

void Supervisor::Deliver(Child& child) {
  while (true) {
    v1::FromTrainer message;
    const absl::StatusOr<bool> next = child.reader.Next(message);
    if (!next.ok()) {
      child.facts.protocol_error = std::string(next.status().message());
      // What follows a broken frame cannot be read either: there is nowhere to begin again.
      child.process.pipe.Reset();
      if (child.state == State::kRunning || child.state == State::kTerminating) {
        KillNow(child);
      }
      return;
    }
    if (!*next) {
      return;
    }
    child.heard = clock_.Monotonic();
    if (message.message_case() == v1::FromTrainer::MESSAGE_NOT_SET) {
      const log::TaskScope scope(child.key.job_id, child.key.epoch, child.rank);
      HEARTH_LOG_WARNING("{}: a message of a kind not known here", child.key.ToString());
    }
    child.spoke = true;
    if (message.has_alive()) {
      continue;
    }
    listener_.OnTrainerMessage(child.key, std::move(message));
  }
}

void Supervisor::ReadOutput(Child& child, Fd& fd, LineSplitter& splitter, std::string_view level) {
  if (!fd.valid()) {
    return;
  }
  const ssize_t got = read(fd.get(), buffer_.data(), buffer_.size());
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
    return;
  }
  std::vector<std::string> lines;
  if (got <= 0) {
    fd.Reset();
    if (std::string rest = splitter.Finish(); !rest.empty()) {
      lines.push_back(std::move(rest));
    }
  } else {
    lines = splitter.Append(std::string_view(buffer_.data(), static_cast<size_t>(got)));
  }
  for (std::string& line : lines) {
    // Kept for a trainer that ends without saying why.
    if (&fd == &child.process.err) {
      child.facts.last_words = line;
    }
    listener_.OnTrainerOutput(child.key, level, std::move(line));
  }
}

void Supervisor::LeaderEnded(Child& child) {
  // The leader is a zombie until it is reaped, which keeps its group's number from being used
  // again: kill first.
  KillAll(child.process.pid);
  int status = 0;
  if (waitpid(child.process.pid, &status, WNOHANG) != child.process.pid) {
    return;
  }
  child.process.pidfd.Reset();
  child.leader_reaped = true;
  child.facts.before_kill |= !child.asked_to_end && child.state != State::kKilled;
  child.death.Dying(clock_.Monotonic());
  HEARTH_FAULT_POINT("agent.after_reap");
  child.facts.wait_status = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
  if (!child.reported) {
    child.state = State::kReaping;
    child.deadline = clock_.Monotonic() + options_.gone_bound;
  }
}

bool Supervisor::ProcessesGone(Child& child) const {
  // Do not ask again once it was empty: the group's number may be reused.
  if (child.gone == absl::InfiniteDuration() && child.leader_reaped &&
      GroupIsGone(child.process.pid)) {
    child.gone = clock_.Monotonic();
  }
  return child.gone != absl::InfiniteDuration();
}

std::string Supervisor::DeviceHeld(const Child& child) const {
  if (options_.device == nullptr) {
    return "";
  }
  return options_.device->Held(child.process.pid, child.device_baseline, child.gone)
      .value_or("the device does not say whether it is free again");
}

bool Supervisor::Advance(Child& child) {
  const bool late = clock_.Monotonic() >= child.deadline;
  switch (child.state) {
    case State::kRunning:
      return false;
    case State::kTerminating:
      if (late) {
        const log::TaskScope scope(child.key.job_id, child.key.epoch, child.rank);
        HEARTH_LOG_WARNING("{}: did not end in time, SIGKILL", child.key.ToString());
        KillNow(child);
      }
      return false;
    case State::kKilled:
    case State::kReaping:
      break;
  }
  // "Clean" means that another trainer may use the device: no process of the group lives, and the
  // device has given its memory back. Without that proof the report waits until it is late.
  const bool gone = ProcessesGone(child);
  const std::string held = gone ? DeviceHeld(child) : "";
  if (gone && held.empty()) {
    Report(child);
    return true;
  }
  if (late && !child.reported) {
    child.facts.clean = false;
    child.facts.unclean_reason =
        gone ? held
             : absl::StrCat("processes survive SIGKILL: ",
                            absl::StrJoin(LiveMembers(child.process.pid), ", "));
    if (!child.leader_reaped) {
      child.facts.wait_status = -SIGKILL;
    }
    Report(child);
  }
  // The report is out, but the child stays in the list until it is really gone: the worker is
  // unhealthy until then.
  if (child.reported) {
    if (!gone) {
      KillAll(child.process.pid);
    }
    child.deadline = clock_.Monotonic() + kStuckPoll;
  }
  return false;
}

void Supervisor::Report(Child& child) {
  if (child.reported) {
    const log::TaskScope scope(child.key.job_id, child.key.epoch, child.rank);
    HEARTH_LOG_INFO("{}: all its processes are gone at last", child.key.ToString());
    return;
  }
  child.reported = true;
  // Everything in the pipes was written before the end; a descriptor that a survivor holds gives
  // EAGAIN, not end of file.
  const auto drain = [](Fd& fd, auto&& read_once) {
    pollfd ready = {fd.get(), POLLIN, 0};
    while (fd.valid() && poll(&ready, 1, 0) > 0) {
      read_once();
      ready.fd = fd.get();
    }
  };
  drain(child.process.pipe, [&] { Read(child); });
  drain(child.process.out, [&] { ReadOutput(child, child.process.out, child.out, "info"); });
  drain(child.process.err, [&] { ReadOutput(child, child.process.err, child.err, "warning"); });
  child.process.pipe.Reset();
  child.process.out.Reset();
  child.process.err.Reset();
  const log::TaskScope scope(child.key.job_id, child.key.epoch, child.rank);
  HEARTH_LOG_INFO("{}: trainer ended, status {}{}", child.key.ToString(), child.facts.wait_status,
                  child.facts.clean ? "" : ", " + child.facts.unclean_reason);
  listener_.OnTrainerExit(child.key, child.facts);
}

void Supervisor::PublishStatus() {
  pid_t pid = 0;
  std::string reason;
  for (const auto& child : children_) {
    if (child->reported) {
      reason = absl::StrCat(child->key.ToString(), ": ", child->facts.unclean_reason);
    } else {
      pid = child->process.pid;
    }
  }
  absl::MutexLock lock(&mu_);
  running_pid_ = pid;
  unhealthy_reason_ = std::move(reason);
}

}  // namespace hearth::worker
