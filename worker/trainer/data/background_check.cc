#include "worker/trainer/data/background_check.h"

#include <utility>

namespace hearth::trainer {

BackgroundCheck::BackgroundCheck(FileVerifier verifier,
                                 std::vector<RecordedFile> files,
                                 Clock& clock)
    : verifier_(std::move(verifier)), files_(std::move(files)), clock_(clock) {
  thread_ = std::thread([this] {
    found_ = verifier_.Verify(files_, &stop_);
    absl::MutexLock lock(&mu_);
    done_.store(true, std::memory_order_release);
  });
}

BackgroundCheck::~BackgroundCheck() {
  stop_ = true;
  thread_.join();
}

absl::Status BackgroundCheck::Wait(absl::Duration timeout) {
  absl::MutexLock lock(&mu_);
  const auto over = [this] { return done(); };
  clock_.AwaitWithTimeout(mu_, absl::Condition(&over), timeout);
  return status();
}

}  // namespace hearth::trainer
