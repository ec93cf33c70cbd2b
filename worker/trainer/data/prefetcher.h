// Reads the next micro-batches of one rank ahead of the step that needs them.
#pragma once

#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/spec/plan/batch.h"
#include "common/time/clock.h"
#include "worker/trainer/data/loader.h"

namespace hearth::trainer {

// One thread that stays two micro-batches ahead. All memory is taken in the constructor. Next() is
// called by one thread.
class Prefetcher {
 public:
  // `loader` outlives this and has the plan's sequence length. Begins with the rank's first
  // micro-batch of `first_step`.
  Prefetcher(const Loader& loader,
             const spec::BatchPlan& plan,
             int64_t rank,
             int64_t first_step,
             Clock& clock = Clock::Real());
  ~Prefetcher();  // joins

  // Copies the rank's next micro-batch to `out` ([micro_batch_size, T]; `source` if that is not
  // null); micro-batches come in step order, then micro-batch order. `global_micro_batch` is its m
  // within the step. After an error every later call returns it.
  absl::Status Next(const BatchBuffers& out, int64_t* step, int64_t* global_micro_batch);

  // The next micro-batch is again the rank's first one of `step`, also after an error. Called by
  // the thread that calls Next().
  void Rewind(int64_t step);

  // Seconds that Next() blocked since the last call of this.
  double TakeWaitSeconds();

 private:
  struct Slot {
    std::vector<int32_t> words;  // tokens, targets, position, start, source
    std::vector<float> loss_weight;
    int64_t step = 0;
    int64_t micro_batch = 0;
    absl::Status status;
  };
  static constexpr int kSlots = 2;

  void Run();
  void Stop();
  BatchBuffers Buffers(Slot& slot) const;
  bool SlotFree() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool SlotFull() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Loader& loader_;
  const spec::BatchPlan plan_;
  const int64_t rank_;
  int64_t first_step_;      // of the thread that runs
  const int64_t elements_;  // micro_batch_size * T
  Clock& clock_;

  absl::Mutex mu_;
  Slot slots_[kSlots];  // slot i mod kSlots is the thread's until produced_ passes i, then Next()'s
                        // until consumed_ does
  int64_t produced_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t consumed_ ABSL_GUARDED_BY(mu_) = 0;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  double wait_seconds_ = 0;
  std::thread thread_;
};

}  // namespace hearth::trainer
