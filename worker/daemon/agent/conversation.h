// The state of the conversation with the coordinator: the coordinator's generation, whether it has
// welcomed the present stream, and the messages to it that belong to no task. The stream's bytes
// and the tasks' reports are elsewhere.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "hearth/v1/agent.pb.h"

namespace hearth::worker {

// Not thread-safe.
class Conversation {
 public:
  // At most this many answers wait at once.
  static constexpr size_t kMaxAnswers = 64;

  // A stream was opened: only heartbeats until it is welcomed. Answers to questions of the previous
  // one are dropped; a Goodbye is said again.
  void Begin();

  // To be called for each message, first. kFailedPrecondition: a newer coordinator was heard
  // before; the message must have no effect.
  absl::Status Hear(int64_t generation);
  // The highest that was heard; 0 = none yet.
  int64_t generation() const { return generation_; }

  void TakeWelcome(const v1::Welcome& welcome);
  bool welcomed() const { return welcomed_; }
  // As the last Welcome set it; 1 s before the first one.
  absl::Duration heartbeat_interval() const { return absl::Seconds(heartbeat_seconds_); }

  // A heartbeat is to be sent, one however often this is called before TakeHeartbeat.
  void HeartbeatIsDue() { heartbeat_due_ = true; }
  // True once when one is due.
  bool TakeHeartbeat();

  // False: kMaxAnswers wait, this one was dropped.
  bool AddAnswer(v1::AgentMessage message);
  // The oldest that waits.
  std::optional<v1::AgentMessage> TakeAnswer();

  void SayGoodbye(std::string reason) { goodbye_ = std::move(reason); }
  // Once a stream, when there is one.
  std::optional<v1::AgentMessage> TakeGoodbye();
  bool goodbye_sent() const { return goodbye_sent_; }

 private:
  int64_t generation_ = 0;
  bool welcomed_ = false;
  double heartbeat_seconds_ = 1.0;
  bool heartbeat_due_ = false;
  std::deque<v1::AgentMessage> answers_;
  std::optional<std::string> goodbye_;
  bool goodbye_sent_ = false;
};

}  // namespace hearth::worker
