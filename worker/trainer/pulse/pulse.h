// What a rank's step thread is doing, told without locks so that another thread can see when it
// stops doing it.
//
// One thread writes (the step thread), any may read. Writing costs a few relaxed stores and
// allocates nothing.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/time/time.h"

namespace hearth::trainer {

// What progress is expected of; HangWatch has a row for each.
enum class Activity : uint8_t {
  kOther,       // loading, meeting, saving: others watch over these, or nobody can
  kPreparing,   // up to the first step, or a step of a kind that has not run before
  kStep,        // computing a step
  kData,        // waiting for the next micro-batch
  kEvaluation,  // a micro-batch of the held-out data
  kPeers,       // in a collective, or waiting for a GPU that may be in one
};

class Pulse {
 public:
  struct Reading {
    Activity activity = Activity::kOther;
    const char* what = "";   // names it for people
    int64_t step = 0;        // last one that is done
    uint64_t marks = 0;      // grows with every sign of progress
    absl::Duration learned;  // time of a step, of those lately: 9 of 10 took less; 0 = none is done
  };

  // `what` is a string literal.
  void Begin(Activity activity, const char* what);
  // An attempt at a step is over and took this long; `step` is the last one that is done.
  void StepDone(int64_t step, absl::Duration took);
  // What follows has nothing to do with the steps before it; the last one that is done is `step`.
  void Restart(int64_t step);

  // How long the step thread was held up in collectives; only that thread uses it.
  void Waited(absl::Duration time) { waited_ += time; }
  // All since the call before.
  absl::Duration TakeWaited() { return std::exchange(waited_, absl::ZeroDuration()); }

  // Another activity for a while; its end is progress of the one before.
  class Scope {
   public:
    Scope(Pulse& pulse, Activity activity, const char* what)
        : pulse_(pulse), before_(pulse.activity()), before_what_(pulse.what()) {
      pulse_.Begin(activity, what);
    }
    ~Scope() { pulse_.Begin(before_, before_what_); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Pulse& pulse_;
    const Activity before_;
    const char* const before_what_;
  };

  // Fields written at about the same moment may be from before and after it; `marks` then differs
  // from that of the next reading.
  Reading Read() const;

 private:
  static constexpr size_t kSteps = 32;

  Activity activity() const { return activity_.load(std::memory_order_relaxed); }
  const char* what() const { return what_.load(std::memory_order_relaxed); }

  std::atomic<Activity> activity_{Activity::kOther};
  std::atomic<const char*> what_{"starts"};
  std::atomic<int64_t> step_{0};
  std::atomic<uint64_t> marks_{0};
  std::array<std::atomic<int64_t>, kSteps> took_ns_{};  // the newest ones; 0 = none
  absl::Duration waited_;                               // only the writer's, as attempts_
  size_t attempts_ = 0;                                 // since Restart; only the writer's
};

}  // namespace hearth::trainer
