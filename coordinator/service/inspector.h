// Asks workers about paths that only they can see.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/time/clock.h"
#include "coordinator/service/agent_hub.h"
#include "hearth/v1/agent.pb.h"
#include "hearth/v1/job.pb.h"

namespace hearth::coordinator {

inline constexpr absl::Duration kInspectTimeout = absl::Seconds(2);
inline constexpr absl::Duration kInspectCacheAge = absl::Seconds(60);

// Thread-safe. Answers come on the thread of the agent's stream, or of Expire, or of the caller;
// never under the lock.
class Inspector {
 public:
  using Done = std::function<void(absl::StatusOr<std::vector<v1::PathInfo>>)>;

  Inspector(AgentHub& hub, Clock& clock, int64_t generation)
      : hub_(hub), clock_(clock), generation_(generation) {}

  // Which workers' answers are interchangeable: same device kind and selector.
  static std::string Scope(const v1::JobSpec& spec);

  // Fills `answers` in the order of `paths` and returns true if all were found good within the last
  // 60 s.
  bool Cached(const std::string& scope,
              const std::vector<std::string>& paths,
              std::vector<v1::PathInfo>& answers) const ABSL_LOCKS_EXCLUDED(mu_);

  // Answers in the order of `paths`. kUnavailable: the worker went away; kDeadlineExceeded: no
  // answer within 2 s.
  void Inspect(uint64_t connection_id,
               const std::string& scope,
               std::vector<std::string> paths,
               Done done) ABSL_LOCKS_EXCLUDED(mu_);

  void OnResult(uint64_t connection_id, const v1::InspectPathsResult& result)
      ABSL_LOCKS_EXCLUDED(mu_);
  void OnDisconnected(uint64_t connection_id) ABSL_LOCKS_EXCLUDED(mu_);
  // Fails what has waited too long; to be called about once a second.
  void Expire() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Pending {
    uint64_t connection_id = 0;
    std::string scope;
    std::vector<std::string> paths;
    absl::Duration deadline;
    Done done;
  };
  struct Answer {
    v1::PathInfo info;
    absl::Duration time;
  };

  AgentHub& hub_;
  Clock& clock_;
  const int64_t generation_;
  mutable absl::Mutex mu_;
  int64_t next_id_ ABSL_GUARDED_BY(mu_) = 1;
  std::map<int64_t, Pending> pending_ ABSL_GUARDED_BY(mu_);
  std::map<std::pair<std::string, std::string>, Answer> cache_ ABSL_GUARDED_BY(mu_);
};

}  // namespace hearth::coordinator
