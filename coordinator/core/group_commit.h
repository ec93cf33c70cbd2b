// The effects that wait for the next commit, and when it is to be made: at once if something in
// them is to be durable first (uncommitted.h), else after a pause, so that many reports share one.
// The pause is four times what the last commit took, so that a slow disk is idle when a start or an
// answer needs it, and at most 2 s. It does no I/O and reads no clock; the event loop does.
//
//   Add(effects) ──▶ those messages that leave now ──▶ send
//   DueAt() has come ──▶ Take() ──▶ commit, if AnyStored() ──▶ Committed(duration) ──▶ let know
#pragma once

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "coordinator/core/core.h"

namespace hearth::coordinator {

// All times are monotonic. Not thread-safe.
class GroupCommit {
 public:
  // The pause, in times of the last commit, and the longest.
  static constexpr double kPause = 4;
  static constexpr absl::Duration kPauseMax = absl::Seconds(2);

  // `most`: with so many effects that are stored a commit is due in any case; so it is when
  // kMostOthers times as many wait in all, heartbeats among them.
  static constexpr size_t kMostOthers = 16;
  explicit GroupCommit(size_t most) : most_(most) {}

  // Effects of the next command. Returns the messages that leave now, in order; the rest waits. On
  // one connection such a message overtakes acks, but nothing that is durable first: a Welcome
  // stays the first message of its stream.
  std::vector<OutgoingMessage> Add(Effects effects, absl::Duration now);

  // In the past: now. Infinite: nothing waits.
  absl::Duration DueAt() const;
  // Something that waits needs a commit.
  bool AnyStored() const { return stored_ > 0; }
  // All that waits, in order; nothing waits then.
  std::vector<Effects> Take();
  // The commit was made.
  void Committed(absl::Duration took) { pause_ = std::min(kPauseMax, kPause * took); }

 private:
  std::vector<OutgoingMessage> TakeEarly(Effects& effects);

  const size_t most_;
  absl::Duration pause_;
  std::vector<Effects> waiting_;
  size_t stored_ = 0;  // of those, how many need a commit
  bool urgent_ = false;
  absl::Duration since_;     // the first of those was added
  std::set<uint64_t> held_;  // connections with a message that is durable first
};

}  // namespace hearth::coordinator
