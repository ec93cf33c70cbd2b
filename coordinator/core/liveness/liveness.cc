#include "coordinator/core/liveness/liveness.h"

#include <algorithm>
#include <set>

namespace hearth::coordinator {
namespace {

// The loop ticks at least once a second, so a longer gap means that the process itself stood still.
constexpr absl::Duration kStall = absl::Seconds(2);
// After that long agents' keepalives have closed the streams and they must dial again.
constexpr absl::Duration kLongStall = absl::Seconds(10);
// How long a loss may be part of a silence that others join.
constexpr absl::Duration kRecentLoss = absl::Seconds(20);
// Silences that begin within this of each other have one cause.
constexpr absl::Duration kTogether = absl::Seconds(5);
// A worker that missed this many heartbeats does not answer.
constexpr int kMissedHeartbeats = 6;
// A worker heard this many heartbeats after another's last message did not fall silent with it.
constexpr int kHeartbeatsApart = 3;
// So many steps of a job may be missing, beyond CoreOptions::disconnect_silence.
constexpr int kStepsMissed = 2;
// Fewer that fall silent together are not taken for a lost network.
constexpr size_t kIsolationWorkers = 3;
// What a daemon takes to dial again, pauses and attempts included.
constexpr absl::Duration kRedial = absl::Seconds(5);

bool SameMachine(const WorkerState& a, const WorkerState& b) {
  return (!a.worker().host().empty() && a.worker().host() == b.worker().host()) ||
         (!a.address.empty() && a.address == b.address);
}

}  // namespace

Liveness::Liveness(const CoreOptions& options, absl::Duration start)
    : options_(options),
      start_(start),
      quiet_from_(start),
      quiet_until_(start),
      isolated_until_(start),
      isolation_from_(start) {}

void Liveness::NoticeGap(absl::Duration before, absl::Duration now) {
  const absl::Duration gap = now - before;
  if (gap > kStall) {
    // Nobody was heard because nobody listened (SIGSTOP, a suspended machine, a disk that hung), so
    // that silence must not count.
    quiet_from_ = now;
    quiet_until_ = std::max(quiet_until_,
                            now + (gap > kLongStall ? options_.reattach_grace : options_.silence));
  }
}

bool Liveness::Silent(const WorkerState& worker, absl::Duration now) const {
  return now - worker.last_seen >= options_.silence;
}

absl::Duration Liveness::Patience(const WorkerState& worker) const {
  return worker.connection == 0 ? std::min(options_.silence, options_.disconnect_silence)
                                : options_.silence;
}

absl::Duration Liveness::Excused(const WorkerState& worker, absl::Duration step_time) const {
  return std::min(Patience(worker), options_.disconnect_silence + kStepsMissed * step_time);
}

bool Liveness::Answers(const WorkerState& worker, absl::Duration now) const {
  return worker.connection != 0 && now - worker.last_seen < kMissedHeartbeats * options_.heartbeat;
}

bool Liveness::HeardSince(const WorkerState& other,
                          const WorkerState& worker,
                          absl::Duration now) const {
  return Answers(other, now) &&
         other.last_seen - worker.last_seen >= kHeartbeatsApart * options_.heartbeat;
}

bool Liveness::Disproves(const WorkerState& other,
                         const WorkerState& worker,
                         absl::Duration now) const {
  return HeardSince(other, worker, now) && (!other.local || SameMachine(other, worker));
}

bool Liveness::IsBack(const WorkerState& worker, absl::Duration now) const {
  return Answers(worker, now) && now - worker.connected_since >= kRedial;
}

void Liveness::Witnesses::Add(const WorkerState& worker) {
  const auto later = [&worker](absl::Duration& last_seen) {
    last_seen = std::max(last_seen, worker.last_seen);
  };
  // A worker on the coordinator's own machine is heard without any network, so it proves none.
  if (!worker.local) {
    later(anywhere_);
  }
  if (!worker.worker().host().empty()) {
    later(hosts_.try_emplace(worker.worker().host(), -absl::InfiniteDuration()).first->second);
  }
  if (!worker.address.empty()) {
    later(addresses_.try_emplace(worker.address, -absl::InfiniteDuration()).first->second);
  }
}

absl::Duration Liveness::Witnesses::LastHeard(const WorkerState& worker) const {
  absl::Duration last = anywhere_;
  if (const auto host = hosts_.find(worker.worker().host()); host != hosts_.end()) {
    last = std::max(last, host->second);
  }
  if (const auto address = addresses_.find(worker.address); address != addresses_.end()) {
    last = std::max(last, address->second);
  }
  return last;
}

bool Liveness::Disprove(const Witnesses& witnesses, const WorkerState& worker) const {
  return witnesses.LastHeard(worker) - worker.last_seen >= kHeartbeatsApart * options_.heartbeat;
}

Liveness::Returns Liveness::ReturnsOf(const WorkerMap& workers, absl::Duration now) const {
  Returns returns;
  for (const auto& [id, worker] : workers) {
    if (IsBack(worker, now)) {
      returns.back.Add(worker);
    } else if (!worker.job_id.empty() && !worker.lost) {
      ++returns.missing;
    }
  }
  return returns;
}

bool Liveness::PeersAreBack(const WorkerState& worker,
                            const std::vector<const WorkerState*>& peers,
                            const Returns& returns,
                            absl::Duration now) const {
  if (!peers.empty()) {
    return std::all_of(peers.begin(), peers.end(),
                       [this, now](const WorkerState* peer) { return IsBack(*peer, now); });
  }
  // Alone in its gang: then all that have tasks, and somebody who shows that the network is there.
  const bool counted = !IsBack(worker, now) && !worker.job_id.empty() && !worker.lost;
  return returns.missing == (counted ? 1 : 0) && Disprove(returns.back, worker);
}

Liveness::Quiet Liveness::QuietOf(const WorkerState& worker, absl::Duration now) const {
  const auto within = [this, now](absl::Duration from, absl::Duration until) {
    if (now >= until) {
      return Quiet::kOver;
    }
    return now < from + options_.reattach_prompt ? Quiet::kHolds : Quiet::kUnlessPeersAreBack;
  };
  // One that was back and has fallen silent since is like any other. After a stall the first words
  // may be old ones of a stream that is no more.
  const Quiet start = worker.seen ? Quiet::kOver : within(start_, StartIsOver());
  const Quiet later =
      worker.last_seen >= quiet_from_ + kRedial ? Quiet::kOver : within(quiet_from_, quiet_until_);
  return std::max(start, later);
}

Liveness::Cause Liveness::CauseOf(const WorkerState& worker,
                                  const WorkerMap& workers,
                                  absl::Duration now) const {
  if (worker.last_seen <= isolation_mark_) {
    return Cause::kGone;  // its silence is part of an isolation that has run out
  }
  // Among workers that nobody waits for: those whose silence began with this one or later. One that
  // was heard for a moment at the end of an isolation fell silent with the others of it.
  const absl::Duration began =
      now < contact_until_ ? std::min(worker.last_seen, isolation_from_) : worker.last_seen;
  const auto joins = [began](absl::Duration last_seen) { return last_seen >= began - kTogether; };
  // Idle workers that the store knows are missing, too, while they may still be about to dial in.
  // Their time counts from the first that did: before that the network may not have been there.
  const bool deaf = now < first_return_ + options_.reattach_grace;
  size_t known = 0;
  size_t fallen = 0;
  std::set<std::string> hosts;
  bool local_answers = false;
  bool just_back = false;
  for (const auto& [id, other] : workers) {
    if (HeardSince(other, worker, now)) {
      // One that dials in again shows that the network is back; the others may be about to.
      const bool again =
          other.connected_since > worker.last_seen && now - other.connected_since < kRedial;
      just_back = just_back || again;
      if (!again && Disproves(other, worker, now)) {
        return Cause::kGone;
      }
      local_answers = true;
      ++known;
    } else if (!other.lost && (!other.job_id.empty() || other.connection != 0 ||
                               (deaf && !other.seen) || (other.seen && joins(other.last_seen)))) {
      hosts.insert(other.worker().host());
      ++fallen;
      ++known;
    }
  }
  if (just_back) {
    return Cause::kUnclear;
  }
  // Already lost, so not counted above, but silent together with this one: else a cut that shows
  // worker by worker would pass for single losses.
  for (const Loss& loss : recent_losses_) {
    if (joins(loss.last_seen)) {
      hosts.insert(loss.host);
      ++fallen;
      ++known;
    }
  }
  if (fallen < kIsolationWorkers) {
    return Cause::kGone;
  }
  // Those that answer sit on the coordinator's machine. That says nothing about the others; the
  // header names the exceptions.
  if (local_answers && (hosts.size() < 2 || 2 * fallen <= known || worker.ended_by_peer)) {
    return Cause::kGone;
  }
  return Cause::kCutOff;
}

void Liveness::NoteLoss(const WorkerState& worker, absl::Duration now) {
  recent_losses_.push_back({worker.worker().worker_id(), worker.last_seen, worker.worker().host()});
  absl::Duration kept = now - kRecentLoss;
  // As long as others may still dial in after an isolation, its own losses are still needed
  // (CauseOf, NoteReturn).
  if (now < contact_until_) {
    kept = std::min(kept, isolation_from_ - kTogether);
  }
  while (recent_losses_.front().last_seen < kept && recent_losses_.size() > 1) {
    recent_losses_.pop_front();
  }
}

void Liveness::NoteReturn(const std::string& worker_id, absl::Duration now) {
  first_return_ = std::min(first_return_, now);
  const auto loss =
      std::find_if(recent_losses_.begin(), recent_losses_.end(),
                   [&worker_id](const Loss& recent) { return recent.worker_id == worker_id; });
  if (loss == recent_losses_.end()) {
    return;
  }
  // Workers without a job are lost even if all fall silent at once: nobody waits for them. The
  // first that is back shows that the others may be about to dial in, as after an isolation.
  NoteSilence(loss->last_seen, now);
  contact_until_ = now + options_.reattach_grace;
  recent_losses_.erase(loss);
}

void Liveness::NoteSilence(absl::Duration since, absl::Duration now) {
  isolation_from_ = now < contact_until_ ? std::min(isolation_from_, since) : since;
}

void Liveness::BeginIsolation(absl::Duration silent_since, absl::Duration now) {
  NoteSilence(silent_since, now);
  isolated_ = true;
  isolated_until_ = now + options_.isolation_grace;
}

void Liveness::EndIsolation(absl::Duration now) {
  isolated_ = false;
  isolated_until_ = now;
}

Liveness::Change Liveness::ReviewIsolation(const WorkerMap& workers, absl::Duration now) {
  if (!isolated_) {
    return Change::kNone;
  }
  if (now >= isolated_until_) {
    // Workers that were silent up to now are lost without another isolation (CauseOf): the same
    // silence would begin the next one at once, for ever.
    isolation_mark_ = now;
    EndIsolation(now);
    return Change::kRanOut;
  }
  if (!ContactIsBack(workers, now)) {
    return Change::kNone;
  }
  EndIsolation(now);
  // The rest may be about to dial in.
  quiet_from_ = now;
  quiet_until_ = now + std::min(options_.reattach_prompt, options_.reattach_grace);
  contact_until_ = now + options_.reattach_grace;
  return Change::kContactIsBack;
}

bool Liveness::ContactIsBack(const WorkerMap& workers, absl::Duration now) const {
  Witnesses witnesses;
  for (const auto& [id, worker] : workers) {
    if (Answers(worker, now)) {
      witnesses.Add(worker);
    }
  }
  bool silent = false;
  for (const auto& [id, worker] : workers) {
    if (worker.job_id.empty() || worker.lost || now - worker.last_seen < Patience(worker)) {
      continue;
    }
    if (Disprove(witnesses, worker)) {
      return true;
    }
    silent = true;
  }
  return !silent;
}

}  // namespace hearth::coordinator
