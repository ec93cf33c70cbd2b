// What follows from silence: workers are lost, or the coordinator waits because it hears nobody.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "coordinator/core/errors.h"
#include "coordinator/core/parts.h"

namespace hearth::coordinator {
namespace {

constexpr int kDeclaredMax = 1000;

}  // namespace

std::vector<CommandRow> IsolationCommands() {
  return {
      Row<v1::DeclareLostRequest>("declare_lost"),
  };
}

bool CoreParts::InQuiet(const WorkerState& worker) const {
  const Liveness::Quiet quiet = liveness_.QuietOf(worker, Mono());
  if (quiet != Liveness::Quiet::kUnlessPeersAreBack || worker.job_id.empty()) {
    return quiet != Liveness::Quiet::kOver;
  }
  std::vector<const WorkerState*> peers;
  for (const v1::RankRecord& rank : jobs_.at(worker.job_id).record().ranks()) {
    const WorkerState& peer = workers_.at(rank.worker_id());
    if (!rank.gone() && &peer != &worker) {
      peers.push_back(&peer);
    }
  }
  return !liveness_.PeersAreBack(worker, peers, workers_.all(), Mono());
}

void CoreParts::CheckSilence() {
  switch (liveness_.ReviewIsolation(workers_.all(), Mono())) {
    case Liveness::Change::kRanOut:
      NoteIsolationEnd("coordinator", absl::StrCat("nobody was heard for ",
                                                   absl::FormatDuration(options_.isolation_grace),
                                                   ": who is silent counts as lost from now on"));
      break;
    case Liveness::Change::kContactIsBack:
      NoteIsolationEnd("coordinator", "contact with the workers is back");
      return;
    case Liveness::Change::kNone:
      if (liveness_.isolated()) {
        NoteIsolation();
        return;
      }
      break;
  }
  std::vector<const WorkerState*> silent;
  for (const auto& [id, worker] : workers_.all()) {
    if (!worker.lost && Mono() - worker.last_seen >= liveness_.Patience(worker) &&
        !InQuiet(worker) && (!worker.job_id.empty() || worker.connection != 0)) {
      silent.push_back(&worker);
    }
  }
  // One by one: a loss is part of what the next one is judged by.
  for (const WorkerState* worker : silent) {
    if (worker->job_id.empty()) {
      Lose(*worker, "");  // idle: nothing to recover, it is merely not there
      continue;
    }
    if (Mono() - std::max(worker->last_seen, gangs_.of(worker->job_id).last_progress()) <
        liveness_.Patience(*worker)) {
      continue;  // UNREACHABLE: the all-reduce proves it alive
    }
    switch (liveness_.CauseOf(*worker, workers_.all(), Mono())) {
      case Liveness::Cause::kGone:
        Lose(*worker, "");
        break;
      case Liveness::Cause::kCutOff:
        liveness_.BeginIsolation(worker->last_seen, Mono());
        NoteIsolation();
        return;
      case Liveness::Cause::kUnclear:
        break;
    }
  }
}

void CoreParts::Lose(const WorkerState& worker, const std::string& by) {
  workers_.MarkLost(worker);
  const std::string name = worker.worker().worker_id();
  // Its tasks are over for us; it must say Hello before it counts again.
  Close(worker, absl::UnavailableError("nothing was heard from this worker; connect again"));
  liveness_.NoteLoss(worker, Mono());
  LoseRankOn(worker, absl::StrCat("worker ", name, " is silent for ",
                                  absl::FormatDuration(absl::Trunc(Mono() - worker.last_seen,
                                                                   absl::Milliseconds(100))),
                                  by));
}

void CoreParts::NoteIsolation() {
  for (const std::string& id : jobs_.active()) {
    JobState& job = *jobs_.Edit(id);
    const auto& ranks = job.record().ranks();
    const auto silent =
        std::count_if(ranks.begin(), ranks.end(), [this](const v1::RankRecord& rank) {
          return !rank.gone() && !liveness_.Answers(workers_.at(rank.worker_id()), Mono());
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

void CoreParts::NoteIsolationEnd(const std::string& actor, const std::string& why) {
  plan_.Ask();
  for (const std::string& id : jobs_.active()) {
    JobState& job = *jobs_.Edit(id);
    if (!job.job().isolation().empty()) {
      job.job().clear_isolation();
      Note(job, "update", actor, why);
    }
  }
}

void CoreParts::On(const v1::DeclareLostRequest& request) {
  if (request.worker_ids_size() > kDeclaredMax) {
    ReplyError(
        MakeError(absl::StatusCode::kInvalidArgument, "TOO_MANY_WORKERS",
                  absl::StrCat("worker_ids has ", request.worker_ids_size(), " names; at most ",
                               kDeclaredMax, " are taken, and none means all that are silent")));
    return;
  }
  std::set<std::string> names(request.worker_ids().begin(), request.worker_ids().end());
  for (const std::string& name : names) {
    const WorkerState* worker = workers_.Find(name);
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
  for (const auto& [name, worker] : workers_.all()) {
    if (request.worker_ids().empty() && !worker.job_id.empty() &&
        (worker.connection == 0 || Silent(worker))) {
      names.insert(name);
    }
  }
  v1::DeclareLostResponse response;
  for (const std::string& name : names) {
    const WorkerState& worker = workers_.at(name);
    if (!worker.lost) {
      if (JobState* job = worker.job_id.empty() ? nullptr : jobs_.Edit(worker.job_id)) {
        Note(*job, "update", "user", absl::StrCat("worker ", name, " declared lost by the user"));
      }
      Lose(worker, ", declared lost by the user");
      UpdateWorkerView(worker);
    }
    *response.add_workers() = worker.worker();
  }
  if (liveness_.isolated() &&
      (request.worker_ids().empty() || liveness_.ContactIsBack(workers_.all(), Mono()))) {
    liveness_.EndIsolation(Mono());
    NoteIsolationEnd("user", "isolation ended by the user");
  }
  response.set_isolated(liveness_.isolated());
  plan_.Ask();
  effects_.reply = Reply{absl::OkStatus(), std::nullopt, std::nullopt};
  effects_.reply->declared = std::move(response);
}

}  // namespace hearth::coordinator
