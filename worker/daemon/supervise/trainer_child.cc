#include "worker/daemon/supervise/trainer_child.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/fault/fault.h"
#include "common/log/log.h"
#include "common/log/task_scope.h"

namespace hearth::worker {
namespace {

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

}  // namespace

TrainerChild::TrainerChild(const Options& options,
                           Clock& clock,
                           TrainerListener& listener,
                           std::string& buffer,
                           TaskKey key,
                           int64_t rank,
                           ChildProcess process,
                           std::optional<int64_t> device_baseline)
    : options_(options),
      clock_(clock),
      listener_(listener),
      buffer_(buffer),
      key_(std::move(key)),
      rank_(rank),
      process_(std::move(process)),
      heard_(clock.Monotonic()),
      device_baseline_(device_baseline) {}

void TrainerChild::Send(const v1::ToTrainer& message) {
  if (!process_.pipe.valid()) {
    return;
  }
  if (const absl::Status added = outbox_.Add(message); !added.ok()) {
    // The trainer would wait for it: what is not sent ends the task.
    facts_.protocol_error = std::string(added.message());
    KillNow();
    return;
  }
  Write();
  if (outbox_.waiting() > options_.outgoing_bytes_max) {
    facts_.protocol_error = "the trainer does not read its messages";
    KillNow();
  }
}

void TrainerChild::Kill(absl::Duration grace) {
  if (state_ == State::kKilled || state_ == State::kReaping) {
    return;
  }
  if (grace <= absl::ZeroDuration()) {
    KillNow();
    return;
  }
  // The whole group: a trainer may have children.
  kill(-process_.pid, SIGTERM);
  asked_to_end_ = true;
  state_ = State::kTerminating;
  // Another command may shorten the grace and never makes it longer.
  deadline_ = std::min(deadline_, clock_.Monotonic() + grace);
}

void TrainerChild::Look(absl::Duration stood_still) {
  heard_ += stood_still;
  CheckSilence();
  CheckDying();
}

std::array<pollfd, TrainerChild::kWatched> TrainerChild::Watched() const {
  // An invalid descriptor is -1, which poll() skips.
  const bool writing = outbox_.waiting() > 0;
  return {{{process_.pidfd.get(), POLLIN, 0},
           {process_.pipe.get(), static_cast<int16_t>(writing ? POLLIN | POLLOUT : POLLIN), 0},
           {process_.out.get(), POLLIN, 0},
           {process_.err.get(), POLLIN, 0}}};
}

absl::Duration TrainerChild::NextLook() const {
  absl::Duration wait = deadline_ - clock_.Monotonic();
  if (state_ == State::kRunning || state_ == State::kTerminating) {
    wait = std::min(wait, kSilencePoll);
  }
  if (state_ == State::kKilled && !reported_) {
    wait = std::min(wait, kDyingPoll);
  }
  if (state_ == State::kReaping || reported_) {
    const bool gone = gone_ != absl::InfiniteDuration();
    wait = std::min(wait, reported_ ? kStuckPoll : gone ? kDevicePoll : kReapPoll);
  }
  return wait;
}

void TrainerChild::Serve(absl::Span<const pollfd> ready) {
  // Messages and output come before the end: they were written before it.
  if (ready[1].revents & POLLOUT) {
    Write();
  }
  if (ready[1].revents & ~POLLOUT) {
    Read();
  }
  if (ready[2].revents != 0) {
    ReadOutput(process_.out, out_, "info");
  }
  if (ready[3].revents != 0) {
    ReadOutput(process_.err, err_, "warning");
  }
  if (ready[0].revents != 0) {
    LeaderEnded();
  }
}

void TrainerChild::KillNow() {
  HEARTH_FAULT_POINT("agent.before_kill");
  const absl::StatusOr<ProcessStat> stat = options_.read_stat(process_.pid);
  // Whether it was ending by itself already: then this signal is not why.
  facts_.before_kill = stat.ok() && LooksDying(*stat);
  KillAll(process_.pid);
  state_ = State::kKilled;
  death_.Dying(clock_.Monotonic());
  deadline_ = clock_.Monotonic() + options_.gone_bound;
}

void TrainerChild::CheckSilence() {
  // Once the pipe is closed the trainer is leaving, which has a deadline of its own.
  if ((state_ != State::kRunning && state_ != State::kTerminating) || !process_.pipe.valid()) {
    return;
  }
  const absl::Duration silent = clock_.Monotonic() - heard_;
  if (!WorthALook(options_.silence, silent)) {
    return;
  }
  const absl::StatusOr<ProcessStat> stat = options_.read_stat(process_.pid);
  facts_.hung = TooSilent(options_.silence, silent, spoke_, stat.ok() ? stat->state : '\0');
  if (facts_.hung.empty()) {
    return;
  }
  facts_.silent = silent;
  const log::TaskScope scope(key_.job_id, key_.epoch, rank_);
  HEARTH_LOG_WARNING("{}: {}, SIGKILL", key_.ToString(), facts_.hung);
  KillNow();
}

void TrainerChild::CheckDying() {
  if (reported_) {
    return;
  }
  const absl::Duration now = clock_.Monotonic();
  if (!leader_reaped_ && death_.LookIsDue(now)) {
    const absl::StatusOr<ProcessStat> stat = options_.read_stat(process_.pid);
    if (stat.ok() && LooksDying(*stat)) {
      death_.Dying(now);
    }
  }
  if (!death_.NoticeIsDue(now)) {
    return;
  }
  // Its last messages may still be in the pipe, perhaps also its TrainerExit. Read no more than a
  // pipe holds: a grandchild may keep writing.
  pollfd ready = {process_.pipe.get(), POLLIN, 0};
  for (int i = 0; i < kLastReads && process_.pipe.valid() && poll(&ready, 1, 0) > 0; ++i) {
    Read();
  }
  ExitFacts facts = facts_;
  bool known = leader_reaped_ || !facts.hung.empty() || !facts.protocol_error.empty();
  // Not reaped yet, but what it will have died of is known.
  if (!known && state_ == State::kKilled) {
    facts.wait_status = -SIGKILL;
    known = true;
  }
  if (!known) {
    const absl::StatusOr<ProcessStat> stat = options_.read_stat(process_.pid);
    const int code = stat.ok() ? stat->exit_code : 0;
    facts.wait_status = WIFEXITED(code) ? WEXITSTATUS(code) : -WTERMSIG(code);
    known = code != 0;
  }
  const log::TaskScope scope(key_.job_id, key_.epoch, rank_);
  HEARTH_LOG_INFO("{}: the trainer has been ending for {} ms", key_.ToString(),
                  absl::ToInt64Milliseconds(death_.For(now)));
  listener_.OnTrainerDying(key_, facts, known, death_.For(now));
}

void TrainerChild::Write() {
  if (process_.pipe.valid() && outbox_.waiting() > 0) {
    HEARTH_FAULT_POINT("agent.trainer_send");
    outbox_.SendTo(process_.pipe.get());
  }
}

void TrainerChild::Read() {
  if (!process_.pipe.valid()) {
    return;
  }
  HEARTH_FAULT_POINT("agent.trainer_receive");
  const ssize_t got = recv(process_.pipe.get(), buffer_.data(), buffer_.size(), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
    return;
  }
  if (got <= 0) {
    process_.pipe.Reset();
    // The trainer has closed its end and has pipe_grace to leave.
    if (state_ == State::kRunning) {
      state_ = State::kTerminating;
      deadline_ = clock_.Monotonic() + options_.pipe_grace;
    }
    return;
  }
  reader_.Append(std::string_view(buffer_.data(), static_cast<size_t>(got)));
  Deliver();
}

void TrainerChild::Deliver() {
  while (true) {
    v1::FromTrainer message;
    const absl::StatusOr<bool> next = reader_.Next(message);
    if (!next.ok()) {
      facts_.protocol_error = std::string(next.status().message());
      // What follows a broken frame cannot be read either: there is nowhere to begin again.
      process_.pipe.Reset();
      if (state_ == State::kRunning || state_ == State::kTerminating) {
        KillNow();
      }
      return;
    }
    if (!*next) {
      return;
    }
    heard_ = clock_.Monotonic();
    if (message.message_case() == v1::FromTrainer::MESSAGE_NOT_SET) {
      const log::TaskScope scope(key_.job_id, key_.epoch, rank_);
      HEARTH_LOG_WARNING("{}: a message of a kind not known here", key_.ToString());
    }
    spoke_ = true;
    if (message.has_alive()) {
      continue;
    }
    listener_.OnTrainerMessage(key_, std::move(message));
  }
}

void TrainerChild::ReadOutput(Fd& fd, LineSplitter& splitter, std::string_view level) {
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
    if (&fd == &process_.err) {
      facts_.last_words = line;
    }
    listener_.OnTrainerOutput(key_, level, std::move(line));
  }
}

void TrainerChild::LeaderEnded() {
  // The leader is a zombie until it is reaped, which keeps its group's number from being used
  // again: kill first.
  KillAll(process_.pid);
  int status = 0;
  if (waitpid(process_.pid, &status, WNOHANG) != process_.pid) {
    return;
  }
  process_.pidfd.Reset();
  leader_reaped_ = true;
  facts_.before_kill |= !asked_to_end_ && state_ != State::kKilled;
  death_.Dying(clock_.Monotonic());
  HEARTH_FAULT_POINT("agent.after_reap");
  facts_.wait_status = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
  if (!reported_) {
    state_ = State::kReaping;
    deadline_ = clock_.Monotonic() + options_.gone_bound;
  }
}

bool TrainerChild::ProcessesGone() {
  // Do not ask again once it was empty: the group's number may be reused.
  if (gone_ == absl::InfiniteDuration() && leader_reaped_ && GroupIsGone(process_.pid)) {
    gone_ = clock_.Monotonic();
  }
  return gone_ != absl::InfiniteDuration();
}

std::string TrainerChild::DeviceHeld() const {
  if (options_.device == nullptr) {
    return "";
  }
  return options_.device->Held(process_.pid, device_baseline_, gone_)
      .value_or("the device does not say whether it is free again");
}

bool TrainerChild::Advance() {
  const bool late = clock_.Monotonic() >= deadline_;
  switch (state_) {
    case State::kRunning:
      return false;
    case State::kTerminating:
      if (late) {
        const log::TaskScope scope(key_.job_id, key_.epoch, rank_);
        HEARTH_LOG_WARNING("{}: did not end in time, SIGKILL", key_.ToString());
        KillNow();
      }
      return false;
    case State::kKilled:
    case State::kReaping:
      break;
  }
  // "Clean" means that another trainer may use the device: no process of the group lives, and the
  // device has given its memory back. Without that proof the report waits until it is late.
  const bool gone = ProcessesGone();
  const std::string held = gone ? DeviceHeld() : "";
  if (gone && held.empty()) {
    Report();
    return true;
  }
  if (late && !reported_) {
    facts_.clean = false;
    facts_.unclean_reason = gone ? held
                                 : absl::StrCat("processes survive SIGKILL: ",
                                                absl::StrJoin(LiveMembers(process_.pid), ", "));
    if (!leader_reaped_) {
      facts_.wait_status = -SIGKILL;
    }
    Report();
  }
  // The report is out, but the child stays in the list until it is really gone: the worker is
  // unhealthy until then.
  if (reported_) {
    if (!gone) {
      KillAll(process_.pid);
    }
    deadline_ = clock_.Monotonic() + kStuckPoll;
  }
  return false;
}

void TrainerChild::Report() {
  if (reported_) {
    const log::TaskScope scope(key_.job_id, key_.epoch, rank_);
    HEARTH_LOG_INFO("{}: all its processes are gone at last", key_.ToString());
    return;
  }
  reported_ = true;
  // Everything in the pipes was written before the end; a descriptor that a survivor holds gives
  // EAGAIN, not end of file.
  const auto drain = [](Fd& fd, auto&& read_once) {
    pollfd ready = {fd.get(), POLLIN, 0};
    while (fd.valid() && poll(&ready, 1, 0) > 0) {
      read_once();
      ready.fd = fd.get();
    }
  };
  drain(process_.pipe, [&] { Read(); });
  drain(process_.out, [&] { ReadOutput(process_.out, out_, "info"); });
  drain(process_.err, [&] { ReadOutput(process_.err, err_, "warning"); });
  process_.pipe.Reset();
  process_.out.Reset();
  process_.err.Reset();
  const log::TaskScope scope(key_.job_id, key_.epoch, rank_);
  HEARTH_LOG_INFO("{}: trainer ended, status {}{}", key_.ToString(), facts_.wait_status,
                  facts_.clean ? "" : ", " + facts_.unclean_reason);
  listener_.OnTrainerExit(key_, facts_);
}

}  // namespace hearth::worker
