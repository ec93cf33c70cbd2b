// Work on a sequence of batches by several threads, with the same outcome for any number of them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"

namespace hearth::dataset {

// Each of `threads` threads, the caller's among them, in turn reads a batch, works on it, and
// commits what is next in the order of reading. At most threads + 1 batches are in memory.
template <class Batch>
class OrderedBatches {
 public:
  struct Steps {
    // Makes the next batch, null at the end. One call at a time.
    std::function<absl::StatusOr<std::unique_ptr<Batch>>()> read;
    std::function<absl::Status(Batch&)> work;  // several calls at a time
    // In the order of `read`. One call at a time.
    std::function<absl::Status(Batch&)> commit;
  };

  OrderedBatches(int threads, Steps steps) : threads_(threads), steps_(std::move(steps)) {}

  // Returns the error of the first batch that has one; those behind it are not committed.
  absl::Status Run() {
    std::vector<std::thread> others;
    for (int i = 1; i < threads_; ++i) {
      others.emplace_back([this] { Loop(); });
    }
    Loop();
    for (std::thread& thread : others) {
      thread.join();
    }
    const absl::MutexLock lock(&mu_);
    return status_;
  }

 private:
  struct Done {
    std::unique_ptr<Batch> batch;  // null: `status` is an error of `read`
    absl::Status status;
  };

  void Loop() {
    while (true) {
      int64_t index = 0;
      std::unique_ptr<Batch> batch;
      absl::Status status;
      {
        const absl::MutexLock read_lock(&read_mu_);
        if (!MayRead()) {
          return;
        }
        absl::StatusOr<std::unique_ptr<Batch>> next = steps_.read();
        const absl::MutexLock lock(&mu_);
        if (!next.ok() || *next == nullptr) {
          end_ = true;
          if (next.ok()) {
            return;
          }
        }
        index = read_++;
        status = next.status();
        batch = next.ok() ? *std::move(next) : nullptr;
      }
      if (status.ok()) {
        status = steps_.work(*batch);
      }
      Commit(index, {std::move(batch), std::move(status)});
    }
  }

  // Waits for room; false: there is nothing more to read.
  bool MayRead() ABSL_EXCLUSIVE_LOCKS_REQUIRED(read_mu_) {
    const absl::MutexLock lock(&mu_);
    const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return end_ || read_ - committed_ <= threads_;
    };
    mu_.Await(absl::Condition(&ready));
    return !end_;
  }

  // Commits all that is next in order, unless another thread is at it: that one goes on with this.
  void Commit(int64_t index, Done done) {
    const absl::MutexLock lock(&mu_);
    done_.emplace(index, std::move(done));
    if (committing_) {
      return;
    }
    committing_ = true;
    for (auto it = done_.find(committed_); it != done_.end(); it = done_.find(committed_)) {
      Done next = std::move(it->second);
      done_.erase(it);
      if (status_.ok() && next.status.ok()) {
        // Without the lock, so that others put down what they have done; this loop finds it then.
        mu_.Unlock();
        next.status = steps_.commit(*next.batch);
        next.batch.reset();
        mu_.Lock();
      }
      // Keeps the first error, which is the first in order, as batches come here in order.
      status_.Update(next.status);
      end_ = end_ || !status_.ok();
      ++committed_;
    }
    committing_ = false;
  }

  const int threads_;
  const Steps steps_;
  absl::Mutex read_mu_ ABSL_ACQUIRED_BEFORE(mu_);
  absl::Mutex mu_;
  int64_t read_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t committed_ ABSL_GUARDED_BY(mu_) = 0;  // batches before this one
  bool committing_ ABSL_GUARDED_BY(mu_) = false;
  bool end_ ABSL_GUARDED_BY(mu_) = false;
  std::map<int64_t, Done> done_ ABSL_GUARDED_BY(mu_);  // not committed, by their place
  absl::Status status_ ABSL_GUARDED_BY(mu_);
};

}  // namespace hearth::dataset
