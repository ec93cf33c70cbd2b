// What users ask of jobs.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "coordinator/core/errors.h"
#include "coordinator/core/parts.h"

namespace hearth::coordinator {
namespace {

absl::Status Precondition(const std::string& reason, const std::string& message) {
  return MakeError(absl::StatusCode::kFailedPrecondition, reason, message);
}

absl::Status AnswerForgotten() {
  return MakeError(absl::StatusCode::kUnavailable, "REQUEST_FORGOTTEN",
                   "the answer to this request_id has just been forgotten; send it again");
}

absl::Status EtagMismatch(const std::string& job_id) {
  return MakeError(absl::StatusCode::kAborted, "ETAG_MISMATCH",
                   absl::StrCat("job ", job_id, " has changed since it was read; read it again"));
}

}  // namespace

std::vector<CommandRow> JobCommands() {
  return {
      Row<CreateJob>("create_job", OnFullDisk::kRefused, "create"),
      Row<v1::UpdateJobRequest>("update_job", OnFullDisk::kRefused),
      Row<v1::CancelJobRequest>("cancel_job", OnFullDisk::kApplied, "cancel"),
      Row<v1::PauseJobRequest>("pause_job", OnFullDisk::kRefused, "pause"),
      Row<ResumeJob>("resume_job", OnFullDisk::kRefused, "resume"),
      Row<v1::DeleteJobRequest>("delete_job"),
      Row<v1::DeleteCheckpointRequest>("delete_checkpoint"),
      Row<InspectionDone>("inspection_done"),
  };
}

void CoreParts::ReplyJob(const JobState& job) {
  effects_.reply = Reply{absl::OkStatus(), job.job(), std::nullopt};
}

void CoreParts::ReplyError(absl::Status status) {
  effects_.reply = Reply{std::move(status), std::nullopt, std::nullopt};
}

JobState* CoreParts::FindOrReply(const std::string& job_id) {
  JobState* job = jobs_.Edit(job_id);
  if (job == nullptr) {
    ReplyError(MakeError(absl::StatusCode::kNotFound, "JOB_NOT_FOUND",
                         absl::StrCat("no job ", job_id), {{"job_id", job_id}}));
  }
  return job;
}

bool CoreParts::AnsweredBefore(const RequestKey& key, const CommandRow& row) {
  const v1::RequestRecord* found =
      key.request_id.empty() ? nullptr : requests_.Find(key.request_id);
  if (found == nullptr) {
    return false;
  }
  const v1::RequestRecord& earlier = *found;
  if (earlier.method() != row.request_method ||
      (!key.job_id.empty() && earlier.job_id() != key.job_id)) {
    ReplyError(MakeError(absl::StatusCode::kInvalidArgument, "REQUEST_ID_REUSED",
                         absl::StrCat("request_id ", key.request_id, " was used to ",
                                      earlier.method(), " job ", earlier.job_id())));
  } else if (const JobState* job = FindOrReply(earlier.job_id())) {
    ReplyJob(*job);
  }
  return true;
}

void CoreParts::Remember(const std::string& request_id,
                         const CommandRow& row,
                         const std::string& job_id) {
  if (request_id.empty()) {
    return;
  }
  v1::RequestRecord record;
  record.set_request_id(request_id);
  record.set_method(row.request_method);
  record.set_job_id(job_id);
  *record.mutable_time() = ToProto(now_.wall);
  requests_.Remember(std::move(record), Mono(), effects_);
}

void CoreParts::On(const CreateJob& command) {
  if (command.answered) {
    ReplyError(AnswerForgotten());
    return;
  }
  std::string id = command.job_id;
  for (size_t n = 5; command.job_id.empty() && n <= command.id_suffix.size(); ++n) {
    id = MakeJobId(command.spec.name(), command.id_suffix.substr(0, n));
    if (jobs_.Find(id) == nullptr) {
      break;
    }
  }
  absl::Status valid = ValidateJobId(id);
  if (!valid.ok()) {
    ReplyError(MakeError(valid.code(), "BAD_JOB_ID", std::string(valid.message())));
    return;
  }
  if (jobs_.Find(id) != nullptr) {
    ReplyError(MakeError(absl::StatusCode::kAlreadyExists, "JOB_EXISTS",
                         absl::StrCat("job ", id, " exists already"), {{"job_id", id}}));
    return;
  }
  JobState job;
  job.set_paths_checked(command.paths_checked);
  v1::Job& view = job.job();
  view.set_job_id(id);
  *view.mutable_spec() = command.spec;
  view.set_state(v1::JOB_STATE_QUEUED);
  view.set_desired(v1::DESIRED_RUN);
  view.set_reason_code("submitted");
  view.set_reason("accepted, not yet looked at by the scheduler");
  *view.mutable_create_time() = *view.mutable_update_time() = ToProto(now_.wall);
  *view.mutable_state_time() = view.create_time();
  for (const std::string& warning : command.warnings) {
    view.add_warnings(warning);
  }
  if (jobs_.all().size() >= options_.max_jobs) {
    ReplyError(MakeError(absl::StatusCode::kResourceExhausted, "TOO_MANY_JOBS",
                         absl::StrCat(jobs_.all().size(),
                                      " jobs are kept, which is the limit "
                                      "(hearth-coordinator --max-jobs); delete some "
                                      "that have ended")));
    return;
  }
  if (command.validate_only) {
    ReplyJob(job);
    return;
  }
  JobState& kept = jobs_.Add(std::move(job));
  AddEvent(kept, "state", "user", "submitted", "submitted", v1::JOB_STATE_UNSPECIFIED,
           v1::JOB_STATE_QUEUED);
  for (const std::string& warning : command.warnings) {
    Note(kept, "warning", "coordinator", warning);
  }
  ReplyJob(kept);
}

void CoreParts::On(const v1::UpdateJobRequest& request) {
  JobState* job = FindOrReply(request.job_id());
  if (job == nullptr) {
    return;
  }
  if (!request.etag().empty() && request.etag() != job->job().etag()) {
    ReplyError(EtagMismatch(request.job_id()));
    return;
  }
  if (request.has_priority() && (request.priority() < -1000 || request.priority() > 1000)) {
    ReplyError(MakeError(
        absl::StatusCode::kInvalidArgument, "OUT_OF_RANGE",
        absl::StrCat("priority is ", request.priority(), "; it must be within -1000..1000")));
    return;
  }
  v1::JobSpec spec = job->job().spec();
  std::string message;
  if (request.has_priority()) {
    absl::StrAppend(&message, "priority ", spec.resources().priority(), " -> ", request.priority(),
                    "; ");
    spec.mutable_resources()->set_priority(request.priority());
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
    ReplyError(MakeError(absl::StatusCode::kInvalidArgument, "TOO_MANY_LABELS",
                         "labels: at most 32 are kept"));
    return;
  }
  if (!message.empty()) {
    message.resize(message.size() - 2);
    *job->job().mutable_spec() = std::move(spec);
    Note(*job, "update", "user", message);
    plan_.Ask();
  }
  ReplyJob(*job);
}

void CoreParts::On(const v1::CancelJobRequest& request) {
  JobState* job = FindOrReply(request.job_id());
  if (job == nullptr) {
    return;
  }
  const v1::JobState state = job->state();
  if (state == v1::JOB_STATE_SUCCEEDED || state == v1::JOB_STATE_FAILED) {
    ReplyError(Precondition("JOB_ENDED", absl::StrCat("job ", request.job_id(), " has ",
                                                      StateName(state), " already")));
    return;
  }
  const std::string reason =
      request.now() ? "cancelled by the user, without a checkpoint" : "cancelled by the user";
  if (state != v1::JOB_STATE_CANCELLED) {
    job->job().set_desired(v1::DESIRED_CANCEL);
    jobs_.Mark(*job, true);
  }
  if (state == v1::JOB_STATE_QUEUED || state == v1::JOB_STATE_PAUSED) {
    Transition(*job, v1::JOB_STATE_CANCELLED, "user", "user_cancel", reason);
  } else if (state == v1::JOB_STATE_CANCELLING) {
    // A stop by the time limit becomes the user's.
    job->gang().EndInFailure(false);
    job->gang().SayWhy("user_cancel", reason);
    if (request.now() && !job->record().stop().kill()) {
      Note(*job, "update", "user", "cancel without a checkpoint");
      Kill(*job, reason);
    }
  } else if (HasGang(state)) {
    Stop(*job, v1::JOB_STATE_CANCELLING, v1::CONTROL_BIT_STOP, "user", "user_cancel", reason,
         request.now());
  }
  ReplyJob(*job);
}

void CoreParts::On(const v1::PauseJobRequest& request) {
  JobState* job = FindOrReply(request.job_id());
  if (job == nullptr) {
    return;
  }
  const v1::JobState state = job->state();
  if (IsTerminal(state) || state == v1::JOB_STATE_CANCELLING) {
    ReplyError(Precondition(
        "NOT_PAUSABLE", absl::StrCat("job ", request.job_id(), " cannot be paused: its state is ",
                                     StateName(state))));
    return;
  }
  job->job().set_desired(v1::DESIRED_PAUSE);
  jobs_.Mark(*job, true);
  if (state == v1::JOB_STATE_QUEUED) {
    Transition(*job, v1::JOB_STATE_PAUSED, "user", "user_pause", "paused by the user");
  } else if (state != v1::JOB_STATE_PAUSING && state != v1::JOB_STATE_PAUSED) {
    Stop(*job, v1::JOB_STATE_PAUSING, v1::CONTROL_BIT_PAUSE, "user", "user_pause",
         "paused by the user", false);
  }
  ReplyJob(*job);
}

absl::Status CoreParts::CheckResume(const JobState& job, const ResumeJob& command) const {
  const v1::JobState state = job.state();
  const bool stopped = state == v1::JOB_STATE_PAUSED || state == v1::JOB_STATE_FAILED ||
                       state == v1::JOB_STATE_CANCELLED;
  if (!command.etag.empty() && command.etag != job.job().etag()) {
    return EtagMismatch(command.job_id);
  }
  if (state == v1::JOB_STATE_SUCCEEDED || state == v1::JOB_STATE_CANCELLING) {
    return Precondition("NOT_RESUMABLE",
                        absl::StrCat("job ", command.job_id, " cannot be resumed: its state is ",
                                     StateName(state), "; a paused, failed or cancelled job can"));
  }
  if (!stopped && !command.overrides.empty()) {
    return Precondition("NOT_STOPPED",
                        absl::StrCat("job ", command.job_id, " is ", StateName(state),
                                     "; pause it before changing its spec"));
  }
  const v1::JobSpec& spec = command.spec.has_value() ? *command.spec : job.job().spec();
  const double limit = static_cast<double>(spec.resources().time_limit().seconds());
  if (stopped && spec.resources().has_time_limit() && job.job().running_seconds() >= limit) {
    return Precondition("TIME_LIMIT_USED_UP",
                        absl::StrCat("resources.time_limit of ", limit, " s is used up (",
                                     job.job().running_seconds(), " s); raise it on resume"));
  }
  return absl::OkStatus();
}

void CoreParts::On(const ResumeJob& command) {
  if (command.answered) {
    ReplyError(AnswerForgotten());
    return;
  }
  JobState* job = FindOrReply(command.job_id);
  if (job == nullptr) {
    return;
  }
  if (absl::Status status = CheckResume(*job, command); !status.ok()) {
    ReplyError(std::move(status));
    return;
  }
  const v1::JobState state = job->state();
  if (state == v1::JOB_STATE_PAUSING) {
    // Starts again as soon as it has stopped; there is no way back from a control word that was
    // sent.
    job->job().set_desired(v1::DESIRED_RUN);
    Note(*job, "update", "user", "will be resumed when it has paused");
  } else if (!HasGang(state) && state != v1::JOB_STATE_QUEUED) {
    if (command.spec.has_value()) {
      *job->job().mutable_spec() = *command.spec;
    }
    for (const FieldOverride& change : command.overrides) {
      job->set_paths_checked(false);
      Note(*job, "override", "user",
           absl::StrCat(change.field, ": ", change.old_value, " -> ", change.new_value));
    }
    job->job().set_desired(v1::DESIRED_RUN);
    job->job().set_restarts(0);
    Transition(*job, v1::JOB_STATE_QUEUED, "user", "user_resume", "resumed by the user");
  }
  ReplyJob(*job);
}

void CoreParts::On(const v1::DeleteJobRequest& request) {
  JobState* job = FindOrReply(request.job_id());
  if (job == nullptr) {
    return;
  }
  if (!request.etag().empty() && request.etag() != job->job().etag()) {
    ReplyError(EtagMismatch(request.job_id()));
    return;
  }
  if (!IsTerminal(job->state()) && job->state() != v1::JOB_STATE_PAUSED) {
    ReplyError(
        Precondition("JOB_ALIVE", absl::StrCat("job ", request.job_id(), " is ",
                                               StateName(job->state()), "; cancel it first")));
    return;
  }
  ReplyJob(*job);
  // Unless asked for, checkpoint folders stay: they are model folders that somebody may use.
  v1::DeleteJobResponse& deleted = effects_.reply->deleted.emplace();
  for (v1::JobFolder& folder : FoldersOf(*job)) {
    if (request.checkpoints() && !folder.worker_id().empty()) {
      v1::CoordinatorMessage message;
      message.mutable_delete_checkpoint()->set_job_id(request.job_id());
      message.mutable_delete_checkpoint()->set_path(folder.path());
      Send(*workers_.Find(folder.worker_id()), std::move(message));
      folder.set_removing(true);
    }
    roots_.LookAt(folder.root_uuid(), absl::Seconds(5), Mono());
    *deleted.add_folders() = std::move(folder);
  }
  // The id may be used again, with epochs from 1: agents must not take those for stale ones.
  v1::CoordinatorMessage forget;
  forget.mutable_forget()->set_job_id(request.job_id());
  forget.mutable_forget()->set_epoch(job->job().epoch());
  for (const auto& [id, worker] : workers_.all()) {
    Send(worker, forget);
  }
  jobs_.Delete(request.job_id(), effects_);
  gangs_.Drop(request.job_id());
  rendezvous_.Drop(request.job_id());
}

void CoreParts::DropFolder(const v1::Checkpoint& checkpoint) {
  if (const WorkerState* worker = WorkerOfRoot(checkpoint.root_uuid())) {
    v1::CoordinatorMessage message;
    message.mutable_delete_checkpoint()->set_job_id(checkpoint.job_id());
    message.mutable_delete_checkpoint()->set_path(FolderOn(worker->worker(), checkpoint));
    Send(*worker, std::move(message));
  }
  // Else it is found when one dials in.
}

void CoreParts::On(const v1::DeleteCheckpointRequest& request) {
  JobState* job = FindOrReply(request.job_id());
  if (job == nullptr) {
    return;
  }
  auto& kept = job->checkpoints();
  auto it = std::find_if(kept.begin(), kept.end(), [&request](const v1::Checkpoint& c) {
    return c.step() == request.step() && c.epoch() == request.epoch();
  });
  if (it == kept.end()) {
    ReplyError(MakeError(absl::StatusCode::kNotFound, "CHECKPOINT_NOT_FOUND",
                         absl::StrCat("job ", request.job_id(), " has no checkpoint of epoch ",
                                      request.epoch(), ", step ", request.step())));
    return;
  }
  if (it == kept.begin() && !IsTerminal(job->state())) {
    ReplyError(Precondition("NEWEST_CHECKPOINT",
                            "the newest checkpoint of a living job is what it resumes from"));
    return;
  }
  DropFolder(*it);
  kept.erase(it);
  if (kept.empty()) {
    job->job().clear_checkpoint();
  } else {
    *job->job().mutable_checkpoint() = kept[0];
  }
  Note(*job, "checkpoint", "user", absl::StrCat("checkpoint of step ", request.step(), " deleted"));
  ReplyJob(*job);
}

void CoreParts::On(const InspectionDone& command) {
  JobState* job = jobs_.Edit(command.job_id);
  if (job == nullptr || job->record().paths_checked() || job->state() != v1::JOB_STATE_QUEUED) {
    return;
  }
  plan_.Ask();
  job->inspect_until = -absl::InfiniteDuration();
  if (!command.etag.empty() && command.etag != job->job().etag()) {
    return;  // asked about an older spec
  }
  const absl::StatusCode code = command.status.code();
  if (code == absl::StatusCode::kUnavailable || code == absl::StatusCode::kDeadlineExceeded) {
    job->inspect_until = Mono() + absl::Seconds(2);
    return;
  }
  if (!command.status.ok()) {
    const bool too_large = code == absl::StatusCode::kResourceExhausted;
    Transition(*job, v1::JOB_STATE_FAILED, "coordinator", too_large ? "bad_spec" : "bad_data",
               std::string(command.status.message()));
    return;
  }
  job->set_paths_checked(true);
  if (command.spec.has_value()) {
    *job->job().mutable_spec() = *command.spec;
  }
  jobs_.Mark(*job, true);
}

}  // namespace hearth::coordinator
