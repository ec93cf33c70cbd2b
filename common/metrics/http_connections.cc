#include "common/metrics/http_connections.h"

#include <pthread.h>
#include <sys/socket.h>

#include <algorithm>

#include "common/time/clock.h"

namespace hearth::metrics {

HttpConnections::HttpConnections(const HttpLimits& limits) : limits_(limits) {
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "http-deadlines");
    Run();
  });
}

HttpConnections::~HttpConnections() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
    changed_.Signal();
  }
  thread_.join();
}

uintptr_t HttpConnections::Opened(int fd) {
  absl::MutexLock lock(&mu_);
  const uintptr_t id = next_id_++;
  Connection& connection = connections_[id];
  connection.fd = fd;
  connection.deadline = Clock::Real().Monotonic() + limits_.head;
  MakeRoom();
  changed_.Signal();
  return id;
}

void HttpConnections::Set(uintptr_t id, Waits waits, size_t unsent_bytes) {
  absl::MutexLock lock(&mu_);
  const auto found = connections_.find(id);
  if (found == connections_.end()) {
    return;  // ended already
  }
  found->second.waits = waits;
  found->second.unsent_bytes = unsent_bytes;
  found->second.deadline = waits == Waits::kForClient ? Clock::Real().Monotonic() + limits_.write
                                                      : absl::InfiniteDuration();
  LimitUnsent();
  changed_.Signal();
}

void HttpConnections::Closed(uintptr_t id) {
  absl::MutexLock lock(&mu_);
  connections_.erase(id);
}

void HttpConnections::EndOldest(Waits waits) {
  // Ids grow, so the first of the map is the oldest.
  const auto oldest = std::find_if(connections_.begin(), connections_.end(),
                                   [&](const auto& entry) { return entry.second.waits == waits; });
  if (oldest != connections_.end()) {
    // Not close(): the descriptor is the library's, and its number might be another file's by then.
    // After this the library sees the end and closes it.
    shutdown(oldest->second.fd, SHUT_RDWR);
    connections_.erase(oldest);
  }
}

void HttpConnections::MakeRoom() {
  // Clients that have not even asked go first.
  for (const Waits waits : {Waits::kForRequest, Waits::kForClient}) {
    if (connections_.size() > limits_.connections) {
      EndOldest(waits);
    }
  }
}

void HttpConnections::LimitUnsent() {
  const auto unsent = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    size_t bytes = 0;
    for (const auto& [id, connection] : connections_) {
      bytes += connection.unsent_bytes;
    }
    return bytes;
  };
  while (unsent() > kUnsentBytesMax) {
    EndOldest(Waits::kForClient);
  }
}

absl::Duration HttpConnections::EndLate(absl::Duration now) {
  absl::Duration next = absl::InfiniteDuration();
  for (auto entry = connections_.begin(); entry != connections_.end();) {
    if (entry->second.deadline <= now) {
      shutdown(entry->second.fd, SHUT_RDWR);
      entry = connections_.erase(entry);
    } else {
      next = std::min(next, entry->second.deadline);
      ++entry;
    }
  }
  return next;
}

void HttpConnections::Run() {
  absl::MutexLock lock(&mu_);
  while (!stopping_) {
    const absl::Duration now = Clock::Real().Monotonic();
    changed_.WaitWithTimeout(&mu_, EndLate(now) - now);
  }
}

}  // namespace hearth::metrics
