// Work on a sequence of batches by several threads, with the same outcome for any number of them.
#pragma once

#include <cstddef>
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

// Each batch is read and then goes through the stages, one after the other. `threads` threads, the
// caller's among them, take whatever can be done next, of the latest stage first. At most threads +
// 2 batches are in memory; those that are done are filled again.
template <class Batch>
class OrderedBatches {
 public:
  struct Stage {
    // One batch at a time, in the order of reading; else several at a time, in any order.
    bool in_order = false;
    std::function<absl::Status(Batch&)> run;
  };
  struct Steps {
    // Fills a batch, which may hold what it held before; false: there is none left. One call at a
    // time.
    std::function<absl::StatusOr<bool>(Batch&)> read;
    std::vector<Stage> stages;  // the last one is in order
  };

  OrderedBatches(int threads, Steps steps)
      : threads_(threads), steps_(std::move(steps)), queues_(steps_.stages.size()) {}

  // Returns the error of the first batch that has one. Its stage, if in order, and later ones do
  // not run those behind it.
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
  struct Item {
    std::unique_ptr<Batch> batch;
    absl::Status status;
  };
  // What waits for a stage, by place in the order of reading.
  struct Queue {
    std::map<int64_t, Item> waiting;
    int64_t next = 0;   // of a stage in order: the batch whose turn it is
    bool busy = false;  // of a stage in order
  };

  void Loop() {
    const absl::MutexLock lock(&mu_);
    while (!ended_ || done_ < read_) {
      if (!RunStage() && !Read()) {
        ++sleeping_;
        changed_.Wait(&mu_);
        --sleeping_;
      }
    }
  }

  // Moves one batch through a stage. False: none can go on.
  bool RunStage() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    for (size_t s = queues_.size(); s-- > 0;) {
      Queue& queue = queues_[s];
      const bool in_order = steps_.stages[s].in_order;
      const auto it = queue.waiting.begin();
      if (it == queue.waiting.end() || (in_order && (queue.busy || it->first != queue.next))) {
        continue;
      }
      const int64_t place = it->first;
      Item item = std::move(it->second);
      queue.waiting.erase(it);
      queue.busy = in_order;
      // From the first error on batches go through without work.
      if (place < first_error_) {
        mu_.Unlock();
        item.status = steps_.stages[s].run(*item.batch);
        mu_.Lock();
      }
      queue.busy = false;
      queue.next = place + 1;
      Put(s + 1, place, std::move(item));
      return true;
    }
    return false;
  }

  // Reads a batch. False: none is left, or as many as may be are in memory.
  bool Read() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (ended_ || reading_ || read_ - done_ >= threads_ + 2) {
      return false;
    }
    reading_ = true;
    Item item;
    if (!spare_.empty()) {
      item.batch = std::move(spare_.back());
      spare_.pop_back();
    }
    mu_.Unlock();
    if (item.batch == nullptr) {
      item.batch = std::make_unique<Batch>();
    }
    const absl::StatusOr<bool> more = steps_.read(*item.batch);
    mu_.Lock();
    reading_ = false;
    if (more.ok() && !*more) {
      ended_ = true;
      Wake();
      return true;
    }
    item.status = more.status();
    Put(0, read_++, std::move(item));
    return true;
  }

  // Hands a batch to stage `s`; behind the last one it is done.
  void Put(size_t s, int64_t place, Item item) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (!item.status.ok() && place < first_error_) {
      first_error_ = place;
      status_ = item.status;
      ended_ = true;  // what is still to be read stands behind it
    }
    if (s < queues_.size()) {
      queues_[s].waiting.emplace(place, std::move(item));
    } else {
      ++done_;
      spare_.push_back(std::move(item.batch));
    }
    Wake();
  }

  void Wake() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (sleeping_ > 0) {
      changed_.SignalAll();
    }
  }

  const int threads_;
  const Steps steps_;
  absl::Mutex mu_;
  absl::CondVar changed_;
  std::vector<Queue> queues_ ABSL_GUARDED_BY(mu_);  // one of each stage
  int64_t read_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t done_ ABSL_GUARDED_BY(mu_) = 0;
  bool reading_ ABSL_GUARDED_BY(mu_) = false;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;  // of reading
  int sleeping_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<std::unique_ptr<Batch>> spare_ ABSL_GUARDED_BY(mu_);
  int64_t first_error_ ABSL_GUARDED_BY(mu_) = INT64_MAX;  // place
  absl::Status status_ ABSL_GUARDED_BY(mu_);              // its error
};

}  // namespace hearth::dataset
