#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/base/status_macros.h"
#include "common/base/system.h"
#include "common/fault/fault.h"
#include "common/io/message_frame.h"
#include "worker/trainer/exit_codes.h"
#include "worker/trainer/link/link.h"
#include "worker/trainer/link/proto_time.h"

namespace hearth::trainer {
namespace {

constexpr int64_t kQueue = 1024;
constexpr absl::Duration kExitFlush = absl::Seconds(30);
constexpr absl::Duration kAlivePeriod = absl::Seconds(1);

// Both ends may be non-blocking: the agent's is, and flags can be shared.
bool WaitReady(int fd, decltype(pollfd::events) events) {
  pollfd p = {fd, events, 0};
  int n;
  do {
    n = poll(&p, 1, -1);
  } while (n < 0 && errno == EINTR);
  return n > 0;
}

// Waits for bytes and appends them to `frames`.
absl::Status ReadSome(int fd, FrameReader& frames) {
  std::array<char, 1 << 16> buffer;
  for (;;) {
    const ssize_t got = recv(fd, buffer.data(), buffer.size(), 0);
    if (got > 0) {
      frames.Append(std::string_view(buffer.data(), static_cast<size_t>(got)));
      return absl::OkStatus();
    }
    if (got == 0) {
      return absl::UnavailableError("the agent closed the pipe");
    }
    if (errno == EAGAIN) {
      if (!WaitReady(fd, POLLIN)) {
        return absl::UnavailableError("poll failed");
      }
    } else if (errno != EINTR) {
      return absl::UnavailableError(absl::StrCat("reading from the agent: ", ErrnoText(errno)));
    }
  }
}

bool WriteFull(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t put = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (put > 0) {
      bytes.remove_prefix(static_cast<size_t>(put));
    } else if (errno == EAGAIN) {
      if (!WaitReady(fd, POLLOUT)) {
        return false;
      }
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

[[noreturn]] void Leave() {
  // Without destructors: other threads may hold locks, or wait for the GPU or for peers.
  _exit(ExitCodeOf(v1::EXIT_REASON_ABORTED).code);
}

class AgentLink : public Link {
 public:
  AgentLink(AgentLinkOptions options, Clock& clock)
      : options_(std::move(options)), clock_(clock), ring_(kQueue) {
    if (!options_.on_gone) {
      options_.on_gone = [] { Leave(); };
    }
    if (!options_.on_abort) {
      options_.on_abort = [](std::string_view) { Leave(); };
    }
    reader_ = std::thread([this] { Read(); });
    writer_ = std::thread([this] { Write(); });
    ticker_ = std::thread([this] { Tick(); });
  }

  ~AgentLink() override {
    {
      absl::MutexLock lock(&mu_);
      stop_ = true;
    }
    ticker_.join();
    writer_.join();  // after what is queued
    // Wakes the reader, which would wait for bytes that never come.
    shutdown(options_.fd, SHUT_RDWR);
    reader_.join();
    close(options_.fd);
  }

  absl::Status WaitForTask() {
    absl::MutexLock lock(&mu_);
    const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return has_task_ || gone_; };
    if (!clock_.AwaitWithTimeout(mu_, absl::Condition(&ready), options_.task_timeout)) {
      return absl::DeadlineExceededError(absl::StrCat("no task from the agent within ",
                                                      absl::FormatDuration(options_.task_timeout)));
    }
    return has_task_ ? absl::OkStatus() : read_error_;
  }

  const v1::Task& task() const override { return task_; }
  uint64_t TakeControl() override { return control_.exchange(0); }

  void SendRunInfo(const v1::RunInfo& info) override {
    v1::FromTrainer message;
    *message.mutable_run_info() = info;
    Send(message);
  }
  void SendTrial(const v1::PrecisionTrial& trial) override {
    v1::FromTrainer message;
    *message.mutable_trial() = trial;
    Send(message);
  }
  void SendStep(const v1::StepReport& report) override {
    v1::FromTrainer message;
    *message.mutable_step() = report;
    message.mutable_step()->clear_tensors();  // as many as the model has matrices
    Send(message);
  }
  void SendCheckpoint(const v1::CheckpointAnnouncement& checkpoint) override {
    v1::FromTrainer message;
    *message.mutable_checkpoint() = checkpoint;
    Send(message);
  }
  void SendProgress(int64_t step, double compute_seconds) override {
    v1::FromTrainer message;
    message.mutable_progress()->set_step(step);
    message.mutable_progress()->set_compute_seconds(compute_seconds);
    Send(message);
  }
  void SendPhase(std::string_view phase) override {
    v1::FromTrainer message;
    message.mutable_phase()->set_name(std::string(phase));
    Send(message);
  }
  void SendLog(std::string_view level, std::string_view text) override {
    v1::FromTrainer message;
    FillLog(level, text, *message.mutable_log());
    Send(message);
  }
  void SendExit(const v1::TrainerExit& exit) override {
    v1::FromTrainer message;
    *message.mutable_exit() = exit;
    if (!exit.has_time()) {
      *message.mutable_exit()->mutable_time() = ToProto(clock_.Now());
    }
    Send(message);
    absl::MutexLock lock(&mu_);
    // The process ends behind this call, so the pipe must have all of it.
    const auto flushed = [this]()
                             ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return head_ == tail_ || gone_; };
    clock_.AwaitWithTimeout(mu_, absl::Condition(&flushed), kExitFlush);
  }

  absl::Status Put(std::string_view key, std::string_view value) override {
    {
      absl::MutexLock lock(&mu_);
      // A put is not answered: the next call tells that an earlier one was refused.
      if (!refused_.empty()) {
        return absl::ResourceExhaustedError(
            absl::StrCat("key ", refused_.begin()->first, ": ", refused_.begin()->second));
      }
    }
    v1::FromTrainer message;
    message.mutable_kv_put()->set_key(std::string(key));
    message.mutable_kv_put()->set_value(std::string(value));
    Send(message);
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> Wait(std::string_view key, absl::Duration timeout) override {
    const std::string name(key);
    {
      absl::MutexLock lock(&mu_);
      // Values stay, so that only the first wait for a key costs a message.
      const auto it = values_.find(name);
      if (it != values_.end()) {
        return it->second;
      }
    }
    v1::FromTrainer message;
    message.mutable_kv_wait()->set_key(name);
    Send(message);
    absl::MutexLock lock(&mu_);
    const auto there = [this, &name]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return gone_ || values_.count(name) > 0 || refused_.count(name) > 0;
    };
    if (!clock_.AwaitWithTimeout(mu_, absl::Condition(&there), timeout)) {
      return absl::DeadlineExceededError(
          absl::StrCat("key ", name, " did not appear within ", absl::FormatDuration(timeout)));
    }
    const auto it = values_.find(name);
    if (const auto refused = refused_.find(name);
        it == values_.end() && refused != refused_.end()) {
      return absl::ResourceExhaustedError(absl::StrCat("key ", name, ": ", refused->second));
    }
    if (it == values_.end()) {
      return absl::UnavailableError("the agent is gone");
    }
    return it->second;
  }

 private:
  void FillLog(std::string_view level, std::string_view text, v1::LogLine& line) const {
    *line.mutable_time() = ToProto(clock_.Now());
    line.set_epoch(task_.epoch());
    line.set_rank(task_.rank());
    line.set_level(std::string(level));
    line.set_text(std::string(text));
  }

  // Says each second that the process runs. A thread of its own: the others may wait for a step or
  // for the agent.
  void Tick() {
    v1::FromTrainer message;
    message.mutable_alive();
    absl::MutexLock lock(&mu_);
    const auto over = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return stop_ || gone_; };
    do {
      if (tail_ - head_ < kQueue) {
        Queue(message);  // else the agent does not read
      }
    } while (!clock_.AwaitWithTimeout(mu_, absl::Condition(&over), kAlivePeriod));
  }

  void Send(const v1::FromTrainer& message) {
    absl::MutexLock lock(&mu_);
    const auto space = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return gone_ || tail_ - head_ < kQueue;
    };
    // A full ring holds the sender up: reports are not dropped. Heartbeats are (Tick).
    mu_.Await(absl::Condition(&space));
    if (!gone_) {
      Queue(message);
    }
  }

  // Into the next slot of the ring, whose string keeps its memory; there must be a free one. What
  // is too long for the pipe is replaced by a line of the log that says so.
  void Queue(const v1::FromTrainer& message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    std::string& frame = ring_[static_cast<size_t>(tail_ % kQueue)];
    frame.clear();
    if (const absl::Status added = AppendFrame(message, frame); !added.ok()) {
      v1::FromTrainer instead;
      FillLog("error",
              absl::StrCat(
                  v1::FromTrainer::descriptor()->FindFieldByNumber(message.message_case())->name(),
                  " was not sent to the worker: ", added.message()),
              *instead.mutable_log());
      HEARTH_CHECK(AppendFrame(instead, frame).ok(), "a line is shorter than a frame");
    }
    ++tail_;
  }

  void Write() {
    for (;;) {
      const std::string* frame = nullptr;
      {
        absl::MutexLock lock(&mu_);
        const auto work = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
          return stop_ || gone_ || head_ < tail_;
        };
        mu_.Await(absl::Condition(&work));
        if (gone_ || head_ == tail_) {
          return;
        }
        frame =
            &ring_[static_cast<size_t>(head_ % kQueue)];  // Send leaves it alone until head_ moves
      }
      // Without the lock, as it may wait for the agent.
      const absl::Status fault = fault::Check("trainer.send");
      if (!fault.ok()) {
        std::fprintf(stderr, "hearth-trainer: %s\n", std::string(fault.message()).c_str());
      }
      const bool written = fault.ok() && WriteFull(options_.fd, *frame);
      absl::MutexLock lock(&mu_);
      ++head_;
      if (!written) {
        gone_ = true;  // the reader meets the end of the pipe and calls on_gone
      }
    }
  }

  absl::Status ReadMessage(v1::ToTrainer& message) {
    for (;;) {
      HEARTH_ASSIGN_OR_RETURN(const bool whole, frames_.Next(message));
      if (whole) {
        return fault::Check("trainer.receive");
      }
      HEARTH_RETURN_IF_ERROR(ReadSome(options_.fd, frames_));
    }
  }

  void Read() {
    v1::ToTrainer message;
    for (;;) {
      const absl::Status status = ReadMessage(message);
      if (!status.ok()) {
        return ReadFailed(status);
      }
      switch (message.message_case()) {
        case v1::ToTrainer::kTask: {
          absl::MutexLock lock(&mu_);
          if (!has_task_) {
            task_ = std::move(*message.mutable_task());
          }
          has_task_ = true;
          break;
        }
        case v1::ToTrainer::kControl:
          // Bits gather until the next step takes them all at once.
          control_.fetch_or(uint64_t{1} << (message.control().bit() & 63));
          break;
        case v1::ToTrainer::kKvValue: {
          absl::MutexLock lock(&mu_);
          const v1::KvValue& value = message.kv_value();
          (value.error().empty() ? values_ : refused_)[value.key()] =
              value.error().empty() ? value.value() : value.error();
          break;
        }
        case v1::ToTrainer::kAbort:
          options_.on_abort(message.abort().reason());
          break;
        case v1::ToTrainer::MESSAGE_NOT_SET:
          // A newer agent sent it. Standard error is part of the job's log, and waits for nobody.
          std::fprintf(stderr,
                       "hearth-trainer: the worker sent a message of a kind not known here\n");
          break;
      }
    }
  }

  void ReadFailed(const absl::Status& status) {
    bool call = false;
    {
      absl::MutexLock lock(&mu_);
      gone_ = true;
      read_error_ = status;
      call = has_task_ && !stop_;  // before the task, WaitForTask reports it
    }
    if (call) {
      options_.on_gone();
    }
  }

  AgentLinkOptions options_;
  Clock& clock_;
  std::atomic<uint64_t> control_{0};
  FrameReader frames_;  // of the reader's thread

  absl::Mutex mu_;
  v1::Task task_;  // written once, before has_task_
  bool has_task_ ABSL_GUARDED_BY(mu_) = false;
  bool gone_ ABSL_GUARDED_BY(mu_) = false;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status read_error_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, std::string> values_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, std::string> refused_ ABSL_GUARDED_BY(mu_);  // key -> why
  std::vector<std::string> ring_;                                    // frames [head_, tail_)
  int64_t head_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t tail_ ABSL_GUARDED_BY(mu_) = 0;
  std::thread reader_;
  std::thread writer_;
  std::thread ticker_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Link>> NewAgentLink(AgentLinkOptions options, Clock& clock) {
  if (options.fd < 0) {
    return absl::InvalidArgumentError("no descriptor to the agent");
  }
  auto link = std::make_unique<AgentLink>(std::move(options), clock);
  HEARTH_RETURN_IF_ERROR(link->WaitForTask());
  return std::unique_ptr<Link>(std::move(link));
}

}  // namespace hearth::trainer
