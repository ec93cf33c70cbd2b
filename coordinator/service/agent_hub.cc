#include "coordinator/service/agent_hub.h"

#include <utility>

namespace hearth::coordinator {

void AgentHub::Add(uint64_t connection_id, std::shared_ptr<AgentLink> link) {
  absl::MutexLock lock(&mu_);
  links_[connection_id] = std::move(link);
}

void AgentHub::Remove(uint64_t connection_id) {
  absl::MutexLock lock(&mu_);
  links_.erase(connection_id);
}

std::shared_ptr<AgentLink> AgentHub::Find(uint64_t connection_id) const {
  absl::MutexLock lock(&mu_);
  const auto found = links_.find(connection_id);
  return found == links_.end() ? nullptr : found->second;
}

bool AgentHub::Send(uint64_t connection_id, v1::CoordinatorMessage message) {
  const std::shared_ptr<AgentLink> link = Find(connection_id);
  if (link == nullptr) {
    return false;
  }
  link->Send(std::move(message));
  return true;
}

void AgentHub::Close(uint64_t connection_id, const absl::Status& status) {
  if (const std::shared_ptr<AgentLink> link = Find(connection_id)) {
    link->Close(status);
  }
}

void AgentHub::CloseAll(const absl::Status& status) {
  std::map<uint64_t, std::shared_ptr<AgentLink>> links;
  {
    absl::MutexLock lock(&mu_);
    links = links_;
  }
  for (const auto& [connection_id, link] : links) {
    link->Close(status);
  }
}

size_t AgentHub::size() const {
  absl::MutexLock lock(&mu_);
  return links_.size();
}

}  // namespace hearth::coordinator
