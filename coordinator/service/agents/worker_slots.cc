#include "coordinator/service/agents/worker_slots.h"

#include "absl/strings/str_cat.h"

namespace hearth::coordinator {

absl::StatusOr<std::unique_ptr<WorkerSlots::Slot>> WorkerSlots::Take(const std::string& worker_id) {
  absl::MutexLock lock(&mu_);
  const auto found = of_worker_.find(worker_id);
  const int of_worker = found == of_worker_.end() ? 0 : found->second;
  const bool all = open_ >= limits_.open_max;
  if (all || of_worker >= limits_.per_worker) {
    return absl::ResourceExhaustedError(
        absl::StrCat(limits_.what, ": ", all ? limits_.open_max : limits_.per_worker, " run",
                     all ? "" : absl::StrCat(" from worker ", worker_id),
                     ", which is the limit; try again later"));
  }
  ++open_;
  ++of_worker_[worker_id];
  return std::make_unique<Slot>(*this, worker_id);
}

void WorkerSlots::GiveBack(const std::string& worker_id) {
  absl::MutexLock lock(&mu_);
  --open_;
  const auto of_worker = of_worker_.find(worker_id);
  if (--of_worker->second == 0) {
    of_worker_.erase(of_worker);
  }
}

}  // namespace hearth::coordinator
