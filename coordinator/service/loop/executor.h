// A few threads that read files for streams and judge plans, so that neither the event loop nor
// gRPC's threads do.
#pragma once

#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace hearth::coordinator {

// Thread-safe. A stream has at most one task here at a time, and plans are few (plan_service.cc):
// the queue is bounded by the number of streams.
class Executor {
 public:
  explicit Executor(int threads);
  ~Executor();

  // False after Stop: the task is dropped.
  bool Submit(std::function<void()> task) ABSL_LOCKS_EXCLUDED(mu_);
  // Runs what is queued and joins the threads.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mu_);
  bool Ready() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return stopping_ || !tasks_.empty(); }

  absl::Mutex mu_;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace hearth::coordinator
