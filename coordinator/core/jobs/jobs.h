// The jobs: their records, their states and their events.
//
// A state changes in Transition alone, which checks the edge, writes the event and keeps the sets
// of jobs that have a gang and that wait. A job's record is one row of the store, which it shares
// with its gang: others read it, and change it through Edit and what JobState offers them, followed
// by an event or by Mark.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/base/token_bucket.h"
#include "coordinator/core/core.h"
#include "coordinator/core/gangs/gang_row.h"
#include "coordinator/core/jobs/held_jobs.h"
#include "coordinator/core/jobs/queue_clock.h"
#include "coordinator/core/placement/plan_timer.h"
#include "coordinator/scheduler/waiting_lines.h"
#include "hearth/v1/store.pb.h"

namespace hearth::coordinator {

// A job's record and what is known of it only while the process lives. Durations are monotonic
// times.
//
// All may read the record. Each part of it changes through the calls below that stand under the
// name of its writer; its state, the times and texts of that state, and what an event brings
// (revision, etag) are changed by Jobs alone.
class JobState {
 public:
  explicit JobState(v1::JobRecord row) : row_(std::move(row)) {}

  const v1::JobRecord& record() const { return row_; }
  const v1::Job& job() const { return row_.job(); }
  v1::JobState state() const { return row_.job().state(); }
  // The ranks and the stop under way.
  GangRow gang() { return GangRow(row_); }

  // JobCommands: what users ask for. Inspections complete the spec with what a worker knows.
  void set_spec(v1::JobSpec spec) { *row_.mutable_job()->mutable_spec() = std::move(spec); }
  void set_desired(v1::Desired desired) { row_.mutable_job()->set_desired(desired); }
  // Inspections; a resume that changes the spec takes it back.
  void set_paths_checked(bool checked) { row_.set_paths_checked(checked); }
  // Placement and GangEnds: why it waits, while it stays in its state.
  void set_reason(const std::string& code, const std::string& reason) {
    row_.mutable_job()->set_reason_code(code);
    row_.mutable_job()->set_reason(reason);
  }

  // GangStarts: the next epoch, on these workers; nothing is known of its run.
  void BeginEpoch(const std::vector<std::string>& workers);
  v1::JobDevices& devices() { return *row_.mutable_job()->mutable_devices(); }  // and Heartbeats
  // GangEnds: failures since the last checkpoint or resume. Both of these set it to 0.
  void set_restarts(int32_t restarts) { row_.mutable_job()->set_restarts(restarts); }
  // GangEnds: a device of so much memory was too small for it. A resume sets it to 0.
  void set_too_small_bytes(int64_t bytes) { row_.set_too_small_bytes(bytes); }
  // What only a rank 0 that runs can say is no longer known.
  void ForgetRankZero();
  google::protobuf::RepeatedPtrField<v1::Straggler>& stragglers() {
    return *row_.mutable_job()->mutable_stragglers();
  }
  // Recoveries. `since` is the moment of recovery().fault_time.
  v1::Recovery& recovery() { return *row_.mutable_job()->mutable_recovery(); }
  void set_recovery_since(v1::Moment since) { *row_.mutable_recovery_since() = std::move(since); }
  // Isolation: why silent workers are not replaced; "" = they are.
  void set_isolation(const std::string& why) { row_.mutable_job()->set_isolation(why); }

  // Heartbeats and reports of rank 0.
  void set_phase(const std::string& phase) { row_.mutable_job()->set_phase(phase); }
  void set_run_info(const v1::RunInfo& info) { *row_.mutable_job()->mutable_run_info() = info; }
  void set_trial(const v1::PrecisionTrial& trial) { *row_.mutable_job()->mutable_trial() = trial; }
  void set_last_decision(const v1::GuardDecision& decision) {
    *row_.mutable_job()->mutable_last_decision() = decision;
  }
  // StepReports: what was found of each.
  google::protobuf::RepeatedPtrField<v1::EvaluatedModel>& models() {
    return *row_.mutable_job()->mutable_models();
  }
  void set_step(int64_t step) { row_.mutable_job()->set_step(step); }
  void set_last_report(v1::StepReport report) {
    *row_.mutable_job()->mutable_last_report() = std::move(report);
  }
  // Leaves an empty one, for a new one to take over what comes now and then.
  v1::StepReport TakeLastReport() {
    return std::exchange(*row_.mutable_job()->mutable_last_report(), v1::StepReport());
  }
  // RunPlans: what is planned and measured; nullopt = the job does not run on GPUs.
  void set_plan(const std::optional<v1::JobPlan>& plan);
  v1::JobPlan& plan() { return *row_.mutable_plan(); }
  void set_running_seconds(double seconds) { row_.mutable_job()->set_running_seconds(seconds); }
  // StuckJobs: since when it makes no step; nullopt = it makes some.
  void set_stuck_since(const std::optional<absl::Time>& since);
  // Notifications: what is told of it, and what it takes to tell what is pending.
  google::protobuf::RepeatedPtrField<v1::Notification>& notifications() {
    return *row_.mutable_job()->mutable_notifications();
  }
  google::protobuf::RepeatedPtrField<v1::PendingNotification>& pending_notifications() {
    return *row_.mutable_pending_notifications();
  }
  void set_history_cursor(int64_t cursor) { row_.set_history_cursor(cursor); }
  void set_log_cursor(int64_t cursor) { row_.set_log_cursor(cursor); }

  // Checkpoints: those that are recorded, newest first. NameNewest after each change: the job shows
  // the first of them, which is what it resumes from.
  google::protobuf::RepeatedPtrField<v1::Checkpoint>& checkpoints() {
    return *row_.mutable_checkpoints();
  }
  void NameNewest();

  absl::Duration running_since;
  absl::Duration checkpoint_time = -absl::InfiniteDuration();
  absl::Duration inspect_until = -absl::InfiniteDuration();  // an inspection is out until then
  std::optional<TokenBucket> log_rate;                       // made with the first batch

 private:
  friend class Jobs;
  void set_start(v1::StartRecord start) { *row_.mutable_start() = std::move(start); }
  // RUNNING since then, with so many seconds before.
  void set_running(double base, v1::Moment since) {
    row_.set_running_base(base);
    *row_.mutable_running_since() = std::move(since);
  }
  void set_queued(absl::Time time, v1::Moment moment);

  v1::JobRecord row_;
};

// No cursor of a history or a log grows past this, so that no sum of a few of them overflows.
inline constexpr int64_t kCursorMax = int64_t{1} << 62;

// How a job ended that others wait for.
struct EndOfJob {
  v1::JobState state = v1::JOB_STATE_UNSPECIFIED;  // of a deleted one: its last
  bool deleted = false;                            // another job may have its id by now
};

// What an event says. Its job, state and step are added from the job's record.
struct EventText {
  std::string type;
  std::string actor;
  std::string code;
  std::string message;
};

// Not thread-safe. References stay valid until the job is deleted.
class Jobs {
 public:
  // `plan` outlives this. `aging`: of waiting jobs, see PlaceInQueue. `last_revision`: of the
  // store's last event.
  Jobs(PlanTimer& plan, absl::Duration aging, int64_t last_revision)
      : plan_(plan), aging_(aging), revision_(last_revision) {}

  const std::map<std::string, JobState>& all() const { return jobs_; }
  // The same, each counted as looked up: for walks that a Tick may make.
  const std::map<std::string, JobState>& Walk() const {
    visits_ += static_cast<int64_t>(jobs_.size());
    return jobs_;
  }
  const std::set<std::string>& active() const { return active_; }  // they have a gang
  // QUEUED and waiting for workers, and QUEUED and waiting for what spec.start names.
  const WaitingLines& waiting() const { return waiting_; }
  const HeldJobs& held() const { return held_; }
  // For what is said of why they wait.
  WaitingLines& waiting_texts() { return waiting_; }
  const JobState& at(const std::string& job_id) const {
    ++visits_;
    return *index_.at(job_id);
  }
  // Null when unknown.
  const JobState* Find(const std::string& job_id) const;
  int64_t revision() const { return revision_; }
  // Transitions and losses since the start, by reason code.
  const std::map<std::string, int64_t>& reason_counts() const { return reason_counts_; }
  // Resources' time used up to now, in seconds; of a RUNNING job. Goes on while the coordinator is
  // away; not while its machine is, as far as no step was reported before.
  static double RunningSeconds(const JobState& job, absl::Duration now);
  // The last step that the job may be at.
  static int64_t LastStep(const JobState& job);

  // After a start. Numbers that damage may have left are brought within bounds.
  void Restore(const v1::JobRecord& record, Now now);
  // A new one, QUEUED, submitted now; its id is not taken. The caller adds the event.
  JobState& Add(JobState job, Now now);
  void Delete(const std::string& job_id, Effects& effects);

  // What has come about of its spec.start. `was_held`: IsHeld before this, and before its spec
  // changed. A job that is let go stands in the queue as if it was submitted now.
  void SetStart(JobState& job, bool was_held, v1::StartRecord start, Now now);
  // Jobs that others wait for and that have ended or were deleted since the last call.
  std::map<std::string, EndOfJob> TakeEnded() { return std::exchange(ended_, {}); }
  std::set<std::string> TakeUntoldHeld() { return held_.TakeUntold(); }

  // Null when unknown.
  JobState* Edit(const std::string& job_id);
  // Its row is to be written; `durable` false: for readers alone, nothing that a plan looks at has
  // changed.
  void Mark(const JobState& job, bool durable);
  void AddEvent(JobState& job,
                const EventText& text,
                v1::JobState from,
                v1::JobState to,
                Now now,
                Effects& effects);
  // Aborts when the edge is none of transitions.h or the reason code none of common/reasons. What
  // the gang shared and left behind is the caller's to clear when the new state has none.
  void Transition(JobState& job,
                  v1::JobState to,
                  const std::string& actor,
                  const std::string& code,
                  const std::string& reason,
                  Now now,
                  Effects& effects);
  // Whether a job that reads models (Job.models) has changed or any job was deleted since the last
  // call, or none was asked for yet.
  bool TakeReadersChanged() { return std::exchange(readers_changed_, false); }
  void CountReason(const std::string& code) { ++reason_counts_[code]; }
  // Jobs that were looked up since the last call; Visits.
  int64_t TakeVisits() { return std::exchange(visits_, 0); }
  // Hands out the rows that were marked.
  void Flush(Effects& effects);

 private:
  JobState& Keep(JobState job);
  // Keeps the sets up to date with its state, its spec and its checkpoint.
  void KeepSets(const JobState& job);

  PlanTimer& plan_;
  const absl::Duration aging_;
  int64_t revision_;
  std::map<std::string, JobState> jobs_;                   // by job id
  std::unordered_map<std::string_view, JobState*> index_;  // the same, to look up
  std::set<std::string> active_;
  WaitingLines waiting_;
  HeldJobs held_;
  std::map<std::string, EndOfJob> ended_;
  QueueClock queue_clock_;
  std::map<std::string, int64_t> reason_counts_;
  std::map<std::string, bool> dirty_;  // job id -> durable
  bool readers_changed_ = true;
  mutable int64_t visits_ = 0;
};

}  // namespace hearth::coordinator
