#include "coordinator/service/agents/agent_hub.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/rpc/grpc_status.h"

namespace hearth::coordinator {
namespace {

// Removes a stream, which may be gone already, and gives its place back to its peer.
template <typename Streams, typename Counts>
void Forget(uint64_t connection_id, Streams& streams, Counts& of_peer) {
  const auto found = streams.find(connection_id);
  if (found == streams.end()) {
    return;
  }
  of_peer.GiveBack(found->second.peer);
  streams.erase(found);
}

absl::Status TooMany(const std::string& message) {
  return rpc::MakeError(absl::StatusCode::kResourceExhausted, message, "TOO_MANY_STREAMS");
}

}  // namespace

bool AgentHub::PeerCounts::Take(const std::string& peer, int most) {
  int& count = counts_[peer];
  if (count >= most) {
    return false;
  }
  ++count;
  return true;
}

void AgentHub::PeerCounts::GiveBack(const std::string& peer) {
  const auto count = counts_.find(peer);
  if (--count->second == 0) {
    counts_.erase(count);
  }
}

absl::Status AgentHub::Add(uint64_t connection_id,
                           const std::string& peer,
                           std::shared_ptr<AgentLink> link) {
  absl::MutexLock lock(&mu_);
  if (!closed_.ok()) {
    return closed_;
  }
  if (!greeted_of_peer_.Take(peer, kStreamsPerPeer)) {
    return TooMany(absl::StrCat(kStreamsPerPeer, " workers of this address are connected"));
  }
  links_[connection_id] = Greeted{peer, std::move(link)};
  return absl::OkStatus();
}

void AgentHub::Remove(uint64_t connection_id) {
  absl::MutexLock lock(&mu_);
  Forget(connection_id, links_, greeted_of_peer_);
}

std::shared_ptr<AgentLink> AgentHub::Find(uint64_t connection_id) const {
  absl::MutexLock lock(&mu_);
  const auto found = links_.find(connection_id);
  return found == links_.end() ? nullptr : found->second.link;
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
  std::vector<std::shared_ptr<AgentLink>> links;
  {
    absl::MutexLock lock(&mu_);
    closed_ = status;
    for (const auto& [connection_id, greeted] : links_) {
      links.push_back(greeted.link);
    }
    for (const auto& [connection_id, waiting] : waiting_) {
      if (std::shared_ptr<AgentLink> link = waiting.link.lock()) {
        links.push_back(std::move(link));
      }
    }
  }
  // Outside the lock: a stream that ends takes itself out of these.
  for (const std::shared_ptr<AgentLink>& link : links) {
    link->Close(status);
  }
}

absl::Status AgentHub::AddWaiting(uint64_t connection_id,
                                  const std::string& peer,
                                  absl::Duration deadline,
                                  std::weak_ptr<AgentLink> link) {
  absl::MutexLock lock(&mu_);
  if (!closed_.ok()) {
    return closed_;
  }
  if (!waiting_of_peer_.Take(peer, kWaitingPerPeer)) {
    return TooMany(absl::StrCat(kWaitingPerPeer, " streams of this address have not said Hello"));
  }
  waiting_[connection_id] = Waiting{peer, deadline, std::move(link)};
  return absl::OkStatus();
}

void AgentHub::RemoveWaiting(uint64_t connection_id) {
  absl::MutexLock lock(&mu_);
  Forget(connection_id, waiting_, waiting_of_peer_);
}

void AgentHub::Expire(absl::Duration now) {
  std::vector<std::shared_ptr<AgentLink>> late;
  {
    absl::MutexLock lock(&mu_);
    for (const auto& [connection_id, waiting] : waiting_) {
      std::shared_ptr<AgentLink> link = waiting.deadline <= now ? waiting.link.lock() : nullptr;
      if (link != nullptr) {
        late.push_back(std::move(link));
      }
    }
  }
  for (const std::shared_ptr<AgentLink>& link : late) {
    link->Close(absl::DeadlineExceededError(
        absl::StrCat("no Hello within ", absl::FormatDuration(kHelloDeadline))));
  }
}

size_t AgentHub::size() const {
  absl::MutexLock lock(&mu_);
  return links_.size();
}

}  // namespace hearth::coordinator
