#include "coordinator/core/group_commit.h"

#include "coordinator/core/uncommitted.h"

namespace hearth::coordinator {

std::vector<OutgoingMessage> GroupCommit::Add(Effects effects, absl::Duration now) {
  urgent_ = urgent_ || LeavesOf(effects) == Leaves::kDurableFirst;
  if (!effects.NothingDurable() && stored_++ == 0) {
    since_ = now;
  }
  std::vector<OutgoingMessage> early = TakeEarly(effects);
  waiting_.push_back(std::move(effects));
  return early;
}

std::vector<OutgoingMessage> GroupCommit::TakeEarly(Effects& effects) {
  std::vector<OutgoingMessage> early;
  std::vector<OutgoingMessage> rest;
  for (OutgoingMessage& message : effects.messages) {
    const Leaves leaves = RowOf(message.message.message_case()).leaves;
    if (leaves == Leaves::kDurableFirst) {
      held_.insert(message.connection_id);
    }
    const bool now = leaves == Leaves::kAtOnce && !held_.contains(message.connection_id);
    (now ? early : rest).push_back(std::move(message));
  }
  effects.messages = std::move(rest);
  return early;
}

absl::Duration GroupCommit::DueAt() const {
  if (waiting_.empty()) {
    return absl::InfiniteDuration();
  }
  if (urgent_ || stored_ == 0 || stored_ >= most_ || waiting_.size() >= kMostOthers * most_) {
    return -absl::InfiniteDuration();
  }
  return since_ + pause_;
}

std::vector<Effects> GroupCommit::Take() {
  stored_ = 0;
  urgent_ = false;
  held_.clear();
  return std::exchange(waiting_, {});
}

}  // namespace hearth::coordinator
