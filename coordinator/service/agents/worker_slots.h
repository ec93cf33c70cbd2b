// How many calls of one kind run at once, in all and on one worker.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"

namespace hearth::coordinator {

// Thread-safe; outlives the slots.
class WorkerSlots {
 public:
  struct Limits {
    std::string what;  // runs, for people: "downloads"
    int open_max = 0;
    int per_worker = 0;
  };

  class Slot {
   public:
    Slot(WorkerSlots& slots, std::string worker_id)
        : slots_(slots), worker_id_(std::move(worker_id)) {}
    ~Slot() { slots_.GiveBack(worker_id_); }
    Slot(const Slot&) = delete;
    Slot& operator=(const Slot&) = delete;

   private:
    WorkerSlots& slots_;
    const std::string worker_id_;
  };

  explicit WorkerSlots(Limits limits) : limits_(std::move(limits)) {}

  // kResourceExhausted: as many run already.
  absl::StatusOr<std::unique_ptr<Slot>> Take(const std::string& worker_id) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void GiveBack(const std::string& worker_id) ABSL_LOCKS_EXCLUDED(mu_);

  const Limits limits_;
  absl::Mutex mu_;
  int open_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<std::string, int> of_worker_ ABSL_GUARDED_BY(mu_);
};

}  // namespace hearth::coordinator
