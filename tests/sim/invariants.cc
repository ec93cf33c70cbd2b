// What must hold after every command, whatever has happened.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/reasons/reason_codes.h"
#include "coordinator/core/errors.h"
#include "coordinator/core/transitions.h"
#include "tests/sim/world.h"

namespace hearth::sim {

void World::CheckEvent(const v1::JobEvent& event) {
  if (event.revision() != store_.revision + 1) {
    Fail(absl::StrCat("revision ", event.revision(), " follows ", store_.revision));
  }
  store_.revision = event.revision();
  Say(event.ShortDebugString());
  OweFor(event);
  CheckGivenUp(event);
  if (event.type() != "state") {
    return;
  }
  CheckNotEarly(event);
  auto& last = store_.last_state[event.job_id()];
  const bool created = event.from_state() == v1::JOB_STATE_UNSPECIFIED;
  if (created ? last != v1::JOB_STATE_UNSPECIFIED : last != event.from_state()) {
    Fail(absl::StrCat("event breaks the chain: ", event.ShortDebugString()));
  }
  if (!created && !core::IsLegalTransition(event.from_state(), event.to_state())) {
    Fail(absl::StrCat("illegal transition: ", event.ShortDebugString()));
  }
  if (event.to_state() == v1::JOB_STATE_SUCCEEDED) {
    TakeSuccess(event.job_id());
  }
  extended_ += last == v1::JOB_STATE_SUCCEEDED && event.to_state() == v1::JOB_STATE_QUEUED ? 1 : 0;
  last = event.to_state();
  ++reasons_[absl::StrCat(core::StateName(event.to_state()), " ", event.reason_code())];
}

void World::CheckStarts(const core::Command& command, const core::Effects& effects) {
  const auto* beat = command.As<core::AgentHeartbeat>();
  const auto* hello = command.As<core::AgentConnected>();
  if (beat != nullptr && beat->heartbeat.stopping()) {
    leaving_.insert(beat->connection_id);
  }
  if (hello != nullptr && hello->hello.stopping()) {
    leaving_.insert(hello->connection_id);
  }
  std::set<TaskKey> begin;
  for (const core::OutgoingMessage& out : effects.messages) {
    if (!out.message.has_start()) {
      continue;
    }
    const v1::Task& task = out.message.start().task();
    const TaskKey key{task.job_id(), task.epoch()};
    // A start that is sent again to a worker that came back is no new gang.
    if (!begun_.contains(key) && leaving_.contains(out.connection_id)) {
      Fail(absl::StrCat(key.first, "/", key.second, " begins on ",
                        links_[out.connection_id].daemon->name, ", which is ending"));
    }
    begin.insert(key);
  }
  begun_.merge(begin);
}

void World::CheckHistory(const core::HistoryAppend& append) {
  auto& history = store_.history[append.job_id];
  const v1::MetricRecord& record = append.record;
  if (record.cursor() != static_cast<int64_t>(history.size()) + 1) {
    Fail(absl::StrCat("history cursor ", record.cursor(), " after ", history.size()));
  }
  int64_t step = 0;
  int64_t epoch = 0;
  for (const v1::MetricRecord& earlier : history) {
    step = earlier.has_step() ? earlier.step().step() : earlier.rewind().to_step();
    epoch = earlier.has_step() ? earlier.step().epoch() : earlier.rewind().epoch();
  }
  if (record.has_step() && (record.step().step() != step + 1 || record.step().epoch() < epoch)) {
    Fail(absl::StrCat(append.job_id, ": step ", record.step().step(), " of epoch ",
                      record.step().epoch(), " follows step ", step, " of epoch ", epoch));
  }
  if (record.has_rewind() &&
      (record.rewind().to_step() >= step || record.rewind().epoch() <= epoch)) {
    Fail(absl::StrCat(append.job_id, ": rewind to ", record.rewind().to_step(), " from ", step));
  }
  history.push_back(record);
}

// Every line once and in order.
void World::CheckLogs(const core::LogAppend& append) {
  for (const v1::LogLine& line : append.lines) {
    if (line.cursor() != ++store_.log_cursor[append.job_id]) {
      Fail(absl::StrCat(append.job_id, ": log cursor ", line.cursor()));
    }
    int64_t& last =
        store_.log_lines[absl::StrCat(append.job_id, " ", line.epoch(), " ", line.rank())];
    if (line.text() != absl::StrCat(++last)) {
      Fail(absl::StrCat(append.job_id, ": line ", line.text(), " of epoch ", line.epoch(), " rank ",
                        line.rank(), " where line ", last, " was due"));
    }
  }
}

void World::Commit(const core::Effects& effects) {
  for (const v1::JobEvent& event : effects.events) {
    CheckEvent(event);
  }
  for (const core::JobRow& row : effects.jobs) {
    const v1::Job& job = row.record.job();
    auto before = store_.jobs.find(job.job_id());
    if (before != store_.jobs.end()) {
      const int64_t old_epoch = before->second.job().epoch();
      if (job.epoch() < old_epoch || job.epoch() > old_epoch + 1) {
        Fail(absl::StrCat(job.job_id(), ": epoch ", old_epoch, " -> ", job.epoch()));
      }
      epochs_ += job.epoch() - old_epoch;
    } else if (FirstsState(job) == v1::JOB_STATE_SUCCEEDED) {
      first_came_.insert(job.job_id());
    }
    if (store_.last_state[job.job_id()] != job.state()) {
      Fail(absl::StrCat(job.job_id(), ": state changed without an event"));
    }
    if (row.durable) {
      if (before != store_.jobs.end()) {
        CheckDropped(before->second, row.record);
      }
      store_.jobs[job.job_id()] = row.record;
    }
  }
  given_up_.clear();
  for (const core::HistoryAppend& append : effects.history) {
    CheckHistory(append);
  }
  for (const core::LogAppend& append : effects.logs) {
    CheckLogs(append);
  }
  for (const core::WorkerRow& row : effects.workers) {
    if (row.durable) {
      store_.workers[row.record.worker().worker_id()] = row.record;
    }
  }
  for (const std::string& id : effects.worker_deletes) {
    store_.workers.erase(id);
  }
  for (const v1::RequestRecord& request : effects.requests) {
    if (!store_.requests.emplace(request.request_id(), request).second) {
      Fail(absl::StrCat("request ", request.request_id(), " was applied twice"));
    }
  }
  for (const std::string& id : effects.kv_clears) {
    store_.kv.erase(id);
  }
  for (const v1::KvRecord& gone : effects.kv_deletes) {
    store_.kv[gone.job_id()].erase(gone.key());
  }
  for (const v1::KvRecord& put : effects.kv_puts) {
    store_.kv[put.job_id()][put.key()] = put;
  }
}

void World::CheckCore(bool after_tick) {
  std::map<std::string, std::string> holders;
  for (const v1::JobRecord* record : core_->Jobs()) {
    const v1::Job& job = record->job();
    if (job.reason().empty() || !reasons::IsReasonCode(job.reason_code())) {
      Fail(absl::StrCat(job.job_id(), " has no reason"));
    }
    if (after_tick) {
      CheckNotLate(*record);
    }
    if (after_tick && job.state() == v1::JOB_STATE_QUEUED && job.reason_code() == "submitted") {
      Fail(absl::StrCat(job.job_id(), " waits and does not say for what"));
    }
    if (!core::HasGang(job.state())) {
      for (const v1::RankRecord& rank : record->ranks()) {
        if (!rank.gone()) {
          Fail(absl::StrCat(job.job_id(), " is ", core::StateName(job.state()),
                            " and has a living rank on ", rank.worker_id()));
        }
      }
      continue;
    }
    for (const v1::RankRecord& rank : record->ranks()) {
      if (!rank.gone() && !holders.emplace(rank.worker_id(), job.job_id()).second) {
        Fail(absl::StrCat(rank.worker_id(), " is held by ", holders[rank.worker_id()], " and ",
                          job.job_id()));
      }
    }
  }
}

bool World::ComesTooLate(const v1::Job& job, const v1::Job& waiting) const {
  const int64_t levels =
      int64_t{job.spec().resources().priority()} - waiting.spec().resources().priority();
  const absl::Duration later = submit_times_.at(job.job_id()) - submit_times_.at(waiting.job_id());
  if (aging_ == absl::ZeroDuration()) {
    return levels < 0 || (levels == 0 && later > absl::ZeroDuration());
  }
  // Only the wall clock tells how long the machine was away: after a jump the age of those that
  // waited is not known, and only their order is.
  if (jumped_ && booted_) {
    return levels <= 0 && later > absl::ZeroDuration();
  }
  return later > levels * aging_;
}

bool World::TooSmall(const v1::JobRecord& record, const v1::Worker& worker) {
  return record.too_small_bytes() > 0 && worker.device().memory_bytes() <= record.too_small_bytes();
}

bool World::CouldTake(const v1::JobRecord& job, const std::string& id) const {
  const v1::Job& waiting = job.job();
  const v1::Worker& taken = core_->FindWorker(id)->worker();
  const std::string& root = taken.root_uuid();
  if ((waiting.has_checkpoint() && waiting.checkpoint().root_uuid() != root) ||
      TooSmall(job, taken)) {
    return false;
  }
  int64_t there = 0;
  std::map<std::string, int64_t> idle;  // by root
  for (const v1::WorkerRecord* record : core_->Workers()) {
    const v1::Worker& worker = record->worker();
    const bool is_idle = worker.state() == v1::WORKER_STATE_IDLE;
    if (worker.cordoned() || worker.draining() || TooSmall(job, worker) ||
        (!is_idle && worker.state() != v1::WORKER_STATE_BUSY)) {
      continue;
    }
    there += worker.root_uuid() == root ? 1 : 0;
    idle[worker.root_uuid()] += is_idle ? 1 : 0;
  }
  const int64_t least = waiting.spec().resources().min_workers();
  // The same plan has given it others, which it takes once its paths are checked.
  const bool has_others =
      waiting.reason_code() == "checking_paths" &&
      std::any_of(idle.begin(), idle.end(), [&](const auto& at) { return at.second >= least; });
  return there >= least && !has_others;
}

void World::CheckStart(const v1::JobRecord& started) {
  for (const v1::RankRecord& rank : started.ranks()) {
    const v1::Worker& worker = core_->FindWorker(rank.worker_id())->worker();
    if (TooSmall(started, worker)) {
      Fail(absl::StrCat(started.job().job_id(), " starts on ", rank.worker_id(),
                        ", which is no larger than one that was too small for it"));
    }
  }
  for (const v1::JobRecord* record : core_->Jobs()) {
    const v1::Job& waiting = record->job();
    // Their places are those of the moment at which they were let go.
    if (waiting.state() != v1::JOB_STATE_QUEUED || waiting.spec().has_start() ||
        started.job().spec().has_start()) {
      continue;
    }
    if (!ComesTooLate(started.job(), waiting)) {
      overtakings_ +=
          submit_times_.at(started.job().job_id()) > submit_times_.at(waiting.job_id()) ? 1 : 0;
      aged_ += waiting.spec().resources().priority() > started.job().spec().resources().priority()
                   ? 1
                   : 0;
      continue;
    }
    for (const v1::RankRecord& rank : started.ranks()) {
      if (CouldTake(*record, rank.worker_id())) {
        Fail(absl::StrCat(started.job().job_id(), " takes ", rank.worker_id(), " and overtakes ",
                          waiting.job_id(), ", which waits for at least ",
                          waiting.spec().resources().min_workers(), ": ", waiting.reason()));
      }
    }
  }
}

void World::CheckPreempted(const v1::Job& victim) {
  for (const v1::JobRecord* record : core_->Jobs()) {
    const v1::Job& job = record->job();
    const bool later =
        !job.spec().has_start() && !victim.spec().has_start() && ComesTooLate(job, victim);
    if (job.state() == v1::JOB_STATE_QUEUED && !later &&
        job.spec().resources().priority() > victim.spec().resources().priority()) {
      return;
    }
  }
  Fail(absl::StrCat(victim.job_id(), " is preempted, and nobody of higher priority is ahead"));
}

void World::CheckOrder(const core::Effects& effects) {
  for (const v1::JobEvent& event : effects.events) {
    if (event.type() != "state") {
      continue;
    }
    const v1::JobRecord& record = *core_->FindJob(event.job_id());
    if (event.to_state() == v1::JOB_STATE_STARTING) {
      CheckStart(record);
    } else if (event.reason_code() == "preempted" && event.to_state() == v1::JOB_STATE_REQUEUEING) {
      CheckPreempted(record.job());
    }
  }
}

// What is recorded is there, and once a job has succeeded (and its root was looked at since)
// nothing else is.
void World::CheckFolders(const v1::JobRecord& record) {
  const std::string& id = record.job().job_id();
  std::set<std::pair<int64_t, int64_t>> left = folders_[id];
  for (const v1::Checkpoint& checkpoint : record.checkpoints()) {
    if (left.erase({checkpoint.epoch(), checkpoint.step()}) == 0) {
      Fail(absl::StrCat(id, ": the checkpoint of step ", checkpoint.step(), ", epoch ",
                        checkpoint.epoch(), ", is recorded and not there"));
    }
  }
  // After a jump the times of folders do not tell whose they are: they are left to a person.
  if (record.job().state() != v1::JOB_STATE_SUCCEEDED || !record.job().has_checkpoint() ||
      jumped_) {
    return;
  }
  for (const auto& [epoch, step] : left) {
    if (step <= record.job().checkpoint().step()) {
      Fail(absl::StrCat(id, ": nobody removed step ", step, " of epoch ", epoch));
    }
  }
  for (const auto& [epoch, step] : temporaries_[id]) {
    Fail(absl::StrCat(id, ": nobody removed the temporary step ", step, " of epoch ", epoch));
  }
}

void World::CheckEnd() {
  if (store_.jobs.size() != static_cast<size_t>(job_count_)) {
    Fail(absl::StrCat(store_.jobs.size(), " jobs, ", job_count_, " were submitted"));
  }
  for (const auto& [index, id] : submitted_) {
    if (store_.jobs.count(id) == 0) {
      Fail(absl::StrCat("acknowledged job ", id, " is lost"));
    }
  }
  for (const auto& [id, record] : store_.jobs) {
    const v1::Job& job = record.job();
    const auto& history = store_.history[id];
    const int64_t last = history.empty()             ? 0
                         : history.back().has_step() ? history.back().step().step()
                                                     : history.back().rewind().to_step();
    if (job.state() == v1::JOB_STATE_SUCCEEDED && last != job.spec().train().steps()) {
      Fail(absl::StrCat(id, " succeeded with ", last, " of ", job.spec().train().steps(),
                        " steps in its history"));
    }
    // Faults of the control plane alone: no job may notice any of it.
    if (!AllFaults() &&
        (job.state() != v1::JOB_STATE_SUCCEEDED || (mode_ != Mode::kCalm && job.epoch() != 1))) {
      Fail(absl::StrCat(id, " was disturbed though no worker failed"));
    }
    CheckFolders(record);
  }
  CheckOwed();
}

}  // namespace hearth::sim
