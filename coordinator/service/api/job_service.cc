#include "coordinator/service/api/job_service.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/types/span.h"
#include "common/base/clip_text.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/config/config.h"
#include "common/io/disk.h"
#include "common/rpc/grpc_status.h"
#include "common/spec/rules/rules.h"
#include "common/time/clock.h"
#include "coordinator/service/api/change.h"
#include "coordinator/service/api/unary_call.h"
#include "coordinator/service/checks/limits.h"
#include "coordinator/service/streams/download_stream.h"
#include "coordinator/service/streams/job_streams.h"
#include "coordinator/service/streams/open_stream.h"
#include "hearth/v1/job.grpc.pb.h"

namespace hearth::coordinator {
namespace {

constexpr int kDefaultPageSize = 50;
constexpr int kMaxPageSize = 1000;

// "train.steps: 100 -> 200" as config::ApplyResumeOverride writes it.
FieldOverride ParseChange(const std::string& change) {
  const std::vector<std::string> field = absl::StrSplit(change, absl::MaxSplits(": ", 1));
  FieldOverride out;
  out.field = field[0];
  if (field.size() == 2) {
    const std::vector<std::string> values = absl::StrSplit(field[1], absl::MaxSplits(" -> ", 1));
    out.old_value = values[0];
    out.new_value = values.size() == 2 ? values[1] : "";
  }
  return out;
}

// Labels that UpdateJob took in before it checked them: the spec is checked as a whole, and they
// must not make every later change of the job fail.
void DropBadLabels(v1::JobSpec& spec, std::vector<FieldOverride>& overrides) {
  const std::map<std::string, std::string> labels(spec.labels().begin(), spec.labels().end());
  for (const auto& [key, value] : labels) {
    if (!spec::LabelProblem(key, value).empty()) {
      spec.mutable_labels()->erase(key);
      overrides.push_back(
          {absl::StrCat("labels.", ClipText(key, 63)), ClipText(value, 63), "removed"});
    }
  }
}

// Random, of the alphabet that job ids allow; 10 characters.
std::string RandomSuffix() {
  static constexpr char kAlphabet[] = "abcdefghijklmnopqrstuvwxyz234567";
  const std::string hex = RandomHex(10);
  std::string out;
  for (size_t i = 0; i < 10; ++i) {
    const int high = absl::ascii_isdigit(static_cast<unsigned char>(hex[2 * i]))
                         ? hex[2 * i] - '0'
                         : hex[2 * i] - 'a' + 10;
    const int low = absl::ascii_isdigit(static_cast<unsigned char>(hex[2 * i + 1]))
                        ? hex[2 * i + 1] - '0'
                        : hex[2 * i + 1] - 'a' + 10;
    out.push_back(kAlphabet[(high * 16 + low) % 32]);
  }
  return out;
}

class JobServiceImpl final : public v1::JobService::CallbackService {
 public:
  JobServiceImpl(const ServiceParts& parts, v1::GetVersionResponse version)
      : parts_(parts), version_(std::move(version)) {}

  HEARTH_UNARY(CreateJob, Job) override;
  HEARTH_UNARY(GetJob, Job) override;
  HEARTH_UNARY(ListJobs, ListJobsResponse) override;
  HEARTH_UNARY(UpdateJob, Job) override;
  HEARTH_CHANGE(CancelJob, Job)
  HEARTH_CHANGE(PauseJob, Job)
  HEARTH_CHANGE(AddNote, Job)
  HEARTH_UNARY(ResumeJob, Job) override;
  HEARTH_CHANGE(DeleteJob, DeleteJobResponse)
  grpc::ServerWriteReactor<v1::WatchJobResponse>* WatchJob(
      grpc::CallbackServerContext* context, const v1::WatchJobRequest* request) override;
  grpc::ServerWriteReactor<v1::StreamMetricsResponse>* StreamMetrics(
      grpc::CallbackServerContext* context, const v1::StreamMetricsRequest* request) override;
  grpc::ServerWriteReactor<v1::StreamLogsResponse>* StreamLogs(
      grpc::CallbackServerContext* context, const v1::StreamLogsRequest* request) override;
  HEARTH_UNARY(ListEvents, ListEventsResponse) override;
  HEARTH_UNARY(ListCheckpoints, ListCheckpointsResponse) override;
  HEARTH_UNARY(GetCheckpoint, Checkpoint) override;
  HEARTH_CHANGE(DeleteCheckpoint, DeleteCheckpointResponse)
  HEARTH_CHANGE(PruneCheckpoints, PruneCheckpointsResponse)
  grpc::ServerWriteReactor<v1::DownloadCheckpointResponse>* DownloadCheckpoint(
      grpc::CallbackServerContext* context, const v1::DownloadCheckpointRequest* request) override {
    return Open(context, *request,
                std::make_shared<DownloadReactor>(parts_.executor, parts_.loop, parts_.inspector,
                                                  downloads_, *request));
  }
  HEARTH_UNARY(GetVersion, GetVersionResponse) override;

 private:
  // Answer() about one job, which `read` is given.
  template <typename Request, typename Read>
  grpc::ServerUnaryReactor* AnswerOf(grpc::CallbackServerContext* context,
                                     const Request& request,
                                     const Read& read) const {
    return Answer(parts_, context, request, [&]() -> absl::Status {
      const JobPtr job = parts_.view.FindJob(request.job_id());
      return job == nullptr ? rpc::NotFoundError("job", request.job_id()) : read(*job);
    });
  }
  template <typename Stream, typename Request>
  Stream* Open(grpc::CallbackServerContext* context,
               const Request& request,
               const std::shared_ptr<Stream>& stream) {
    return OpenStream(parts_, context, request, stream);
  }

  // Fills in the command, with the overrides merged into the job's spec.
  absl::Status MakeResume(const v1::ResumeJobRequest& request,
                          coordinator::ResumeJob& command) const;
  // For a job_id that is taken: OK with the job in `response` when it was submitted with this
  // spec, completed as far as possible; else `status` with what differs.
  absl::Status ExplainConflict(const absl::Status& status,
                               const std::string& job_id,
                               const v1::JobSpec& submitted,
                               v1::Job& response) const;

  const ServiceParts parts_;
  const v1::GetVersionResponse version_;
  WorkerSlots downloads_{kDownloadLimits};
};

absl::Status JobServiceImpl::ExplainConflict(const absl::Status& status,
                                             const std::string& job_id,
                                             const v1::JobSpec& submitted,
                                             v1::Job& response) const {
  const JobPtr job = parts_.view.FindJob(job_id);
  if (job == nullptr) {
    return status;
  }
  const std::vector<std::string> lines = SpecDifferences(job->job().spec(), submitted);
  if (lines.empty()) {
    response = job->job();
    response.add_warnings(
        absl::StrCat("job ", job_id, " exists already with this spec; nothing new was submitted"));
    return absl::OkStatus();
  }
  const size_t shown = std::min<size_t>(lines.size(), 5);
  std::string what = absl::StrCat("with another spec: ",
                                  absl::StrJoin(absl::MakeConstSpan(lines).first(shown), "; "));
  if (lines.size() > shown) {
    absl::StrAppend(&what, " and ", lines.size() - shown, " more");
  }
  return rpc::MakeError(status.code(), absl::StrCat(std::string(status.message()), " ", what),
                        "JOB_EXISTS", {{"job_id", job_id}, {"differences", what}});
}

HEARTH_UNARY_OF(JobServiceImpl, CreateJob, Job) {
  const absl::StatusOr<Admitted> caller = parts_.gate.Admit(*context, *request);
  if (!caller.ok()) {
    return FinishNow(context, caller.status());
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  // Answered before, whatever the disk says now.
  const bool answered =
      !request->request_id().empty() && parts_.view.KnowsRequest(request->request_id());
  const auto post = [this, reactor, request, response, answered,
                     origin = OriginOf(*caller, *request)](CheckedSpec checked) {
    if (!checked.status.ok()) {
      reactor->Finish(rpc::ToGrpc(checked.status));
      return;
    }
    coordinator::CreateJob command{.spec = checked.spec,
                                   .job_id = request->job_id(),
                                   .request_id = request->request_id(),
                                   .id_suffix = RandomSuffix(),
                                   .paths_checked = checked.paths_checked,
                                   .warnings = std::move(checked.warnings),
                                   .validate_only = request->validate_only(),
                                   .answered = answered,
                                   .owner = origin.caller.user(),
                                   .own_jobs_only = origin.caller.role() == v1::ROLE_OPERATOR};
    const auto reply_to = [this, reactor, request, response,
                           submitted = std::move(checked.spec)](const Reply& reply) {
      absl::Status status = reply.status;
      if (reply.job.has_value()) {
        *response = *reply.job;
      } else if (absl::IsAlreadyExists(status)) {
        status = ExplainConflict(status, request->job_id(), submitted, *response);
      }
      reactor->Finish(rpc::ToGrpc(status));
    };
    parts_.loop.Post(Command(std::move(command)).By(origin), reply_to);
  };
  if (answered) {
    post({absl::OkStatus(), request->spec(), false, {}});
    return reactor;
  }
  parts_.checker.Check(request->spec(), SpecChecker::Origin::kSubmitted, post);
  return reactor;
}

HEARTH_UNARY_OF(JobServiceImpl, GetJob, Job) {
  return AnswerOf(context, *request, [response](const v1::JobRecord& job) {
    *response = job.job();
    return absl::OkStatus();
  });
}

HEARTH_UNARY_OF(JobServiceImpl, ListJobs, ListJobsResponse) {
  const auto list = [&]() -> absl::Status {
    if (request->page_size() < 0) {
      return absl::InvalidArgumentError("page_size is negative");
    }
    HEARTH_ASSIGN_OR_RETURN(const JobFilter filter, JobFilter::Parse(request->filter()));
    const int size =
        request->page_size() == 0 ? kDefaultPageSize : std::min(request->page_size(), kMaxPageSize);
    HEARTH_ASSIGN_OR_RETURN(View::Page page, parts_.view.List(filter, request->page_token(),
                                                              static_cast<size_t>(size)));
    int64_t bytes = 0;
    for (const JobPtr& job : page.jobs) {
      v1::Job& entry = *response->add_jobs() = ListEntry(job->job());
      bytes += static_cast<int64_t>(entry.ByteSizeLong());
      if (bytes >= kPageBytes && job != page.jobs.back()) {
        response->set_next_page_token(View::PageToken(job->job()));
        return absl::OkStatus();
      }
    }
    response->set_next_page_token(std::move(page.next_token));
    return absl::OkStatus();
  };
  return Answer(parts_, context, *request, [&list]() -> absl::Status {
    const absl::Status status = list();
    if (!status.ok() && rpc::ErrorReason(status).empty()) {
      return rpc::MakeError(status.code(), std::string(status.message()), "BAD_LIST_REQUEST");
    }
    return status;
  });
}

HEARTH_UNARY_OF(JobServiceImpl, UpdateJob, Job) {
  const absl::StatusOr<Admitted> caller = parts_.gate.Admit(*context, *request);
  if (!caller.ok()) {
    return FinishNow(context, caller.status());
  }
  for (const auto& [key, value] : request->labels()) {
    const std::string problem = value.empty() ? "" : spec::LabelProblem(key, value);
    if (!problem.empty()) {
      return FinishNow(context, rpc::FieldError("labels", problem));
    }
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  PostChange(parts_.loop, Command(*request).By(OriginOf(*caller, *request)), reactor, response);
  return reactor;
}

absl::Status JobServiceImpl::MakeResume(const v1::ResumeJobRequest& request,
                                        coordinator::ResumeJob& command) const {
  command.job_id = request.job_id();
  command.request_id = request.request_id();
  if (request.overrides().empty()) {
    return absl::OkStatus();
  }
  const JobPtr job = parts_.view.FindJob(request.job_id());
  if (job == nullptr) {
    return rpc::NotFoundError("job", request.job_id());
  }
  v1::JobSpec spec = job->job().spec();
  std::vector<std::string> changes;
  HEARTH_RETURN_IF_ERROR(config::ApplyResumeOverrides(
      spec, std::vector<std::string>(request.overrides().begin(), request.overrides().end()),
      changes));
  for (const std::string& change : changes) {
    command.overrides.push_back(ParseChange(change));
  }
  DropBadLabels(spec, command.overrides);
  // The spec is checked outside the loop. If the job changes meanwhile, the core refuses by this.
  command.etag = job->job().etag();
  command.spec = std::move(spec);
  return absl::OkStatus();
}

HEARTH_UNARY_OF(JobServiceImpl, ResumeJob, Job) {
  const absl::StatusOr<Admitted> caller = parts_.gate.Admit(*context, *request);
  if (!caller.ok()) {
    return FinishNow(context, caller.status());
  }
  Origin origin = OriginOf(*caller, *request);
  coordinator::ResumeJob command;
  const absl::Status status = MakeResume(*request, command);
  if (!status.ok()) {
    return FinishNow(context, status);
  }
  command.answered = command.spec.has_value() && !request->request_id().empty() &&
                     parts_.view.KnowsRequest(request->request_id());
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (!command.spec.has_value() || command.answered) {
    PostChange(parts_.loop, Command(std::move(command)).By(std::move(origin)), reactor, response);
    return reactor;
  }
  v1::JobSpec spec = *command.spec;
  parts_.checker.Check(std::move(spec), SpecChecker::Origin::kStored,
                       [this, reactor, response, command = std::move(command),
                        origin = std::move(origin)](CheckedSpec checked) mutable {
                         if (!checked.status.ok()) {
                           reactor->Finish(rpc::ToGrpc(checked.status));
                           return;
                         }
                         command.spec = std::move(checked.spec);
                         PostChange(parts_.loop, Command(std::move(command)).By(std::move(origin)),
                                    reactor, response);
                       });
  return reactor;
}

grpc::ServerWriteReactor<v1::WatchJobResponse>* JobServiceImpl::WatchJob(
    grpc::CallbackServerContext* context, const v1::WatchJobRequest* request) {
  return Open(context, *request,
              std::make_shared<WatchReactor>(parts_.executor, parts_.view, *request));
}

grpc::ServerWriteReactor<v1::StreamMetricsResponse>* JobServiceImpl::StreamMetrics(
    grpc::CallbackServerContext* context, const v1::StreamMetricsRequest* request) {
  return Open(
      context, *request,
      std::make_shared<MetricsReactor>(parts_.executor, parts_.view, parts_.store, *request));
}

grpc::ServerWriteReactor<v1::StreamLogsResponse>* JobServiceImpl::StreamLogs(
    grpc::CallbackServerContext* context, const v1::StreamLogsRequest* request) {
  return Open(context, *request,
              std::make_shared<LogsReactor>(parts_.executor, parts_.view, parts_.store, *request));
}

HEARTH_UNARY_OF(JobServiceImpl, ListEvents, ListEventsResponse) {
  return Answer(parts_, context, *request, [&]() -> absl::Status {
    const View::Changes changes = parts_.view.ChangesSince(request->job_id(), request->cursor());
    if (changes.job == nullptr) {
      return rpc::NotFoundError("job", request->job_id());
    }
    if (changes.compacted && request->cursor() > 0) {
      return rpc::MakeError(absl::StatusCode::kOutOfRange,
                            absl::StrCat("events after cursor ", request->cursor(),
                                         " are no longer all kept; list from 0"),
                            "CURSOR_TOO_OLD");
    }
    for (const EventPtr& event : changes.events) {
      *response->add_events() = *event;
    }
    return absl::OkStatus();
  });
}

HEARTH_UNARY_OF(JobServiceImpl, ListCheckpoints, ListCheckpointsResponse) {
  return AnswerOf(context, *request, [response](const v1::JobRecord& job) {
    *response->mutable_checkpoints() = job.checkpoints();
    return absl::OkStatus();
  });
}

HEARTH_UNARY_OF(JobServiceImpl, GetCheckpoint, Checkpoint) {
  return AnswerOf(context, *request, [request, response](const v1::JobRecord& job) {
    for (const v1::Checkpoint& checkpoint : job.checkpoints()) {  // newest first
      if (request->step() == 0 || checkpoint.step() == request->step()) {
        *response = checkpoint;
        return absl::OkStatus();
      }
    }
    return rpc::NotFoundError("checkpoint", absl::StrCat(request->job_id(), "/", request->step()));
  });
}

HEARTH_UNARY_OF(JobServiceImpl, GetVersion, GetVersionResponse) {
  return Answer(parts_, context, *request, [&] {
    *response = version_;
    const absl::Time now = Clock::Real().Now();
    response->mutable_time()->set_seconds(absl::ToUnixSeconds(now));
    response->mutable_time()->set_nanos(
        static_cast<int32_t>(absl::ToUnixNanos(now) - absl::ToUnixSeconds(now) * 1'000'000'000));
    if (const auto space = ReadDiskSpace(version_.data_dir()); space.ok()) {
      response->set_data_free_bytes(space->free_bytes);
    }
    response->set_isolated(parts_.metrics.isolated());
    return absl::OkStatus();
  });
}

}  // namespace

std::unique_ptr<grpc::Service> MakeJobService(const ServiceParts& parts,
                                              v1::GetVersionResponse version) {
  return std::make_unique<JobServiceImpl>(parts, std::move(version));
}

}  // namespace hearth::coordinator
