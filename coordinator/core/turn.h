// One command's turn: the time at which it is applied, and the effects that it has had so far.
//
// Rows of a state owner (Jobs, Workers, Rendezvous ...) are added by that owner, to which the
// effects are passed; parts add what has no owner: history, logs, messages, the reply.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "coordinator/core/core.h"
#include "coordinator/core/workers/worker_state.h"

namespace hearth::coordinator {

// A part that holds it as const sees the time and nothing else. Not thread-safe.
class Turn {
 public:
  // `generation` goes into each message. `start` is the time until the first command.
  Turn(int64_t generation, Now start) : generation_(generation), now_(start) {}

  // Starts the next command. Aborts if monotonic time goes back. `origin`: who asks; null = nobody
  // who is known.
  void Begin(Now now, const Origin* origin = nullptr);
  // The command is applied: hands out its effects.
  Effects Take() { return std::exchange(effects_, Effects()); }

  const Now& now() const { return now_; }
  absl::Time wall() const { return now_.wall; }
  absl::Duration mono() const { return now_.monotonic; }

  // JobEvent.actor of what a user asked for: "user:alice", or "user" when nobody is known.
  const std::string& user() const { return user_; }

  Effects& effects() { return effects_; }
  // Nothing is sent to a worker without a stream: it is said again when it is back.
  void Send(const WorkerState& worker, v1::CoordinatorMessage message);

  // The answer to the caller; a later one replaces it. The caller adds to ReplyOk's what the two
  // below do not set.
  Reply& ReplyOk();
  void ReplyError(absl::Status status);
  void ReplyJob(const v1::Job& job);
  void ReplyWorker(const v1::Worker& worker);

 private:
  const int64_t generation_;
  Now now_;
  std::string user_;
  Effects effects_;
};

}  // namespace hearth::coordinator
