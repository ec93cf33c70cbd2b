// The streams of connected agents, by connection id.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "hearth/v1/agent.pb.h"

namespace hearth::coordinator {

// The sending half of one agent's stream. Thread-safe; neither call blocks.
class AgentLink {
 public:
  virtual ~AgentLink() = default;
  // Queued in order. A link whose agent does not read is closed when its bounded queue is full; the
  // agent connects again and is told again what it must know.
  virtual void Send(v1::CoordinatorMessage message) = 0;
  // Ends the stream with `status`, after what was sent before.
  virtual void Close(const absl::Status& status) = 0;
};

// Thread-safe. Calls into links are made without the lock.
class AgentHub {
 public:
  // Streams of one address without Hello. A host's workers that come back together after a restart
  // of the coordinator say theirs at once.
  static constexpr int kWaitingPerPeer = 256;
  // Streams of one address that have said Hello: more workers than any host runs.
  static constexpr int kStreamsPerPeer = 4096;
  // Time to say Hello.
  static constexpr absl::Duration kHelloDeadline = absl::Seconds(10);

  // A stream that has said Hello. kResourceExhausted: `peer` has kStreamsPerPeer of them already;
  // that of CloseAll once it was called.
  absl::Status Add(uint64_t connection_id, const std::string& peer, std::shared_ptr<AgentLink> link)
      ABSL_LOCKS_EXCLUDED(mu_);
  void Remove(uint64_t connection_id) ABSL_LOCKS_EXCLUDED(mu_);
  // False when the connection is gone.
  bool Send(uint64_t connection_id, v1::CoordinatorMessage message) ABSL_LOCKS_EXCLUDED(mu_);
  void Close(uint64_t connection_id, const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);
  // Closes all streams, also those without Hello, and refuses new ones, with `status`, which is an
  // error.
  void CloseAll(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);
  size_t size() const ABSL_LOCKS_EXCLUDED(mu_);

  // A stream that has not said Hello yet. kResourceExhausted: `peer` has kWaitingPerPeer of them
  // already; that of CloseAll once it was called.
  absl::Status AddWaiting(uint64_t connection_id,
                          const std::string& peer,
                          absl::Duration deadline,
                          std::weak_ptr<AgentLink> link) ABSL_LOCKS_EXCLUDED(mu_);
  // It said Hello, or has ended.
  void RemoveWaiting(uint64_t connection_id) ABSL_LOCKS_EXCLUDED(mu_);
  // Ends those whose deadline has passed with DEADLINE_EXCEEDED.
  void Expire(absl::Duration now) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // Streams by address. An address without a stream takes no room.
  class PeerCounts {
   public:
    // One more of `peer`; false when it has `most`.
    bool Take(const std::string& peer, int most);
    void GiveBack(const std::string& peer);

   private:
    std::map<std::string, int> counts_;
  };

  struct Greeted {
    std::string peer;
    std::shared_ptr<AgentLink> link;
  };

  struct Waiting {
    std::string peer;
    absl::Duration deadline;
    std::weak_ptr<AgentLink> link;
  };

  std::shared_ptr<AgentLink> Find(uint64_t connection_id) const ABSL_LOCKS_EXCLUDED(mu_);

  mutable absl::Mutex mu_;
  std::map<uint64_t, Greeted> links_ ABSL_GUARDED_BY(mu_);
  PeerCounts greeted_of_peer_ ABSL_GUARDED_BY(mu_);
  std::map<uint64_t, Waiting> waiting_ ABSL_GUARDED_BY(mu_);
  PeerCounts waiting_of_peer_ ABSL_GUARDED_BY(mu_);
  absl::Status closed_ ABSL_GUARDED_BY(mu_);
};

}  // namespace hearth::coordinator
