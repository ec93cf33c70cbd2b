// Tells which workers are silent and why: they are gone, or the coordinator is cut off. A lost
// network looks the same from here as lost hosts, so every answer of the others counts:
//   - a worker elsewhere that answers shows that the network is there: silent ones are gone;
//   - one on the same machine, or behind the same address, shows it for that machine;
//   - one on the coordinator's own machine shows nothing of the others, unless their kernels closed
//     the streams, or they are all on one machine, or not the most.
// If nobody answers, nothing could be recovered anyway, and workers that train on must find their
// jobs as they left them: the coordinator waits (isolation_grace, or until somebody says which
// workers are gone).
//
// It only judges: it reads workers and changes none. The core acts on the result. All durations are
// monotonic times unless they say otherwise.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "coordinator/core/core.h"
#include "coordinator/core/workers/worker_state.h"

namespace hearth::coordinator {

// Not thread-safe.
class Liveness {
 public:
  Liveness(const CoreOptions& options, absl::Duration start);

  // Call this before each command, with the time of the previous one: a gap means that nobody was
  // heard because nobody listened.
  void NoticeGap(absl::Duration before, absl::Duration now);

  // Nothing was heard of it for CoreOptions::silence.
  bool Silent(const WorkerState& worker, absl::Duration now) const;
  // How long this worker may say nothing before it counts as lost.
  absl::Duration Patience(const WorkerState& worker) const;
  // How long after its job's last progress this silent worker may still count as alive, because
  // the steps show that its rank goes on. The faster they are, the sooner some are missing.
  absl::Duration Excused(const WorkerState& worker, absl::Duration step_time) const;
  // It is connected and was heard in the last heartbeats.
  bool Answers(const WorkerState& worker, absl::Duration now) const;
  // Past the graces after a start, a stall and an isolation: silence shows in a worker's state.
  bool JudgesSilence(absl::Duration now) const {
    return now >= quiet_until_ && now >= StartIsOver();
  }

  // Whether silence counts for this worker; the later ones hold more.
  enum class Quiet {
    kOver,
    kUnlessPeersAreBack,  // a grace holds it up, which ends early when PeersAreBack
    kHolds,
  };
  Quiet QuietOf(const WorkerState& worker, absl::Duration now) const;

  // Workers whose words show that the network is there: everywhere, or on their machine alone when
  // they are on the coordinator's.
  class Witnesses {
   public:
    void Add(const WorkerState& worker);
    // The last word that shows it for this worker's place.
    absl::Duration LastHeard(const WorkerState& worker) const;

   private:
    absl::Duration anywhere_ = -absl::InfiniteDuration();
    std::unordered_map<std::string_view, absl::Duration> hosts_;
    std::unordered_map<std::string_view, absl::Duration> addresses_;
  };
  // How many are back after a grace began.
  struct Returns {
    int64_t missing = 0;  // those with a task that are neither back nor lost
    Witnesses back;
  };
  // Valid until a worker changes.
  Returns ReturnsOf(const WorkerMap& workers, absl::Duration now) const;
  // All that this missing worker is measured by have dialled in a while ago. `peers`: the workers
  // of its gang's other ranks that are not gone.
  bool PeersAreBack(const WorkerState& worker,
                    const std::vector<const WorkerState*>& peers,
                    const Returns& returns,
                    absl::Duration now) const;

  enum class Cause { kGone, kCutOff, kUnclear };
  // What keeps this worker, whose patience has run out, silent.
  Cause CauseOf(const WorkerState& worker, const WorkerMap& workers, absl::Duration now) const;
  // A loss may be part of a silence that others join; a worker that dials in is not lost.
  void NoteLoss(const WorkerState& worker, absl::Duration now);
  void NoteReturn(const std::string& worker_id, absl::Duration now);

  // The coordinator assumes that it is cut off from its workers.
  bool isolated() const { return isolated_; }
  // Until the isolation is over, jobs that have lost ranks wait instead of starting elsewhere.
  bool HoldsLosses(absl::Duration now) const { return now < isolated_until_; }
  // `silent_since`: the last word of the worker whose silence showed it.
  void BeginIsolation(absl::Duration silent_since, absl::Duration now);
  void EndIsolation(absl::Duration now);
  // Ends an isolation whose time is over or in which some worker was heard again.
  enum class Change { kNone, kRanOut, kContactIsBack };
  Change ReviewIsolation(const WorkerMap& workers, absl::Duration now);
  // Some worker shows that a silent one is not cut off, or none is silent.
  bool ContactIsBack(const WorkerMap& workers, absl::Duration now) const;

 private:
  struct Loss {
    std::string worker_id;
    absl::Duration last_seen;
    std::string host;
  };

  // Those that have not dialled in since the start get this long.
  absl::Duration StartIsOver() const { return start_ + options_.reattach_grace; }
  // `other` answers, and was heard well after `worker`'s last word.
  bool HeardSince(const WorkerState& other, const WorkerState& worker, absl::Duration now) const;
  // Some witness was heard well after `worker`'s last word.
  bool Disprove(const Witnesses& witnesses, const WorkerState& worker) const;
  // `other` was heard so, and shows that it is not the network that keeps `worker` silent.
  bool Disproves(const WorkerState& other, const WorkerState& worker, absl::Duration now) const;
  // A silence that began at `since` belongs to the isolation, or to what may have been one.
  void NoteSilence(absl::Duration since, absl::Duration now);
  // It has dialled in a while ago and answers.
  bool IsBack(const WorkerState& worker, absl::Duration now) const;

  const CoreOptions options_;
  const absl::Duration start_;
  absl::Duration first_return_ = absl::InfiniteDuration();  // when the first worker dialled in
  absl::Duration quiet_from_;                               // end of the last stall or isolation
  absl::Duration quiet_until_;  // those that are not back since then are not silent before
  bool isolated_ = false;
  absl::Duration isolated_until_;
  // The silences of the last isolation, or of the workers that were lost before the last one came
  // back, began then. While they may still be about to dial in after a contact, workers that were
  // heard for a moment count as part of them.
  absl::Duration isolation_from_;
  absl::Duration contact_until_ = -absl::InfiniteDuration();
  // Silences that began before this are part of an isolation that is over.
  absl::Duration isolation_mark_ = -absl::InfiniteDuration();
  std::deque<Loss> recent_losses_;  // newest last
};

}  // namespace hearth::coordinator
