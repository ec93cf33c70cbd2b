#include "worker/daemon/supervise/epoch_memory.h"

#include <algorithm>

namespace hearth::worker {

std::optional<int64_t> EpochMemory::Newest(const std::string& job_id) const {
  const auto known = newest_.find(job_id);
  return known == newest_.end() ? std::nullopt : std::optional<int64_t>(known->second);
}

void EpochMemory::Remember(const TaskKey& key) {
  const auto [it, inserted] = newest_.try_emplace(key.job_id, key.epoch);
  it->second = std::max(it->second, key.epoch);
  if (inserted) {
    order_.push_back(key.job_id);
  }
  if (order_.size() > kMaxJobs) {
    newest_.erase(order_.front());
    order_.pop_front();
  }
}

void EpochMemory::Forget(const TaskKey& key) {
  const auto known = newest_.find(key.job_id);
  if (known == newest_.end() || known->second > key.epoch) {
    return;
  }
  newest_.erase(known);
  std::erase(order_, key.job_id);
}

}  // namespace hearth::worker
