// Between the core and the scheduler: the cluster as a view, and decisions carried out.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "coordinator/core/errors.h"
#include "coordinator/core/parts.h"

namespace hearth::coordinator {
namespace {

// After a start the first workers to dial in are not taken for the whole cluster.
constexpr absl::Duration kSettleAfterStart = absl::Seconds(3);
constexpr absl::Duration kInspectTimeout = absl::Seconds(10);
// A resize starts right after a checkpoint, so that little is repeated.
constexpr absl::Duration kCheckpointFresh = absl::Seconds(10);

}  // namespace

bool CoreParts::Usable(const WorkerState& worker) const {
  const v1::Worker& view = worker.worker();
  return worker.connection != 0 && !worker.Unhealthy() && !view.cordoned() && !view.draining() &&
         !Silent(worker);
}

void CoreParts::AddJobView(const JobState& job, ClusterView& view) const {
  JobView out;
  out.job_id = job.job().job_id();
  out.spec = &job.job().spec();
  out.create_time = FromProto(job.job().create_time());
  if (job.job().has_checkpoint()) {
    out.root_uuid = job.job().checkpoint().root_uuid();
    out.checkpoint_step = job.job().checkpoint().step();
  }
  if (job.state() == v1::JOB_STATE_QUEUED || ReadyToRestart(job.record())) {
    out.phase = JobPhase::kWaiting;
    view.jobs.push_back(std::move(out));
    return;
  }
  const bool running =
      job.state() == v1::JOB_STATE_RUNNING || job.state() == v1::JOB_STATE_STARTING;
  out.phase = running && !job.record().has_stop() ? JobPhase::kRunning : JobPhase::kStopping;
  out.workers.assign(job.job().workers().begin(), job.job().workers().end());
  out.started = gangs_.of(job.job().job_id()).started();
  const v1::CheckpointSpec& spec = job.job().spec().checkpoint();
  out.at_checkpoint = (spec.has_every_steps() && spec.every_steps() == 0) ||
                      Mono() - job.checkpoint_time < kCheckpointFresh;
  out.movable = job.state() == v1::JOB_STATE_RUNNING;
  for (const v1::RankRecord& rank : job.record().ranks()) {
    const WorkerState& worker = workers_.at(rank.worker_id());
    out.movable = out.movable && !rank.gone() && worker.connection != 0 && !Silent(worker);
  }
  view.jobs.push_back(std::move(out));
}

ClusterView CoreParts::View() const {
  ClusterView view;
  view.resize_interval = options_.resize_interval;
  view.resize_settle = options_.resize_settle;
  for (const auto& [id, worker] : workers_.all()) {
    WorkerView out;
    out.worker = &worker.worker();
    out.usable = Usable(worker);
    const bool wanted =
        !worker.worker().cordoned() && !worker.worker().draining() && !worker.Unhealthy();
    out.expected = !out.usable && wanted &&
                   Mono() - std::max(worker.gone_since, worker.last_seen) < options_.return_grace;
    out.draining = worker.worker().draining();
    out.unhealthy = worker.Unhealthy();
    out.busy_with = !worker.foreign.empty() ? worker.foreign.begin()->first.first : worker.job_id;
    out.idle_since = worker.idle_since;
    view.workers.push_back(std::move(out));
  }
  const bool isolated = liveness_.HoldsLosses(Mono());
  for (const std::string& id : jobs_.active()) {
    const JobState& job = jobs_.at(id);
    const auto& ranks = job.record().ranks();
    const bool held = isolated && ReadyToRestart(job.record()) &&
                      std::any_of(ranks.begin(), ranks.end(),
                                  [](const v1::RankRecord& rank) { return rank.lost(); });
    if (!held) {
      AddJobView(job, view);
    }
  }
  for (const std::string& id : jobs_.waiting()) {
    AddJobView(jobs_.at(id), view);
  }
  return view;
}

void CoreParts::Schedule() {
  if (Mono() - start_time_ < kSettleAfterStart) {
    const bool all_back =
        std::all_of(workers_.all().begin(), workers_.all().end(),
                    [](const auto& entry) { return entry.second.connection != 0; });
    if (!all_back) {
      plan_.PlanAt(start_time_ + kSettleAfterStart);
      for (const std::string& id : jobs_.waiting()) {
        Wait({id, "reattaching", "the coordinator has just started and waits for its workers"});
      }
      return;
    }
  }
  const Decisions decisions = Plan(View(), Mono());
  for (const RequeueDecision& requeue : decisions.requeues) {
    Stop(*jobs_.Edit(requeue.job_id), v1::JOB_STATE_REQUEUEING, v1::CONTROL_BIT_STOP, "scheduler",
         requeue.reason_code, requeue.reason, false);
  }
  for (const StartDecision& start : decisions.starts) {
    Start(start);
  }
  for (const WaitDecision& wait : decisions.waits) {
    Wait(wait);
  }
  if (decisions.starts.empty() && decisions.requeues.empty()) {
    plan_.Forget();  // moving jobs to the queue changes nothing that a second plan would see
  }
}

void CoreParts::Start(const StartDecision& decision) {
  JobState& job = *jobs_.Edit(decision.job_id);
  if (job.record().paths_checked() || job.state() != v1::JOB_STATE_QUEUED) {
    StartGang(job, decision.workers);
    return;
  }
  const std::string& inspector = decision.workers.front();
  Wait({decision.job_id, "checking_paths", absl::StrCat("checking its paths on ", inspector)});
  if (Mono() >= job.inspect_until) {
    job.inspect_until = Mono() + kInspectTimeout;
    effects_.inspections.push_back({decision.job_id, job.job().etag(),
                                    workers_.Find(inspector)->connection, inspector,
                                    job.job().spec()});
  }
}

void CoreParts::Wait(const WaitDecision& decision) {
  JobState& job = *jobs_.Edit(decision.job_id);
  if (job.state() == v1::JOB_STATE_RECOVERING) {
    Transition(job, v1::JOB_STATE_QUEUED, "scheduler", decision.reason_code, decision.reason);
    return;
  }
  v1::Job& view = job.job();
  if (view.reason() != decision.reason || view.reason_code() != decision.reason_code) {
    view.set_reason_code(decision.reason_code);
    view.set_reason(decision.reason);
    jobs_.Mark(job, false);
  }
}

}  // namespace hearth::coordinator
