// Workers are silent: are they gone, or does the coordinator hear nobody? A lost network looks the
// same from here as lost hosts, so every answer of the others counts:
//   - a worker elsewhere that answers shows that the network is there: who is silent is gone;
//   - one on the same machine, or behind the same address, shows it for that machine;
//   - one on the coordinator's own machine shows nothing of the others, unless their kernels closed
//     the streams, or they are all on one machine, or not the most.
// If nobody answers, nothing could be recovered anyway, and workers that train on must find their
// jobs as they left them: the coordinator waits (isolation_grace, or until somebody says which
// workers are gone).
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "coordinator/core/errors.h"
#include "coordinator/core/impl.h"

namespace hearth::coordinator {
namespace {

// Silences that begin within this of each other have one cause.
constexpr absl::Duration kTogether = absl::Seconds(5);
// A worker that missed so many heartbeats does not answer.
constexpr int kMissedHeartbeats = 3;
// One that was heard so many heartbeats after another's last word did not fall silent with it.
constexpr double kHeartbeatsApart = 1.5;
// Fewer that fall silent together are not taken for a lost network.
constexpr size_t kIsolationWorkers = 3;
// What a daemon takes to dial again, pauses and attempts included.
constexpr absl::Duration kRedial = absl::Seconds(5);
constexpr int kDeclaredMax = 1000;

bool SameMachine(const WorkerState& a, const WorkerState& b) {
  return (!a.worker().host().empty() && a.worker().host() == b.worker().host()) ||
         (!a.address.empty() && a.address == b.address);
}

}  // namespace

bool Core::Impl::Answers(const WorkerState& worker) const {
  return worker.connection != 0 &&
         Mono() - worker.last_seen < kMissedHeartbeats * options_.heartbeat;
}

bool Core::Impl::HeardSince(const WorkerState& other, const WorkerState& worker) const {
  return Answers(other) &&
         other.last_seen - worker.last_seen >= kHeartbeatsApart * options_.heartbeat;
}

bool Core::Impl::Disproves(const WorkerState& other, const WorkerState& worker) const {
  return HeardSince(other, worker) && (!other.local || SameMachine(other, worker));
}

bool Core::Impl::PeersAreBack(const WorkerState& worker) const {
  const JobState* job = worker.job_id.empty() ? nullptr : &jobs_.at(worker.job_id);
  if (job == nullptr) {
    return false;
  }
  const auto back = [this](const WorkerState& other) {
    return Answers(other) && Mono() - other.connected_since >= kRedial;
  };
  size_t peers = 0;
  for (const v1::RankRecord& rank : job->record.ranks()) {
    const WorkerState& other = workers_.at(rank.worker_id());
    if (rank.gone() || &other == &worker) {
      continue;
    }
    if (!back(other)) {
      return false;
    }
    ++peers;
  }
  if (peers > 0) {
    return true;
  }
  // Alone in its gang: then all that have tasks, and somebody who shows that the network is there.
  bool shown = false;
  for (const auto& [id, other] : workers_) {
    if (&other == &worker) {
      continue;
    }
    if (!other.job_id.empty() && !other.lost && !back(other)) {
      return false;
    }
    shown = shown || (back(other) && Disproves(other, worker));
  }
  return shown;
}

bool Core::Impl::InQuiet(const WorkerState& worker) const {
  // One that was back and has fallen silent since is like any other. After a stall the first words
  // may be old ones of a stream that is no more.
  const bool was_back =
      (worker.seen && quiet_from_ == start_time_) || worker.last_seen >= quiet_from_ + kRedial;
  return Mono() < quiet_until_ && !was_back &&
         (Mono() < quiet_from_ + options_.reattach_prompt || !PeersAreBack(worker));
}

Core::Impl::Cause Core::Impl::CauseOf(const WorkerState& worker) const {
  if (worker.last_seen <= isolation_mark_) {
    return Cause::kGone;  // its silence is part of an isolation that has run out
  }
  // Among workers that nobody waits for: those whose silence began with this one or later.
  const auto joins = [&worker](absl::Duration last_seen) {
    return last_seen >= worker.last_seen - kTogether;
  };
  // Soon after a start, or if nobody has dialled in since, idle workers that the store knows are
  // missing, too.
  const bool deaf = Mono() < start_time_ + options_.reattach_grace ||
                    std::none_of(workers_.begin(), workers_.end(),
                                 [](const auto& entry) { return entry.second.seen; });
  size_t known = 0;
  size_t fallen = 0;
  std::set<std::string> hosts;
  bool local_answers = false;
  bool just_back = false;
  for (const auto& [id, other] : workers_) {
    if (HeardSince(other, worker)) {
      // One that dials in again shows that the network is back; the others may be about to.
      const bool again =
          other.connected_since > worker.last_seen && Mono() - other.connected_since < kRedial;
      just_back = just_back || again;
      if (!again && Disproves(other, worker)) {
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
  if (local_answers && (hosts.size() < 2 || 2 * fallen <= known || worker.ended_by_peer)) {
    return Cause::kGone;
  }
  return Cause::kCutOff;
}

void Core::Impl::BeginIsolation() {
  isolated_ = true;
  isolated_until_ = Mono() + options_.isolation_grace;
  NoteIsolation();
}

bool Core::Impl::ContactIsBack() const {
  bool silent = false;
  for (const auto& [id, worker] : workers_) {
    if (worker.job_id.empty() || worker.lost || Mono() - worker.last_seen < Patience(worker)) {
      continue;
    }
    silent = true;
    for (const auto& [other_id, other] : workers_) {
      if (Disproves(other, worker)) {
        return true;
      }
    }
  }
  return !silent;
}

void Core::Impl::NoteIsolation() {
  for (const std::string& id : active_) {
    JobState& job = *Find(id);
    const auto& ranks = job.record.ranks();
    const auto silent =
        std::count_if(ranks.begin(), ranks.end(), [this](const v1::RankRecord& rank) {
          return !rank.gone() && !Answers(workers_.at(rank.worker_id()));
        });
    if (silent == 0 || !job.job().isolation().empty()) {
      continue;
    }
    const std::string text = absl::StrCat(
        silent, " of its ", ranks.size(), " workers fell silent together with others, and nobody ",
        "answers who would show that the network is there: the coordinator takes itself to be cut ",
        "off and replaces none for ", absl::FormatDuration(options_.isolation_grace),
        ", or until one answers. `jobctl declare-lost` ends that if they are gone");
    job.job().set_isolation(text);
    Note(job, "warning", "coordinator", text);
  }
}

void Core::Impl::EndIsolation(const std::string& actor, const std::string& why) {
  isolated_ = false;
  isolated_until_ = Mono();
  plan_due_ = true;
  for (const std::string& id : active_) {
    JobState& job = *Find(id);
    if (!job.job().isolation().empty()) {
      job.job().clear_isolation();
      Note(job, "update", actor, why);
    }
  }
}

void Core::Impl::On(const DeclareLost& command) {
  const v1::DeclareLostRequest& request = command.request;
  if (request.worker_ids_size() > kDeclaredMax) {
    ReplyError(
        MakeError(absl::StatusCode::kInvalidArgument, "TOO_MANY_WORKERS",
                  absl::StrCat("worker_ids has ", request.worker_ids_size(), " names; at most ",
                               kDeclaredMax, " are taken, and none means all that are silent")));
    return;
  }
  std::set<std::string> names(request.worker_ids().begin(), request.worker_ids().end());
  for (const std::string& name : names) {
    const WorkerState* worker = FindWorker(name);
    if (worker == nullptr) {
      ReplyError(MakeError(absl::StatusCode::kNotFound, "WORKER_NOT_FOUND",
                           absl::StrCat("no worker ", name), {{"worker_id", name}}));
      return;
    }
    if (worker->connection != 0 && !Silent(*worker)) {
      ReplyError(MakeError(absl::StatusCode::kFailedPrecondition, "WORKER_ANSWERS",
                           absl::StrCat("worker ", name,
                                        " answers; drain it, or stop its daemon, to take its job "
                                        "away"),
                           {{"worker_id", name}}));
      return;
    }
  }
  for (const auto& [name, worker] : workers_) {
    if (request.worker_ids().empty() && !worker.job_id.empty() &&
        (worker.connection == 0 || Silent(worker))) {
      names.insert(name);
    }
  }
  v1::DeclareLostResponse response;
  for (const std::string& name : names) {
    WorkerState& worker = *FindWorker(name);
    if (!worker.lost) {
      if (JobState* job = worker.job_id.empty() ? nullptr : Find(worker.job_id)) {
        Note(*job, "update", "user", absl::StrCat("worker ", name, " declared lost by the user"));
      }
      Lose(worker, ", declared lost by the user");
      UpdateWorkerView(worker);
    }
    *response.add_workers() = worker.worker();
  }
  if (isolated_ && (request.worker_ids().empty() || ContactIsBack())) {
    EndIsolation("user", "isolation ended by the user");
  }
  response.set_isolated(isolated_);
  plan_due_ = true;
  effects_.reply = Reply{absl::OkStatus(), std::nullopt, std::nullopt};
  effects_.reply->declared = std::move(response);
}

}  // namespace hearth::coordinator
