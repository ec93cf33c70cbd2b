#include "worker/daemon/supervise/sampling.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clip_text.h"
#include "common/base/status_macros.h"
#include "common/log/log.h"

namespace hearth::worker {
namespace {

// As in agent.proto.
constexpr size_t kMaxPieceBytes = 64 << 10;
constexpr size_t kMaxErrorBytes = 1024;
constexpr int kReapPollMs = 5;
constexpr int kDevicePollMs = 20;

void SleepMs(int ms) {
  poll(nullptr, 0, ms);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Sampling>> Sampling::Create(const Options& options,
                                                           const CheckpointRoot& root,
                                                           Clock& clock,
                                                           TextListener& listener) {
  std::unique_ptr<Sampling> sampling(new Sampling(options, root, clock, listener));
  sampling->wake_ = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!sampling->wake_.valid()) {
    return absl::ErrnoToStatus(errno, "eventfd");
  }
  sampling->thread_ = std::thread([self = sampling.get()] { self->Run(); });
  return sampling;
}

Sampling::~Sampling() {
  if (!thread_.joinable()) {
    return;
  }
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  Sampling::Stop("");
  thread_.join();
}

void Sampling::Write(const v1::WriteText& request) {
  absl::MutexLock lock(&mu_);
  next_ = request;
  stop_.reset();
}

void Sampling::Stop(const std::string& why) {
  {
    absl::MutexLock lock(&mu_);
    stop_ = why;
  }
  const uint64_t one = 1;
  static_cast<void>(!write(wake_.get(), &one, sizeof(one)));
}

std::optional<v1::WriteText> Sampling::Await() {
  const auto ready = [this] {
    mu_.AssertHeld();
    return stopping_ || next_.has_value();
  };
  absl::MutexLock lock(&mu_);
  mu_.Await(absl::Condition(&ready));
  return stopping_ ? std::nullopt : std::exchange(next_, std::nullopt);
}

void Sampling::Run() {
  prctl(PR_SET_NAME, "sampling");
  while (const std::optional<v1::WriteText> request = Await()) {
    Serve(*request);
    listener_.OnTextOver();
  }
}

void Sampling::Serve(const v1::WriteText& request) {
  Text text;
  text.id = request.request_id();
  text.heard = clock_.Monotonic();
  text.error = Begin(request, text);
  text.over = !text.error.ok();
  while (!text.over) {
    PollOnce(text);
  }
  // The process goes first: whoever hears that the text is over finds the device free.
  EndProcess(text);
  // The last answer waits for room: without it the coordinator would wait for nothing.
  while (!text.quiet && !Send(text)) {
    SleepMs(kDevicePollMs);
    TakeStop(text);
  }
}

absl::Status Sampling::Begin(const v1::WriteText& request, Text& text) {
  // Only a checkpoint of that job below the root, reached through no link.
  const absl::Status folder =
      root_.Read(request.job_id(), request.path(), "config.json", 0, 1).status();
  HEARTH_RETURN_IF_ERROR(folder);
  HEARTH_RETURN_IF_ERROR(text.outbox.Add(request));
  text.baseline = options_.device == nullptr ? std::nullopt : options_.device->Baseline();
  absl::StatusOr<ChildProcess> process = Spawn(options_.program);
  if (!process.ok()) {
    return absl::FailedPreconditionError(process.status().message());
  }
  text.process = *std::move(process);
  HEARTH_LOG_INFO("{}: writing a text with {}", request.job_id(), request.path());
  return absl::OkStatus();
}

void Sampling::TakeStop(Text& text) {
  uint64_t count = 0;
  static_cast<void>(!read(wake_.get(), &count, sizeof(count)));
  absl::MutexLock lock(&mu_);
  if (!stop_.has_value()) {
    return;
  }
  const std::string why = *std::exchange(stop_, std::nullopt);
  text.quiet = text.quiet || why.empty();
  if (!text.over) {
    text.over = true;
    text.error = absl::UnavailableError(why);
  }
}

void Sampling::PollOnce(Text& text) {
  const absl::Duration now = clock_.Monotonic();
  if (now - text.heard >= options_.silence) {
    text.over = true;
    text.error = absl::UnavailableError(absl::StrCat(
        "the model's process gave no sign of life for ", absl::FormatDuration(options_.silence)));
    return;
  }
  const bool writing = text.outbox.waiting() > 0;
  pollfd fds[] = {
      {wake_.get(), POLLIN, 0},
      {text.process.pipe.get(), static_cast<int16_t>(writing ? POLLIN | POLLOUT : POLLIN), 0},
      {text.process.err.get(), POLLIN, 0},
      {text.process.out.get(), POLLIN, 0}};
  const absl::Duration wait = text.pending.empty() ? options_.alive_period : options_.piece_period;
  poll(fds, std::size(fds), static_cast<int>(absl::ToInt64Milliseconds(wait)));
  TakeStop(text);
  if ((fds[1].revents & POLLOUT) != 0) {
    text.outbox.SendTo(text.process.pipe.get());
  }
  if (fds[2].revents != 0) {
    ReadErrors(text);
  }
  if (fds[3].revents != 0) {
    // No part of the text; it is read so that the process does not block on it.
    char dropped[4096];
    if (read(text.process.out.get(), dropped, sizeof(dropped)) == 0) {
      text.process.out.Reset();
    }
  }
  if ((fds[1].revents & ~POLLOUT) != 0) {
    ReadPipe(text);
  }
  if (!text.over) {
    Send(text);
  }
}

void Sampling::ReadErrors(Text& text) {
  char buffer[4096];
  const ssize_t got = read(text.process.err.get(), buffer, sizeof(buffer));
  if (got == 0) {
    text.process.err.Reset();
    return;
  }
  for (std::string& line :
       text.errors.Append({buffer, static_cast<size_t>(std::max<ssize_t>(got, 0))})) {
    text.last_words = std::move(line);
  }
}

void Sampling::ReadPipe(Text& text) {
  char buffer[16 << 10];
  const ssize_t got = recv(text.process.pipe.get(), buffer, sizeof(buffer), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
    return;
  }
  if (got > 0) {
    text.reader.Append({buffer, static_cast<size_t>(got)});
    return Deliver(text);
  }
  if (!text.over) {
    text.over = true;
    ReadErrors(text);
    text.error = absl::FailedPreconditionError(
        absl::StrCat("the model's process ended",
                     text.last_words.empty() ? "" : absl::StrCat(": ", text.last_words)));
  }
}

void Sampling::Deliver(Text& text) {
  v1::WrittenText piece;
  while (!text.over) {
    const absl::StatusOr<bool> next = text.reader.Next(piece);
    if (!next.ok()) {
      text.over = true;
      text.error = next.status();
    }
    if (!next.ok() || !*next) {
      return;
    }
    text.heard = clock_.Monotonic();
    text.pending += SanitizeUtf8(piece.text());
    if (piece.code() != 0) {
      text.error = absl::Status(static_cast<absl::StatusCode>(piece.code()), piece.error());
    }
    text.end = piece.end();
    text.over = piece.code() != 0 || piece.end() != v1::TEXT_END_UNSPECIFIED;
  }
}

bool Sampling::Send(Text& text) {
  const absl::Duration now = clock_.Monotonic();
  const absl::Duration period =
      text.pending.empty() ? options_.alive_period : options_.piece_period;
  if (!text.over && now - text.sent < period) {
    return true;
  }
  while (true) {
    const std::string_view piece = ClipBytes(text.pending, kMaxPieceBytes);
    const bool last = text.over && piece.size() == text.pending.size();
    v1::AgentMessage message;
    v1::WrittenText& written = *message.mutable_written();
    written.set_request_id(text.id);
    written.set_text(std::string(piece));
    if (last && !text.error.ok()) {
      written.set_code(static_cast<int32_t>(text.error.code()));
      written.set_error(ClipText(std::string(text.error.message()), kMaxErrorBytes));
    } else if (last) {
      written.set_end(text.end);
    }
    if (!listener_.OnText(std::move(message))) {
      return false;
    }
    text.sent = now;
    text.pending.erase(0, piece.size());
    if (last || (!text.over && text.pending.empty())) {
      return true;
    }
  }
}

void Sampling::EndProcess(Text& text) {
  if (text.process.pid < 0) {
    return;
  }
  const absl::Duration deadline = clock_.Monotonic() + options_.gone_bound;
  // A zombie until it is reaped, which keeps its group's number from being used again.
  KillAll(text.process.pid);
  while (waitpid(text.process.pid, nullptr, WNOHANG) == 0 && clock_.Monotonic() < deadline) {
    SleepMs(kReapPollMs);
  }
  while (!GroupIsGone(text.process.pid) && clock_.Monotonic() < deadline) {
    KillAll(text.process.pid);
    SleepMs(kReapPollMs);
  }
  const absl::Duration gone = clock_.Monotonic();
  while (options_.device != nullptr && clock_.Monotonic() < deadline &&
         options_.device->Held(text.process.pid, text.baseline, gone) != "") {
    SleepMs(kDevicePollMs);
  }
  if (clock_.Monotonic() >= deadline) {
    HEARTH_LOG_WARNING("the process of a text did not leave the device within {}",
                       absl::FormatDuration(options_.gone_bound));
  }
}

}  // namespace hearth::worker
