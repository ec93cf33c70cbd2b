#include "coordinator/core/jobs/job_commands.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/reasons/reason_codes.h"
#include "common/spec/fields/rows.h"
#include "common/spec/objective/objective_table.h"
#include "coordinator/core/errors.h"
#include "coordinator/core/event_bounds.h"
#include "coordinator/core/jobs/evaluated_models.h"
#include "coordinator/core/jobs/notifications.h"
#include "coordinator/core/jobs/start_conditions.h"
#include "coordinator/core/transitions.h"

namespace hearth::coordinator {
namespace {

absl::Status Precondition(const std::string& reason, const std::string& message) {
  return MakeError(absl::StatusCode::kFailedPrecondition, reason, message);
}

absl::Status AnswerForgotten() {
  return MakeError(absl::StatusCode::kUnavailable, "REQUEST_FORGOTTEN",
                   "the answer to this request_id has just been forgotten; send it again");
}

// Whether a job that has succeeded may go on with `spec`: something is left to do, and there is a
// checkpoint to continue from.
absl::Status CheckExtension(const v1::Job& job, const v1::JobSpec& spec) {
  if (!spec::Trains(spec)) {
    return Precondition("NO_STEPS_LEFT", absl::StrCat("job ", job.job_id(), " has done its work, ",
                                                      spec::StepText(job),
                                                      ", and cannot be extended; submit "
                                                      "another one"));
  }
  if (spec.train().steps() <= job.step()) {
    return Precondition(
        "NO_STEPS_LEFT",
        absl::StrCat("job ", job.job_id(), " has succeeded: it has done ", job.step(),
                     " steps; to extend it, set train.steps to more: jobctl resume ", job.job_id(),
                     " --set train.steps=", 2 * job.step()));
  }
  if (!job.has_checkpoint()) {
    return Precondition("NO_CHECKPOINT",
                        absl::StrCat("job ", job.job_id(),
                                     " has succeeded and its checkpoints were deleted, so nothing "
                                     "is left to extend; jobctl rerun ",
                                     job.job_id(), " --set train.steps=", spec.train().steps(),
                                     " trains from the beginning"));
  }
  return absl::OkStatus();
}

// A job as it is submitted, without what only other jobs tell of it.
v1::JobRecord NewRecord(const CreateJob& command, const std::string& id, absl::Time now) {
  v1::JobRecord record;
  record.set_paths_checked(command.paths_checked);
  v1::Job& view = *record.mutable_job();
  view.set_job_id(id);
  *view.mutable_spec() = command.spec;
  view.set_owner(command.owner);
  view.set_state(v1::JOB_STATE_QUEUED);
  view.set_desired(v1::DESIRED_RUN);
  view.set_reason_code(reasons::kSubmitted);
  view.set_reason("accepted, not yet looked at by the scheduler");
  *view.mutable_create_time() = *view.mutable_update_time() = ToProto(now);
  *view.mutable_state_time() = view.create_time();
  for (const std::string& warning : command.warnings) {
    view.add_warnings(warning);
  }
  return record;
}

}  // namespace

std::vector<CommandRow> JobCommands::Rows() {
  return {
      Row<&JobCommands::Create>("create_job", OnFullDisk::kRefused, "create"),
      Row<&JobCommands::Update>("update_job", OnFullDisk::kRefused),
      Row<&JobCommands::Cancel>("cancel_job", OnFullDisk::kApplied, "cancel"),
      Row<&JobCommands::Pause>("pause_job", OnFullDisk::kRefused, "pause"),
      Row<&JobCommands::Resume>("resume_job", OnFullDisk::kRefused, "resume"),
      Row<&JobCommands::AddNote>("add_note", OnFullDisk::kRefused, "note"),
  };
}

std::string JobCommands::IdFor(const CreateJob& command) const {
  std::string id = command.job_id;
  // The shortest suffix that is free, as people type these ids.
  for (size_t n = 5; command.job_id.empty() && n <= command.id_suffix.size(); ++n) {
    id = MakeJobId(command.spec.name(), command.id_suffix.substr(0, n));
    if (jobs_.Find(id) == nullptr) {
      break;
    }
  }
  return id;
}

void JobCommands::Create(const CreateJob& command) {
  if (command.answered) {
    // The service saw an earlier answer and left out the checks of the spec. Since then the answer
    // has expired, so this spec is unchecked.
    turn_.ReplyError(AnswerForgotten());
    return;
  }
  const std::string id = IdFor(command);
  absl::Status valid = ValidateJobId(id);
  if (!valid.ok()) {
    turn_.ReplyError(MakeError(valid.code(), "BAD_JOB_ID", std::string(valid.message())));
    return;
  }
  if (jobs_.Find(id) != nullptr) {
    turn_.ReplyError(MakeError(absl::StatusCode::kAlreadyExists, "JOB_EXISTS",
                               absl::StrCat("job ", id, " exists already"), {{"job_id", id}}));
    return;
  }
  const auto owner =
      command.own_jobs_only ? std::optional<std::string>(command.owner) : std::nullopt;
  auto models = EvaluatedModels(command.spec, jobs_, owner);
  if (!models.ok()) {
    turn_.ReplyError(models.status());
    return;
  }
  if (absl::Status allowed = CheckReceiversAllowed(command.spec, options_); !allowed.ok()) {
    turn_.ReplyError(std::move(allowed));
    return;
  }
  auto start = StartRecordOf(command.spec.start(), id, v1::StartRecord(), jobs_, turn_.wall());
  if (!start.ok()) {
    turn_.ReplyError(start.status());
    return;
  }
  v1::JobRecord record = NewRecord(command, id, turn_.wall());
  v1::Job& view = *record.mutable_job();
  *view.mutable_models() = *std::move(models);
  if (command.spec.has_start()) {
    *record.mutable_start() = *std::move(start);
  }
  if (record.start().time_came()) {
    view.add_warnings("start.not_before has already passed, so the job does not wait for it");
  }
  if (jobs_.all().size() >= options_.max_jobs) {
    turn_.ReplyError(MakeError(absl::StatusCode::kResourceExhausted, "TOO_MANY_JOBS",
                               absl::StrCat(jobs_.all().size(),
                                            " jobs are kept, which is the limit "
                                            "(hearth-coordinator --max-jobs); delete some "
                                            "that have ended")));
    return;
  }
  // Behind every check that a real submit could fail.
  if (command.validate_only) {
    turn_.ReplyJob(view);
    return;
  }
  JobState& kept = jobs_.Add(JobState(std::move(record)), turn_.now());
  states_.AddEvent(kept, "state", turn_.user(), reasons::kSubmitted, "submitted",
                   v1::JOB_STATE_UNSPECIFIED, v1::JOB_STATE_QUEUED);
  for (const std::string& warning : command.warnings) {
    states_.Note(kept, "warning", "coordinator", warning);
  }
  turn_.ReplyJob(kept.job());
}

void JobCommands::Update(const v1::UpdateJobRequest& request) {
  JobState* job = states_.FindOrReply(request.job_id(), request.etag());
  if (job == nullptr) {
    return;
  }
  // A copy: a request that is refused must leave the job as it is.
  v1::JobSpec spec = job->job().spec();
  std::string message;
  if (request.has_priority()) {
    v1::ResourceSpec& resources = *spec.mutable_resources();
    absl::StrAppend(&message, "priority ", resources.priority(), " -> ", request.priority(), "; ");
    resources.set_priority(request.priority());
    constexpr int kPriority = v1::ResourceSpec::kPriorityFieldNumber;
    if (!spec::InRange(resources, kPriority)) {
      turn_.ReplyError(MakeError(
          absl::StatusCode::kInvalidArgument, "OUT_OF_RANGE",
          absl::StrCat("priority is ", request.priority(), "; it must be within ",
                       spec::RangeText(*resources.GetDescriptor()->FindFieldByNumber(kPriority)))));
      return;
    }
  }
  for (const auto& [key, value] : request.labels()) {
    if (value.empty()) {
      spec.mutable_labels()->erase(key);
      absl::StrAppend(&message, "label ", key, " removed; ");
    } else {
      (*spec.mutable_labels())[key] = value;
      absl::StrAppend(&message, "label ", key, "=", value, "; ");
    }
  }
  if (spec.labels_size() > 32) {
    turn_.ReplyError(MakeError(absl::StatusCode::kInvalidArgument, "TOO_MANY_LABELS",
                               "labels: at most 32 are kept"));
    return;
  }
  if (!message.empty()) {
    message.resize(message.size() - 2);
    job->set_spec(std::move(spec));
    states_.Note(*job, "update", turn_.user(), message);
    plan_.Ask();
  }
  turn_.ReplyJob(job->job());
}

void JobCommands::Cancel(const v1::CancelJobRequest& request) {
  JobState* job = states_.FindOrReply(request.job_id());
  if (job == nullptr) {
    return;
  }
  const v1::JobState state = job->state();
  if (state == v1::JOB_STATE_SUCCEEDED || state == v1::JOB_STATE_FAILED) {
    turn_.ReplyError(Precondition("JOB_ENDED", absl::StrCat("job ", request.job_id(), " has ",
                                                            StateName(state), " already")));
    return;
  }
  const std::string reason =
      request.now() ? "cancelled by the user, without a checkpoint" : "cancelled by the user";
  if (state != v1::JOB_STATE_CANCELLED) {
    job->set_desired(v1::DESIRED_CANCEL);
    jobs_.Mark(*job, true);
  }
  if (state == v1::JOB_STATE_QUEUED || state == v1::JOB_STATE_PAUSED) {
    states_.Transition(*job, v1::JOB_STATE_CANCELLED, turn_.user(), reasons::kUserCancel, reason);
  } else if (state == v1::JOB_STATE_CANCELLING) {
    // A stop by the time limit becomes the user's.
    job->gang().EndInFailure(false);
    job->gang().SayWhy(reasons::kUserCancel, reason);
    if (request.now() && !job->record().stop().kill()) {
      states_.Note(*job, "update", turn_.user(), "cancel without a checkpoint");
      ends_.Kill(*job, reason);
    }
  } else if (HasGang(state)) {
    ends_.Stop(*job, v1::JOB_STATE_CANCELLING, v1::CONTROL_BIT_STOP, turn_.user(),
               reasons::kUserCancel, reason, request.now());
  }
  turn_.ReplyJob(job->job());
}

void JobCommands::Pause(const v1::PauseJobRequest& request) {
  JobState* job = states_.FindOrReply(request.job_id());
  if (job == nullptr) {
    return;
  }
  const v1::JobState state = job->state();
  if (IsTerminal(state) || state == v1::JOB_STATE_CANCELLING) {
    turn_.ReplyError(Precondition(
        "NOT_PAUSABLE", absl::StrCat("job ", request.job_id(), " cannot be paused: its state is ",
                                     StateName(state))));
    return;
  }
  job->set_desired(v1::DESIRED_PAUSE);
  jobs_.Mark(*job, true);
  if (state == v1::JOB_STATE_QUEUED) {
    states_.Transition(*job, v1::JOB_STATE_PAUSED, turn_.user(), reasons::kUserPause,
                       "paused by the user");
  } else if (state != v1::JOB_STATE_PAUSING && state != v1::JOB_STATE_PAUSED) {
    ends_.Stop(*job, v1::JOB_STATE_PAUSING, v1::CONTROL_BIT_PAUSE, turn_.user(),
               reasons::kUserPause, "paused by the user", false);
  }
  turn_.ReplyJob(job->job());
}

absl::Status JobCommands::CheckResume(const JobState& job, const ResumeJob& command) {
  const v1::JobState state = job.state();
  const bool stopped = state == v1::JOB_STATE_PAUSED || IsTerminal(state);
  if (!command.etag.empty() && command.etag != job.job().etag()) {
    return EtagMismatch(command.job_id);
  }
  if (state == v1::JOB_STATE_CANCELLING) {
    return Precondition("NOT_RESUMABLE",
                        absl::StrCat("job ", command.job_id, " cannot be resumed: its state is ",
                                     StateName(state), "; wait until it is cancelled"));
  }
  if (!stopped && !command.overrides.empty()) {
    return Precondition("NOT_STOPPED",
                        absl::StrCat("job ", command.job_id, " is ", StateName(state),
                                     "; pause it before changing its spec"));
  }
  const v1::JobSpec& spec = command.spec.has_value() ? *command.spec : job.job().spec();
  if (state == v1::JOB_STATE_SUCCEEDED) {
    HEARTH_RETURN_IF_ERROR(CheckExtension(job.job(), spec));
  }
  const double limit = static_cast<double>(spec.resources().time_limit().seconds());
  if (stopped && spec.resources().has_time_limit() && job.job().running_seconds() >= limit) {
    return Precondition("TIME_LIMIT_USED_UP",
                        absl::StrCat("resources.time_limit of ", limit, " s is used up (",
                                     job.job().running_seconds(), " s); raise it on resume"));
  }
  return absl::OkStatus();
}

void JobCommands::Resume(const ResumeJob& command) {
  if (command.answered) {
    turn_.ReplyError(AnswerForgotten());
    return;
  }
  JobState* job = states_.FindOrReply(command.job_id);
  if (job == nullptr) {
    return;
  }
  if (absl::Status status = CheckResume(*job, command); !status.ok()) {
    turn_.ReplyError(std::move(status));
    return;
  }
  const v1::JobState state = job->state();
  if (state == v1::JOB_STATE_PAUSING) {
    // Starts again as soon as it has stopped; there is no way back from a control word that was
    // sent.
    job->set_desired(v1::DESIRED_RUN);
    states_.Note(*job, "update", turn_.user(), "will be resumed when it has paused");
  } else if (!HasGang(state) && state != v1::JOB_STATE_QUEUED) {
    if (absl::Status status = Requeue(*job, command); !status.ok()) {
      turn_.ReplyError(std::move(status));
      return;
    }
  }
  turn_.ReplyJob(job->job());
}

absl::Status JobCommands::Requeue(JobState& job, const ResumeJob& command) {
  const v1::JobSpec& before = job.job().spec();  // until it is set below
  const v1::JobSpec& after = command.spec.has_value() ? *command.spec : before;
  const bool was_held = IsHeld(job.record());
  const bool has_start = before.has_start() || after.has_start();
  const bool same_start = after.start().SerializeAsString() == before.start().SerializeAsString();
  // What has come about of the conditions of the start stays so, unless there are others now.
  HEARTH_ASSIGN_OR_RETURN(
      v1::StartRecord start,
      StartRecordOf(after.start(), command.job_id,
                    same_start ? job.record().start() : v1::StartRecord(), jobs_, turn_.wall()));
  if (command.spec.has_value()) {
    HEARTH_RETURN_IF_ERROR(CheckReceiversAllowed(after, options_));
    job.set_spec(*command.spec);
  }
  for (const FieldOverride& change : command.overrides) {
    // The new value may name files that nobody has looked at yet.
    job.set_paths_checked(false);
    states_.Note(job, "override", turn_.user(),
                 absl::StrCat(change.field, ": ", change.old_value, " -> ", change.new_value));
  }
  job.set_desired(v1::DESIRED_RUN);
  // Somebody has looked at the job, so its failures count from here, and it may need less memory.
  job.set_restarts(0);
  job.set_too_small_bytes(0);
  if (has_start) {
    jobs_.SetStart(job, was_held, std::move(start), turn_.now());
  }
  if (job.state() == v1::JOB_STATE_SUCCEEDED) {
    // Jobs that wait for its success have it, whatever comes of the extension.
    conditions_.Check();
  }
  states_.Transition(job, v1::JOB_STATE_QUEUED, turn_.user(), reasons::kUserResume,
                     "resumed by the user");
  return absl::OkStatus();
}

void JobCommands::AddNote(const v1::AddNoteRequest& request) {
  JobState* job = states_.FindOrReply(request.job_id());
  if (job == nullptr) {
    return;
  }
  if (absl::StripAsciiWhitespace(request.text()).empty()) {
    turn_.ReplyError(
        MakeError(absl::StatusCode::kInvalidArgument, "NO_TEXT", "text: a note must not be empty"));
    return;
  }
  states_.Note(*job, std::string(kNoteEvent), turn_.user(), request.text());
  turn_.ReplyJob(job->job());
}

}  // namespace hearth::coordinator
