#include "coordinator/store/flusher.h"

#include <pthread.h>

#include <utility>

#include "common/base/status_macros.h"
#include "common/fault/fault.h"
#include "common/time/clock.h"

namespace hearth::coordinator {
namespace {

// Pause after a file, in times its duration.
constexpr double kRest = 4;

}  // namespace

Flusher::Flusher() {
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "hearth-flush");
    Run();
  });
}

Flusher::~Flusher() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  thread_.join();
}

void Flusher::Begin(std::vector<std::shared_ptr<SegmentLog>> logs) {
  absl::MutexLock lock(&mu_);
  HEARTH_CHECK(!busy_ && !result_.has_value(), "one pass at a time");
  logs_ = std::move(logs);
  busy_ = true;
}

std::optional<absl::Status> Flusher::TakeResult() {
  absl::MutexLock lock(&mu_);
  return std::exchange(result_, std::nullopt);
}

void Flusher::Wait() {
  absl::MutexLock lock(&mu_);
  waiting_ = true;
  mu_.Await(absl::Condition(this, &Flusher::Idle));
  waiting_ = false;
}

bool Flusher::Rest(absl::Duration pause) {
  absl::MutexLock lock(&mu_);
  Clock::Real().AwaitWithTimeout(mu_, absl::Condition(this, &Flusher::Hurried), pause);
  return !stopping_;
}

void Flusher::Run() {
  while (true) {
    std::vector<std::shared_ptr<SegmentLog>> logs;
    {
      absl::MutexLock lock(&mu_);
      mu_.Await(absl::Condition(this, &Flusher::HasWork));
      if (stopping_) {
        return;
      }
      logs.swap(logs_);
    }
    // Not under the lock: a sync takes as long as the disk likes, and the event loop calls Begin.
    absl::Status status = fault::Check("store.before_flush");
    for (const std::shared_ptr<SegmentLog>& log : logs) {
      const absl::Duration start = Clock::Real().Monotonic();
      if (!status.ok()) {
        break;
      }
      status = log->Sync();
      // Rests in proportion to what the sync took, so that commits get their share of the disk.
      if (!Rest(kRest * (Clock::Real().Monotonic() - start))) {
        return;
      }
    }
    absl::MutexLock lock(&mu_);
    if (stopping_) {
      return;
    }
    result_ = std::move(status);
    busy_ = false;
  }
}

}  // namespace hearth::coordinator
