// JobService: gRPC on one side, commands to the loop and reads of the view on the other; no rules
// of its own.
#pragma once

#include <functional>
#include <string>

#include "absl/time/time.h"
#include "common/time/clock.h"
#include "coordinator/core/core.h"
#include "coordinator/service/executor.h"
#include "coordinator/service/loop.h"
#include "coordinator/service/spec_check.h"
#include "coordinator/service/stream_reactor.h"
#include "coordinator/service/view.h"
#include "coordinator/store/store.h"
#include "hearth/v1/job.grpc.pb.h"

namespace hearth::coordinator {

// What the services work with; all outlive them.
struct ServiceParts {
  Loop& loop;
  View& view;
  Store& store;
  AgentHub& hub;
  Inspector& inspector;
  SpecChecker& checker;
  Executor& executor;
  StreamSet& streams;
  CoordinatorMetrics& metrics;
  Clock& clock;
};

class JobServiceImpl final : public v1::JobService::CallbackService {
 public:
  // `version` is answered by GetVersion, with the time and the room in its data_dir.
  JobServiceImpl(const ServiceParts& parts, v1::GetVersionResponse version)
      : parts_(parts), version_(std::move(version)) {}

  grpc::ServerUnaryReactor* CreateJob(grpc::CallbackServerContext* context,
                                      const v1::CreateJobRequest* request,
                                      v1::Job* response) override;
  grpc::ServerUnaryReactor* GetJob(grpc::CallbackServerContext* context,
                                   const v1::GetJobRequest* request,
                                   v1::Job* response) override;
  grpc::ServerUnaryReactor* ListJobs(grpc::CallbackServerContext* context,
                                     const v1::ListJobsRequest* request,
                                     v1::ListJobsResponse* response) override;
  grpc::ServerUnaryReactor* UpdateJob(grpc::CallbackServerContext* context,
                                      const v1::UpdateJobRequest* request,
                                      v1::Job* response) override;
  grpc::ServerUnaryReactor* CancelJob(grpc::CallbackServerContext* context,
                                      const v1::CancelJobRequest* request,
                                      v1::Job* response) override;
  grpc::ServerUnaryReactor* PauseJob(grpc::CallbackServerContext* context,
                                     const v1::PauseJobRequest* request,
                                     v1::Job* response) override;
  grpc::ServerUnaryReactor* ResumeJob(grpc::CallbackServerContext* context,
                                      const v1::ResumeJobRequest* request,
                                      v1::Job* response) override;
  grpc::ServerUnaryReactor* DeleteJob(grpc::CallbackServerContext* context,
                                      const v1::DeleteJobRequest* request,
                                      v1::DeleteJobResponse* response) override;
  grpc::ServerWriteReactor<v1::WatchJobResponse>* WatchJob(
      grpc::CallbackServerContext* context, const v1::WatchJobRequest* request) override;
  grpc::ServerWriteReactor<v1::StreamMetricsResponse>* StreamMetrics(
      grpc::CallbackServerContext* context, const v1::StreamMetricsRequest* request) override;
  grpc::ServerWriteReactor<v1::StreamLogsResponse>* StreamLogs(
      grpc::CallbackServerContext* context, const v1::StreamLogsRequest* request) override;
  grpc::ServerUnaryReactor* ListEvents(grpc::CallbackServerContext* context,
                                       const v1::ListEventsRequest* request,
                                       v1::ListEventsResponse* response) override;
  grpc::ServerUnaryReactor* ListCheckpoints(grpc::CallbackServerContext* context,
                                            const v1::ListCheckpointsRequest* request,
                                            v1::ListCheckpointsResponse* response) override;
  grpc::ServerUnaryReactor* GetCheckpoint(grpc::CallbackServerContext* context,
                                          const v1::GetCheckpointRequest* request,
                                          v1::Checkpoint* response) override;
  grpc::ServerUnaryReactor* DeleteCheckpoint(grpc::CallbackServerContext* context,
                                             const v1::DeleteCheckpointRequest* request,
                                             v1::DeleteCheckpointResponse* response) override;
  grpc::ServerUnaryReactor* PruneCheckpoints(grpc::CallbackServerContext* context,
                                             const v1::PruneCheckpointsRequest* request,
                                             v1::PruneCheckpointsResponse* response) override;
  grpc::ServerUnaryReactor* GetVersion(grpc::CallbackServerContext* context,
                                       const v1::GetVersionRequest* request,
                                       v1::GetVersionResponse* response) override;

 private:
  // Posts `command` and finishes the call with its reply's status and job.
  grpc::ServerUnaryReactor* Mutate(grpc::CallbackServerContext* context,
                                   Command command,
                                   v1::Job* response);
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
};

}  // namespace hearth::coordinator
