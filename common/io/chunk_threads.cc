#include "common/io/chunk_threads.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace hearth {
namespace {

class Round {
 public:
  Round(int64_t count, const std::function<absl::Status(int64_t)>& work)
      : count_(count), work_(work) {}

  void Run() {
    for (int64_t i = next_.fetch_add(1); i < count_; i = next_.fetch_add(1)) {
      absl::Status status = work_(i);
      if (!status.ok()) {
        // Nobody takes another one. Those under way finish, so that the first error in order is
        // known.
        next_ = count_;
        absl::MutexLock lock(&mu_);
        if (i < first_bad_) {
          first_bad_ = i;
          status_ = std::move(status);
        }
      }
    }
  }

  absl::Status status() {
    absl::MutexLock lock(&mu_);
    return status_;
  }

 private:
  const int64_t count_;
  const std::function<absl::Status(int64_t)>& work_;
  std::atomic<int64_t> next_{0};
  absl::Mutex mu_;
  int64_t first_bad_ ABSL_GUARDED_BY(mu_) = std::numeric_limits<int64_t>::max();
  absl::Status status_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

absl::Status ForEachChunk(int64_t count,
                          int threads,
                          const std::function<absl::Status(int64_t index)>& work) {
  Round round(count, work);
  std::vector<std::thread> helpers;
  for (int64_t i = 1; i < std::min<int64_t>(threads, count); ++i) {
    helpers.emplace_back([&round] { round.Run(); });
  }
  round.Run();
  for (std::thread& helper : helpers) {
    helper.join();
  }
  return round.status();
}

}  // namespace hearth
