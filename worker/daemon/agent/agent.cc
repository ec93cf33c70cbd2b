#include "worker/daemon/agent/agent.h"

#include <sys/prctl.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/fault/fault.h"
#include "common/log/log.h"
#include "common/rpc/grpc_status.h"

namespace hearth::worker {
namespace {

bool IsRefusal(const absl::Status& status) {
  return absl::IsUnauthenticated(status) || absl::IsPermissionDenied(status);
}

}  // namespace

Agent::Agent(Options options,
             TaskTable& table,
             Clock& clock,
             std::function<void()> tick,
             std::function<void(const absl::Status&)> on_fatal)
    : options_(std::move(options)),
      table_(table),
      clock_(clock),
      tick_(std::move(tick)),
      on_fatal_(std::move(on_fatal)),
      backoff_(options_.backoff),
      next_tick_(clock.Monotonic()),
      lost_at_(next_tick_),
      thread_([this] { Run(); }) {}

Agent::~Agent() {
  Stop();
}

void Agent::Stop() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  if (thread_.joinable()) {
    thread_.join();
  }
}

Agent::Counters Agent::counters() const {
  absl::MutexLock lock(&mu_);
  return counters_;
}

bool Agent::stopping() const {
  absl::MutexLock lock(&mu_);
  return stopping_;
}

void Agent::Run() {
  prctl(PR_SET_NAME, "agent");
  while (!stopping()) {
    const absl::Status status = RunSession();
    bool welcomed = false;
    {
      absl::MutexLock lock(&mu_);
      welcomed = std::exchange(counters_.connected, false);
      counters_.failed_attempts += welcomed ? 0 : 1;
      if (stopping_) {
        return;
      }
    }
    if (IsFatal(status, welcomed)) {
      return;
    }
    LogFailure(status, welcomed);
    if (welcomed && absl::IsInvalidArgument(status)) {
      // The coordinator refuses something we sent and will refuse it again, so do not hurry.
    } else if (welcomed) {
      lost_at_ = clock_.Monotonic();
      backoff_.Reset();  // the same one again first: it is most likely restarting
    } else if (!options_.coordinators.Advance()) {
      continue;
    }
    const bool eager = clock_.Monotonic() - lost_at_ < options_.eager;
    // A worker that was welcomed may have a newer token by now, and its job should not wait.
    const absl::Duration least =
        !welcomed && IsRefusal(status) ? options_.refused_pause : absl::ZeroDuration();
    WaitTicking(
        /*until_session_end=*/false,
        std::max(least,
                 std::min(backoff_.Next(), eager ? options_.eager_cap : absl::InfiniteDuration())));
  }
}

absl::Status Agent::RunSession() {
  HEARTH_FAULT_POINT("agent.before_connect");
  dialled_ = false;
  auto channel = rpc::Connect(options_.coordinators.current(), options_.tls, options_.use_tls);
  if (!channel.ok()) {
    return channel.status();
  }
  const absl::StatusOr<rpc::Credentials> credentials = FindCredentials();
  if (!credentials.ok()) {
    return credentials.status();
  }
  has_token_ = !credentials->token.empty();
  dialled_ = true;
  {
    absl::MutexLock lock(&mu_);
    session_ended_ = false;
  }
  const auto session = std::make_shared<StreamSession>(*channel, *credentials, table_, [this] {
    absl::MutexLock lock(&mu_);
    session_ended_ = true;
  });
  // A wake-up on another thread may still hold the session after it has ended.
  table_.SetWake([session] { session->Kick(); });
  session->Start();
  channel_ = *std::move(channel);
  const absl::Duration welcome_deadline = clock_.Monotonic() + options_.welcome_timeout;
  bool cancelled = false;
  while (!WaitTicking(/*until_session_end=*/true, absl::Milliseconds(100))) {
    if (stopping()) {
      session->Finish();
      if (!WaitTicking(/*until_session_end=*/true, options_.finish_timeout)) {
        session->Cancel(absl::CancelledError("the worker stops"));
        WaitTicking(/*until_session_end=*/true, absl::InfiniteDuration());
      }
      break;
    }
    if (table_.welcomed()) {
      NoteWelcome();
    } else if (!cancelled && clock_.Monotonic() >= welcome_deadline) {
      cancelled = true;
      session->Cancel(absl::DeadlineExceededError(
          absl::StrCat("no welcome within ", absl::FormatDuration(options_.welcome_timeout))));
    }
  }
  table_.SetWake(nullptr);
  if (table_.welcomed()) {
    NoteWelcome();  // the stream may have begun and ended between two checks
  }
  const absl::Status status = session->status();
  return status.ok() ? absl::UnavailableError("the coordinator closed the stream") : status;
}

absl::StatusOr<rpc::Credentials> Agent::FindCredentials() const {
  absl::StatusOr<std::string> token = rpc::FindToken(options_.coordinators.current(),
                                                     options_.token_file, rpc::LocalToken::kWorker);
  if (!token.ok()) {
    // Another code could be taken for the coordinator's own answer.
    return absl::FailedPreconditionError(absl::StrCat("token: ", token.status().message()));
  }
  return rpc::Credentials{.token = *std::move(token), .act_as = ""};
}

void Agent::NoteWelcome() {
  {
    absl::MutexLock lock(&mu_);
    if (counters_.connected) {
      return;
    }
    counters_.connected = true;
    ++counters_.connects;
  }
  last_logged_.clear();
  ever_welcomed_ = true;
  name_taken_since_ = absl::InfiniteDuration();
  HEARTH_LOG_INFO("connected to coordinator {}", options_.coordinators.current());
}

bool Agent::WaitTicking(bool until_session_end, absl::Duration timeout) {
  const absl::Duration deadline = clock_.Monotonic() + timeout;
  const auto done = [this, until_session_end] {
    mu_.AssertHeld();
    return until_session_end ? session_ended_ : stopping_;
  };
  while (true) {
    const absl::Duration now = clock_.Monotonic();
    if (now >= next_tick_) {
      tick_();
      next_tick_ = now + table_.heartbeat_interval();
    }
    absl::MutexLock lock(&mu_);
    const absl::Duration wait = std::min(deadline, next_tick_) - clock_.Monotonic();
    if (clock_.AwaitWithTimeout(mu_, absl::Condition(&done),
                                std::max(wait, absl::ZeroDuration()))) {
      return true;
    }
    if (clock_.Monotonic() >= deadline) {
      return false;
    }
  }
}

bool Agent::IsFatal(const absl::Status& status, bool welcomed) {
  if (welcomed) {
    return false;  // the answer to the next Hello decides
  }
  bool fatal = false;
  if (absl::IsAborted(status)) {
    // A coordinator that has been superseded cannot judge us.
    fatal = rpc::ErrorReason(status) != "STALE_GENERATION";
  } else if (absl::IsAlreadyExists(status)) {
    // A daemon that had the name keeps asking for it: the one that has it now may be a stranger
    // that will be refused. A daemon that never had it was started wrongly.
    name_taken_since_ = std::min(name_taken_since_, clock_.Monotonic());
    fatal = !ever_welcomed_ && clock_.Monotonic() - name_taken_since_ >= options_.name_taken_grace;
  } else if (absl::IsInvalidArgument(status)) {
    fatal = true;
  }
  if (fatal) {
    on_fatal_(status);
  }
  return fatal;
}

void Agent::LogFailure(const absl::Status& status, bool welcomed) {
  const bool unreachable = absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
  const bool no_token = absl::IsUnauthenticated(status) && !has_token_ && !welcomed;
  const std::string text = absl::StrCat(
      welcomed      ? "lost coordinator "
      : !dialled_   ? "cannot dial coordinator "
      : unreachable ? "no coordinator at "
                    : "refused by coordinator ",
      options_.coordinators.current(), ": ", rpc::Describe(status),
      no_token ? "; an admin makes this worker's token (jobctl token create NAME --role worker "
                 "--worker WORKER --output-file FILE), --token-file FILE names it"
               : "");
  if (text != last_logged_) {
    HEARTH_LOG_WARNING("{}", text);
    last_logged_ = text;
  }
}

}  // namespace hearth::worker
