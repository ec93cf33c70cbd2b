#include "coordinator/core/placement/cluster_views.h"

#include <algorithm>
#include <string>
#include <utility>

#include "coordinator/core/errors.h"
#include "coordinator/core/gangs/verdict.h"
#include "coordinator/core/jobs/resume_point.h"

namespace hearth::coordinator {
namespace {

// A resize starts right after a checkpoint, so that little is repeated.
constexpr absl::Duration kCheckpointFresh = absl::Seconds(10);

// `isolated`: see Liveness::HoldsLosses.
JobPhase PhaseOf(const v1::JobRecord& record, bool isolated) {
  const auto& ranks = record.ranks();
  if (ReadyToRestart(record)) {
    // Its lost ranks may train on behind the cut, and two epochs would run at once.
    const bool held =
        isolated && std::any_of(ranks.begin(), ranks.end(),
                                [](const v1::RankRecord& rank) { return rank.lost(); });
    return held ? JobPhase::kReturns : JobPhase::kWaiting;
  }
  switch (record.job().state()) {
    case v1::JOB_STATE_STARTING:
    case v1::JOB_STATE_RUNNING:
      return record.has_stop() ? JobPhase::kStopping : JobPhase::kRunning;
    case v1::JOB_STATE_RECOVERING:
    case v1::JOB_STATE_REQUEUEING:
      return JobPhase::kReturns;
    case v1::JOB_STATE_PAUSING:  // it may have been resumed meanwhile
      return record.job().desired() == v1::DESIRED_RUN ? JobPhase::kReturns : JobPhase::kStopping;
    default:
      return JobPhase::kStopping;
  }
}

}  // namespace

ClusterView ClusterViews::View() const {
  ClusterView view;
  view.aging = options_.aging;
  view.resize_interval = options_.resize_interval;
  view.resize_settle = options_.resize_settle;
  for (const auto& [id, worker] : workers_.all()) {
    WorkerView out;
    out.worker = &worker.worker();
    out.usable = Usable(worker);
    const bool wanted =
        !worker.worker().cordoned() && !worker.worker().draining() && !worker.Unhealthy();
    // Gone so briefly that jobs wait for it, instead of being told that too few workers exist.
    out.expected =
        !out.usable && wanted &&
        turn_.mono() - std::max(worker.gone_since, worker.last_seen) < options_.return_grace;
    out.draining = worker.worker().draining();
    out.stopping = worker.Stopping();
    out.unhealthy = worker.Unhealthy();
    // A fenced task still holds the device, although no job here has the worker.
    out.busy_with = !worker.foreign.empty() ? worker.foreign.begin()->first.first : worker.job_id;
    out.idle_since = worker.idle_since;
    view.workers.push_back(std::move(out));
  }
  const bool isolated = liveness_.HoldsLosses(turn_.mono());
  for (const std::string& id : jobs_.active()) {
    const JobState& job = jobs_.at(id);
    AddJob(job, PhaseOf(job.record(), isolated), view);
  }
  view.waiting = &jobs_.waiting();
  return view;
}

bool ClusterViews::EverybodyIsBack() const {
  return std::all_of(workers_.all().begin(), workers_.all().end(),
                     [](const auto& entry) { return entry.second.connection != 0; });
}

void ClusterViews::AddJob(const JobState& job, JobPhase phase, ClusterView& view) const {
  JobView out;
  out.phase = phase;
  out.job_id = job.job().job_id();
  out.spec = &job.job().spec();
  out.queue_time = QueueTimeOf(job.record());
  const ResumePoint from = ResumePointOf(job.job());
  out.root_uuid = from.root_uuid;
  out.checkpoint_step = from.checkpoint_step;
  out.too_small_bytes = job.record().too_small_bytes();
  if (ReadyToRestart(job.record())) {
    view.jobs.push_back(std::move(out));
    return;
  }
  out.workers.assign(job.job().workers().begin(), job.job().workers().end());
  out.started = gangs_.of(job.job().job_id()).started();
  const v1::CheckpointSpec& spec = job.job().spec().checkpoint();
  // A job without periodic checkpoints has no better moment to be moved than now.
  out.at_checkpoint = (spec.has_every_steps() && spec.every_steps() == 0) ||
                      turn_.mono() - job.checkpoint_time < kCheckpointFresh;
  out.movable = job.state() == v1::JOB_STATE_RUNNING;
  // A requeue saves first, and for that every rank has to answer.
  for (const v1::RankRecord& rank : job.record().ranks()) {
    const WorkerState& worker = workers_.at(rank.worker_id());
    out.movable = out.movable && !rank.gone() && worker.connection != 0 &&
                  !liveness_.Silent(worker, turn_.mono());
  }
  view.jobs.push_back(std::move(out));
}

bool ClusterViews::Usable(const WorkerState& worker) const {
  const v1::Worker& view = worker.worker();
  return worker.connection != 0 && !worker.Stopping() && !worker.Unhealthy() && !view.cordoned() &&
         !view.draining() && !liveness_.Silent(worker, turn_.mono());
}

}  // namespace hearth::coordinator
