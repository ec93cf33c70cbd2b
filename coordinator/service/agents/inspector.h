// Asks workers about files that only they can see.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/time/clock.h"
#include "coordinator/service/agents/agent_hub.h"
#include "hearth/v1/agent.pb.h"
#include "hearth/v1/job.pb.h"

namespace hearth::coordinator {

inline constexpr absl::Duration kInspectTimeout = absl::Seconds(2);
inline constexpr absl::Duration kInspectCacheAge = absl::Seconds(60);
// A worker that writes a text says something each 5 s.
inline constexpr absl::Duration kWriteTimeout = absl::Seconds(30);
// A disk that is busy with a listing, or a slow link, may take its time.
inline constexpr absl::Duration kReadTimeout = absl::Seconds(20);

// Thread-safe. Answers come on the thread of the agent's stream, or of Expire, or of the caller;
// never under the lock.
class Inspector {
 public:
  using Done = std::function<void(absl::StatusOr<std::vector<v1::PathInfo>>)>;
  using ReadDone = std::function<void(absl::StatusOr<v1::CheckpointFileBytes>)>;
  using Piece = std::function<void(absl::StatusOr<v1::WrittenText>)>;

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

  // A piece of a checkpoint's file; `request` without its id. kUnavailable and kDeadlineExceeded as
  // above; else what the worker says.
  void Read(uint64_t connection_id, v1::ReadCheckpointFile request, ReadDone done)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Has the worker write a text; `request` without its id, which is returned. `piece` is called for
  // each piece, until one has an end or an error: kUnavailable and kDeadlineExceeded as above; else
  // what the worker says.
  int64_t Write(uint64_t connection_id, v1::WriteText request, Piece piece)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Nobody waits for this text now, so the worker is told to stop.
  void StopWriting(uint64_t connection_id, int64_t id) ABSL_LOCKS_EXCLUDED(mu_);

  // The answer to question `id`; one that nobody waits for is dropped.
  void OnAnswer(uint64_t connection_id, int64_t id, v1::AgentMessage&& message)
      ABSL_LOCKS_EXCLUDED(mu_);
  void OnDisconnected(uint64_t connection_id) ABSL_LOCKS_EXCLUDED(mu_);
  // Fails what has waited too long; to be called about once a second.
  void Expire() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // Called with the answer, or with the reason why it did not come.
  using Answered = std::function<void(absl::StatusOr<v1::AgentMessage>)>;
  struct Pending {
    uint64_t connection_id = 0;
    std::string_view about;  // for people
    absl::Duration timeout;
    absl::Duration deadline = {};
    Answered done = nullptr;
    // Whether more answers follow this one; null: it is the only one.
    bool (*more)(const v1::AgentMessage& answer) = nullptr;
  };
  struct Answer {
    v1::PathInfo info;
    absl::Duration time;
  };

  // Sends what `fill` makes of the question's id, which is returned. Fills in the deadline of
  // `pending`.
  int64_t Ask(Pending pending,
              const std::function<void(int64_t id, v1::CoordinatorMessage& message)>& fill)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Ends the questions that `fails` is true of.
  void Fail(const std::function<bool(const Pending&)>& fails,
            const std::function<absl::Status(std::string_view about)>& why)
      ABSL_LOCKS_EXCLUDED(mu_);
  // The answers in the order of `paths`; good ones are kept for Cached.
  std::vector<v1::PathInfo> Keep(const std::string& scope,
                                 const std::vector<std::string>& paths,
                                 const v1::InspectPathsResult& result) ABSL_LOCKS_EXCLUDED(mu_);

  AgentHub& hub_;
  Clock& clock_;
  const int64_t generation_;
  mutable absl::Mutex mu_;
  int64_t next_id_ ABSL_GUARDED_BY(mu_) = 1;
  std::map<int64_t, Pending> pending_ ABSL_GUARDED_BY(mu_);
  std::map<std::pair<std::string, std::string>, Answer> cache_ ABSL_GUARDED_BY(mu_);
};

}  // namespace hearth::coordinator
