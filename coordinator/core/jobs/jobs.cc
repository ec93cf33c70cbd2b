#include "coordinator/core/jobs/jobs.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clip_text.h"
#include "common/base/status_macros.h"
#include "common/reasons/reason_codes.h"
#include "common/spec/objective/objective_table.h"
#include "coordinator/core/errors.h"
#include "coordinator/core/event_bounds.h"
#include "coordinator/core/jobs/resume_point.h"
#include "coordinator/core/transitions.h"

namespace hearth::coordinator {
namespace {

// Limit of an event's message. It may quote what a user or a trainer said.
constexpr size_t kEventTextMax = 4096;
// Types of events that say something of a job and change nothing about it.
constexpr std::string_view kRemarks[] = {kNoteEvent, "notification", "keep_last"};

}  // namespace

void JobState::BeginEpoch(const std::vector<std::string>& workers) {
  v1::Job& job = *row_.mutable_job();
  job.set_epoch(job.epoch() + 1);
  job.mutable_workers()->Assign(workers.begin(), workers.end());
  job.clear_run_info();
}

void JobState::ForgetRankZero() {
  row_.mutable_job()->clear_phase();
  row_.mutable_job()->clear_stragglers();
}

void JobState::set_plan(const std::optional<v1::JobPlan>& plan) {
  if (plan.has_value()) {
    *row_.mutable_plan() = *plan;
  } else {
    row_.clear_plan();
  }
}

void JobState::set_stuck_since(const std::optional<absl::Time>& since) {
  if (since.has_value()) {
    *row_.mutable_job()->mutable_stuck_since() = ToProto(*since);
  } else {
    row_.mutable_job()->clear_stuck_since();
  }
}

void JobState::NameNewest() {
  if (row_.checkpoints().empty()) {
    row_.mutable_job()->clear_checkpoint();
  } else {
    *row_.mutable_job()->mutable_checkpoint() = row_.checkpoints(0);
  }
}

void JobState::set_queued(absl::Time time, v1::Moment moment) {
  *row_.mutable_queue_time() = ToProto(time);
  *row_.mutable_queue_moment() = std::move(moment);
}

double Jobs::RunningSeconds(const JobState& job, absl::Duration now) {
  return job.record().running_base() + absl::ToDoubleSeconds(now - job.running_since);
}

int64_t Jobs::LastStep(const JobState& job) {
  // A resume may have set train.steps below what is done.
  return std::max({spec::TotalSteps(job.job()), job.job().step(), job.job().checkpoint().step()});
}

void Jobs::Restore(const v1::JobRecord& record, Now now) {
  JobState& job = Keep(JobState(record));
  job.gang().Restored();
  job.set_isolation("");
  queue_clock_.Restore(record, now);
  job.running_since = now.monotonic;
  if (job.state() == v1::JOB_STATE_RUNNING) {
    // The machine has not booted since: its monotonic clock also counted while no coordinator ran.
    // After a boot the time goes on from what was reported last.
    if (const auto since = TimeSince(record.running_since(), now)) {
      job.running_since -= *since;
    } else {
      job.set_running(std::max(record.running_base(), record.job().running_seconds()),
                      MomentOf(now));
    }
  }
  KeepSets(job);
}

JobState& Jobs::Add(JobState job, Now now) {
  plan_.Ask();
  job.set_queued(queue_clock_.Read(now), MomentOf(now));
  JobState& kept = Keep(std::move(job));
  KeepSets(kept);
  return kept;
}

void Jobs::SetStart(JobState& job, bool was_held, v1::StartRecord start, Now now) {
  job.set_start(std::move(start));
  if (was_held && !IsHeld(job.record())) {
    job.set_queued(queue_clock_.Read(now), MomentOf(now));
  }
  KeepSets(job);
  Mark(job, true);
  plan_.Ask();
}

void Jobs::Delete(const std::string& job_id, Effects& effects) {
  effects.job_deletes.push_back(job_id);
  readers_changed_ = true;  // it may have read models, or be one whose checkpoints are read
  waiting_.Remove(job_id);
  held_.Remove(job_id);
  if (held_.by_job().contains(job_id)) {
    // How it ended stands here from now on: another job may get its id.
    ended_[job_id] = {at(job_id).state(), /*deleted=*/true};
  }
  // Its key is a view of the one in jobs_, so it goes first.
  index_.erase(job_id);
  jobs_.erase(job_id);
}

JobState& Jobs::Keep(JobState job) {
  const std::string id = job.job().job_id();
  const auto kept = jobs_.insert_or_assign(id, std::move(job)).first;
  // A view of the map's own key, which lives as long as the entry; `id` does not.
  index_[kept->first] = &kept->second;
  return kept->second;
}

void Jobs::KeepSets(const JobState& job) {
  const v1::Job& view = job.job();
  if (HasGang(job.state())) {
    active_.insert(view.job_id());
  } else {
    active_.erase(view.job_id());
  }
  if (IsTerminal(job.state()) && held_.by_job().contains(view.job_id())) {
    ended_[view.job_id()] = {job.state(), /*deleted=*/false};
  }
  const bool queued = job.state() == v1::JOB_STATE_QUEUED;
  const bool held = queued && IsHeld(job.record());
  if (held) {
    held_.Put(job.record());
  } else {
    held_.Remove(view.job_id());
  }
  if (!queued || held) {
    waiting_.Remove(view.job_id());
    return;
  }
  const ResumePoint from = ResumePointOf(view);
  waiting_.Put(
      DemandOf(view.spec(), from.root_uuid, from.checkpoint_step, job.record().too_small_bytes()),
      PlaceInQueue(view.spec().resources().priority(), QueueTimeOf(job.record()), view.job_id(),
                   aging_));
}

const JobState* Jobs::Find(const std::string& job_id) const {
  ++visits_;
  const auto it = index_.find(job_id);
  return it == index_.end() ? nullptr : it->second;
}

JobState* Jobs::Edit(const std::string& job_id) {
  ++visits_;
  const auto it = index_.find(job_id);
  return it == index_.end() ? nullptr : it->second;
}

void Jobs::Mark(const JobState& job, bool durable) {
  bool& mark = dirty_[job.job().job_id()];
  mark = mark || durable;
  readers_changed_ = readers_changed_ || !job.job().models().empty();
}

void Jobs::AddEvent(JobState& job,
                    const EventText& text,
                    v1::JobState from,
                    v1::JobState to,
                    Now now,
                    Effects& effects) {
  v1::JobEvent& event = effects.events.emplace_back();
  event.set_revision(++revision_);
  event.set_job_id(job.job().job_id());
  *event.mutable_time() = ToProto(now.wall);
  event.set_type(text.type);
  event.set_actor(text.actor);
  event.set_from_state(from);
  event.set_to_state(to);
  event.set_reason_code(text.code);
  event.set_message(ClipText(text.message, kEventTextMax));
  event.set_epoch(job.job().epoch());
  event.set_step(job.job().step());
  v1::Job& view = *job.row_.mutable_job();
  view.set_revision(revision_);
  // What is only said of a job must not make a change to it fail that somebody has prepared.
  if (std::find(std::begin(kRemarks), std::end(kRemarks), text.type) == std::end(kRemarks)) {
    view.set_etag(absl::StrCat(absl::Hex(revision_)));
  }
  *view.mutable_update_time() = ToProto(now.wall);
  Mark(job, true);
}

void Jobs::Transition(JobState& job,
                      v1::JobState to,
                      const std::string& actor,
                      const std::string& code,
                      const std::string& reason,
                      Now now,
                      Effects& effects) {
  const v1::JobState from = job.state();
  const std::string edge = absl::StrCat(StateName(from), " -> ", StateName(to));
  HEARTH_CHECK(IsLegalTransition(from, to), edge.c_str());
  HEARTH_CHECK(reasons::IsReasonCode(code), code.c_str());
  v1::Job& view = *job.row_.mutable_job();
  // Before the state changes: the time up to now counts as running.
  if (from == v1::JOB_STATE_RUNNING) {
    view.set_running_seconds(RunningSeconds(job, now.monotonic));
  }
  if (to == v1::JOB_STATE_RUNNING) {
    job.running_since = now.monotonic;
    job.set_running(view.running_seconds(), MomentOf(now));
    if (!view.has_start_time()) {
      *view.mutable_start_time() = ToProto(now.wall);
    }
  }
  view.clear_stuck_since();
  view.set_state(to);
  view.set_reason_code(code);
  view.set_reason(reason);
  *view.mutable_state_time() = ToProto(now.wall);
  view.clear_end_time();
  if (IsTerminal(to)) {
    *view.mutable_end_time() = ToProto(now.wall);
  }
  if ((IsTerminal(to) || to == v1::JOB_STATE_PAUSED) && view.recovery().seconds() == 0.0) {
    view.clear_recovery();  // nothing will come of it
  }
  if (!HasGang(to)) {
    view.clear_workers();
    job.gang().ClearStop();
    if (HasGang(from)) {
      view.clear_isolation();
    }
  }
  KeepSets(job);
  CountReason(code);
  plan_.Ask();
  // Last: the event quotes the job as it is now, and its revision becomes the job's.
  AddEvent(job, {"state", actor, code, reason}, from, to, now, effects);
}

void Jobs::Flush(Effects& effects) {
  for (const auto& [id, durable] : dirty_) {
    if (const auto it = index_.find(id); it != index_.end()) {
      // Spec or checkpoint may have changed without a transition, and with them its place in the
      // queue.
      if (durable) {
        KeepSets(*it->second);
      }
      effects.jobs.push_back({it->second->record(), durable});
    }
  }
  dirty_.clear();
}

}  // namespace hearth::coordinator
