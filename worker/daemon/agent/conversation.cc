#include "worker/daemon/agent/conversation.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace hearth::worker {

void Conversation::Begin() {
  welcomed_ = false;
  heartbeat_due_ = false;
  goodbye_sent_ = false;
  answers_.clear();
}

absl::Status Conversation::Hear(int64_t generation) {
  if (generation < generation_) {
    return absl::FailedPreconditionError(absl::StrCat("coordinator of generation ", generation,
                                                      "; a newer one, generation ", generation_,
                                                      ", has taken over"));
  }
  generation_ = generation;
  return absl::OkStatus();
}

void Conversation::TakeWelcome(const v1::Welcome& welcome) {
  welcomed_ = true;
  if (welcome.heartbeat_seconds() > 0.0) {
    heartbeat_seconds_ = welcome.heartbeat_seconds();
  }
}

bool Conversation::TakeHeartbeat() {
  return std::exchange(heartbeat_due_, false);
}

bool Conversation::AddAnswer(v1::AgentMessage message) {
  if (answers_.size() >= kMaxAnswers) {
    return false;
  }
  answers_.push_back(std::move(message));
  return true;
}

std::optional<v1::AgentMessage> Conversation::TakeAnswer() {
  if (answers_.empty()) {
    return std::nullopt;
  }
  v1::AgentMessage message = std::move(answers_.front());
  answers_.pop_front();
  return message;
}

std::optional<v1::AgentMessage> Conversation::TakeGoodbye() {
  if (!goodbye_.has_value() || goodbye_sent_) {
    return std::nullopt;
  }
  goodbye_sent_ = true;
  v1::AgentMessage message;
  message.mutable_goodbye()->set_reason(*goodbye_);
  return message;
}

}  // namespace hearth::worker
