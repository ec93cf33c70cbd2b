// The whole coordinator over loopback gRPC, with a worker played by the test.
#include "coordinator/coordinator.h"

#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/rpc/channel.h"
#include "common/rpc/grpc_status.h"
#include "gmock/gmock.h"
#include "grpcpp/create_channel.h"
#include "gtest/gtest.h"
#include "hearth/v1/agent.grpc.pb.h"
#include "hearth/v1/job.grpc.pb.h"
#include "hearth/v1/worker.grpc.pb.h"
#include "nlohmann/json.hpp"
#include "tests/support/coordinator/fake_agent.h"
#include "tests/support/coordinator/loopback_coordinator.h"
#include "tests/support/coordinator/tiny_spec.h"

namespace hearth::coordinator {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kPatience = FakeAgent::kPatience;

class CoordinatorTest : public LoopbackCoordinatorTest {
 protected:
  CoordinatorTest() { StartCoordinator(); }

  absl::StatusOr<v1::Job> Create(const v1::CreateJobRequest& request) {
    grpc::ClientContext context;
    rpc::SetDeadline(context);
    v1::Job job;
    const grpc::Status status = jobs_->CreateJob(&context, request, &job);
    if (!status.ok()) {
      return rpc::FromGrpc(status);
    }
    return job;
  }

  absl::StatusOr<v1::Job> Submit(const std::string& job_id = "") {
    v1::CreateJobRequest request;
    *request.mutable_spec() = TinySpec();
    request.set_job_id(job_id);
    return Create(request);
  }

  absl::StatusOr<v1::Job> Get(const std::string& job_id) {
    grpc::ClientContext context;
    rpc::SetDeadline(context);
    v1::GetJobRequest request;
    request.set_job_id(job_id);
    v1::Job job;
    const grpc::Status status = jobs_->GetJob(&context, request, &job);
    if (!status.ok()) {
      return rpc::FromGrpc(status);
    }
    return job;
  }

  // Follows the job until it is in `state`; false when the stream ends or patience does.
  bool AwaitState(const std::string& job_id, v1::JobState state) {
    grpc::ClientContext context;
    rpc::SetDeadline(context, kPatience);
    v1::WatchJobRequest request;
    request.set_job_id(job_id);
    const auto stream = jobs_->WatchJob(&context, request);
    v1::WatchJobResponse response;
    bool reached = false;
    while (!reached && stream->Read(&response)) {
      reached = response.job().state() == state;
    }
    context.TryCancel();
    stream->Finish().ok();
    return reached;
  }

  std::vector<v1::MetricRecord> History(const std::string& job_id,
                                        int64_t cursor,
                                        int64_t from_step,
                                        bool follow = false) {
    grpc::ClientContext context;
    rpc::SetDeadline(context, kPatience);
    v1::StreamMetricsRequest request;
    request.set_job_id(job_id);
    request.set_cursor(cursor);
    request.set_from_step(from_step);
    request.set_follow(follow);
    const auto stream = jobs_->StreamMetrics(&context, request);
    std::vector<v1::MetricRecord> records;
    v1::StreamMetricsResponse response;
    while (stream->Read(&response)) {
      records.insert(records.end(), response.records().begin(), response.records().end());
    }
    const grpc::Status status = stream->Finish();
    EXPECT_TRUE(status.ok()) << status.error_message();
    return records;
  }

  static std::string Steps(const std::vector<v1::MetricRecord>& records) {
    std::string out;
    for (const v1::MetricRecord& record : records) {
      absl::StrAppend(&out, out.empty() ? "" : " ",
                      record.has_rewind() ? absl::StrCat("<", record.rewind().to_step())
                                          : absl::StrCat(record.step().step()));
    }
    return out;
  }

  // Runs `task` to its end: run info, steps 1..3, a log line, the final checkpoint, exit.
  static void RunToEnd(FakeAgent& agent, const v1::Task& task) {
    agent.Report(task, [](v1::TaskReport& r) { r.mutable_run_info()->set_world_size(1); });
    for (int64_t step = 1; step <= 3; ++step) {
      agent.ReportStep(task, step);
    }
    agent.Report(task, [](v1::TaskReport& r) { r.mutable_logs()->add_lines()->set_text("hello"); });
    agent.Report(task, [&](v1::TaskReport& r) {
      r.mutable_checkpoint()->set_step(3);
      r.mutable_checkpoint()->set_path(task.checkpoint_dir() + "/step-00000003");
    });
    agent.Report(task, [](v1::TaskReport& r) {
      v1::TaskExit& exit = *r.mutable_exit();
      exit.mutable_exit()->set_reason(v1::EXIT_REASON_FINISHED);
      exit.mutable_exit()->set_step(3);
      exit.mutable_exit()->set_checkpoint_step(3);
      exit.set_clean(true);
    });
  }
};

TEST_F(CoordinatorTest, Job_FromSubmitToFinish_IsRecordedWhole) {
  FakeAgent agent(coordinator_->listen_address(), "w1");
  const auto job = Submit();
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_THAT(job->job_id(), testing::MatchesRegex("tiny-[a-z2-7]{5}"));
  const v1::Task task = agent.AwaitStart();
  ASSERT_EQ(task.job_id(), job->job_id());
  EXPECT_EQ(task.epoch(), 1);
  EXPECT_EQ(task.world_size(), 1);
  EXPECT_EQ(task.spec().model().vocab(), 256);  // what the worker said of the dataset
  RunToEnd(agent, task);
  EXPECT_TRUE(agent.AwaitAck(task, agent.seq()));
  EXPECT_TRUE(AwaitState(job->job_id(), v1::JOB_STATE_SUCCEEDED));

  const auto done = Get(job->job_id());
  ASSERT_TRUE(done.ok());
  EXPECT_EQ(done->step(), 3);
  EXPECT_EQ(done->checkpoint().step(), 3);
  EXPECT_FALSE(done->has_recovery()) << "no rank was lost";
  EXPECT_EQ(Steps(History(job->job_id(), 0, 0)), "1 2 3");
  EXPECT_EQ(Steps(History(job->job_id(), 0, 0, /*follow=*/true)), "1 2 3");
  EXPECT_EQ(Steps(History(job->job_id(), 2, 0)), "3");
  EXPECT_EQ(Steps(History(job->job_id(), 0, 2)), "2 3");

  grpc::ClientContext context;
  v1::StreamLogsRequest request;
  request.set_job_id(job->job_id());
  request.set_tail(1);
  const auto logs = jobs_->StreamLogs(&context, request);
  v1::StreamLogsResponse response;
  ASSERT_TRUE(logs->Read(&response));
  ASSERT_EQ(response.lines_size(), 1);
  EXPECT_EQ(response.lines(0).text(), "hello");
  EXPECT_FALSE(logs->Read(&response));
  EXPECT_TRUE(logs->Finish().ok());
}

TEST_F(CoordinatorTest, StreamMetrics_AfterARecovery_RewindsOrLeavesVoidedStepsOut) {
  FakeAgent agent(coordinator_->listen_address(), "w1");
  const auto job = Submit("again");
  ASSERT_TRUE(job.ok()) << job.status();
  const v1::Task first = agent.AwaitStart();
  agent.Report(first, [](v1::TaskReport& r) { r.mutable_run_info()->set_world_size(1); });
  agent.ReportStep(first, 1);
  agent.Report(first, [&](v1::TaskReport& r) {
    r.mutable_checkpoint()->set_step(1);
    r.mutable_checkpoint()->set_path(first.checkpoint_dir() + "/step-00000001");
  });
  agent.ReportStep(first, 2);
  agent.Report(first, [](v1::TaskReport& r) {
    r.mutable_exit()->mutable_exit()->set_reason(v1::EXIT_REASON_INTERNAL);
    r.mutable_exit()->set_clean(true);
  });
  const v1::Task second = agent.AwaitStart();
  ASSERT_EQ(second.epoch(), 2);
  EXPECT_EQ(second.resume_step(), 1);
  agent.Report(second, [](v1::TaskReport& r) { r.mutable_run_info()->set_start_step(1); });
  agent.ReportStep(second, 2);
  agent.ReportStep(second, 3);
  ASSERT_TRUE(agent.AwaitAck(second, 3));
  EXPECT_EQ(Steps(History("again", 0, 0)), "1 2 <1 2 3");
  EXPECT_EQ(Steps(History("again", 0, 1)), "1 2 3");
  EXPECT_EQ(Steps(History("again", 0, 2)), "2 3");
  EXPECT_EQ(Steps(History("again", 2, 0)), "<1 2 3");
}

TEST_F(CoordinatorTest, StreamLogs_LinesThatTheWorkerLost_AreCounted) {
  FakeAgent agent(coordinator_->listen_address(), "w1");
  ASSERT_TRUE(Submit("chatty").ok());
  const v1::Task task = agent.AwaitStart();
  agent.Report(task, [](v1::TaskReport& r) { r.mutable_logs()->add_lines()->set_text("one"); });
  agent.Report(task, [](v1::TaskReport& r) {
    r.mutable_logs()->set_dropped(5);
    r.mutable_logs()->add_lines()->set_text("seven");
  });
  ASSERT_TRUE(agent.AwaitAck(task, 2));
  grpc::ClientContext context;
  rpc::SetDeadline(context, kPatience);
  v1::StreamLogsRequest request;
  request.set_job_id("chatty");
  const auto stream = jobs_->StreamLogs(&context, request);
  v1::StreamLogsResponse response;
  ASSERT_TRUE(stream->Read(&response));
  ASSERT_EQ(response.lines_size(), 2);
  EXPECT_EQ(response.dropped(), 5);
  EXPECT_EQ(response.lines(1).cursor(), 7);
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(CoordinatorTest, ResumeJob_Overrides_AreCheckedMergedAndRecorded) {
  ASSERT_TRUE(Submit("resumed").ok());
  grpc::ClientContext cancel_context;
  v1::CancelJobRequest cancel;
  cancel.set_job_id("resumed");
  v1::Job job;
  ASSERT_TRUE(jobs_->CancelJob(&cancel_context, cancel, &job).ok());
  for (const char* bad : {"model.layers=5", "train.steps=-1"}) {
    grpc::ClientContext context;
    v1::ResumeJobRequest request;
    request.set_job_id("resumed");
    request.add_overrides(bad);
    EXPECT_EQ(jobs_->ResumeJob(&context, request, &job).error_code(),
              grpc::StatusCode::INVALID_ARGUMENT)
        << bad;
  }
  grpc::ClientContext several_context;
  v1::ResumeJobRequest several;
  several.set_job_id("resumed");
  several.add_overrides("model.layers=5");
  several.add_overrides("train.stepz=7");
  const std::string told = jobs_->ResumeJob(&several_context, several, &job).error_message();
  EXPECT_THAT(told, HasSubstr("model.layers: cannot be changed on resume"));
  EXPECT_THAT(told, HasSubstr("\ntrain.stepz: unknown key; did you mean steps?"));
  grpc::ClientContext context;
  v1::ResumeJobRequest request;
  request.set_job_id("resumed");
  request.add_overrides("train.steps=7");
  ASSERT_TRUE(jobs_->ResumeJob(&context, request, &job).ok());
  EXPECT_EQ(job.state(), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(job.spec().train().steps(), 7);
  const std::string messages = EventMessages("resumed");
  EXPECT_THAT(messages, HasSubstr("train.steps"));
  EXPECT_THAT(messages, HasSubstr("3"));
  EXPECT_THAT(messages, HasSubstr("7"));
}

TEST_F(CoordinatorTest, Restart_InMidRun_KeepsJobHistoryAndCursors) {
  std::string job_id;
  {
    FakeAgent agent(coordinator_->listen_address(), "w1");
    const auto job = Submit();
    ASSERT_TRUE(job.ok()) << job.status();
    job_id = job->job_id();
    const v1::Task task = agent.AwaitStart();
    agent.ReportStep(task, 1);
    agent.ReportStep(task, 2);
    ASSERT_TRUE(agent.AwaitAck(task, 2));
    coordinator_.reset();
  }
  const int64_t generation = 1;
  StartCoordinator();
  EXPECT_GT(coordinator_->generation(), generation);
  const auto job = Get(job_id);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(job->step(), 2);
  EXPECT_EQ(Steps(History(job_id, 0, 0)), "1 2");
}

TEST_F(CoordinatorTest, CreateJob_BadSpec_ListsAllViolationsInThePayload) {
  v1::CreateJobRequest request;
  *request.mutable_spec() = TinySpec();
  request.mutable_spec()->mutable_train()->set_steps(-5);
  request.mutable_spec()->mutable_model()->set_heads(3);
  request.mutable_spec()->mutable_model()->set_kv_heads(2);
  for (const bool validate_only : {false, true}) {
    request.set_validate_only(validate_only);
    const auto job = Create(request);
    ASSERT_EQ(job.status().code(), absl::StatusCode::kInvalidArgument);
    google::rpc::BadRequest bad;
    ASSERT_TRUE(rpc::GetDetail(job.status(), bad));
    std::vector<std::string> fields;
    for (const auto& violation : bad.field_violations()) {
      fields.push_back(violation.field());
    }
    EXPECT_THAT(fields, testing::IsSupersetOf({"train.steps", "model.kv_heads"}));
  }
}

TEST_F(CoordinatorTest, CreateJob_PathBadOnTheWorker_IsRefused) {
  FakeAgent agent(coordinator_->listen_address(), "w1");
  agent.path_error = "no such folder";
  agent.Await([](const v1::CoordinatorMessage& m) { return m.has_welcome(); });
  const auto job = Submit();
  ASSERT_EQ(job.status().code(), absl::StatusCode::kInvalidArgument) << job.status();
  EXPECT_THAT(std::string(job.status().message()), HasSubstr("data.train[0].path"));
  EXPECT_THAT(std::string(job.status().message()), HasSubstr("no such folder"));
}

TEST_F(CoordinatorTest, CreateJob_TooBigForTheWorker_IsRefused) {
  FakeAgent agent(coordinator_->listen_address(), "w1", /*memory_bytes=*/100'000);
  agent.Await([](const v1::CoordinatorMessage& m) { return m.has_welcome(); });
  const auto job = Submit();
  EXPECT_EQ(job.status().code(), absl::StatusCode::kResourceExhausted) << job.status();
}

TEST_F(CoordinatorTest, CreateJob_NoWorker_IsAcceptedWithAWarning) {
  const auto job = Submit("my-job");
  ASSERT_TRUE(job.ok()) << job.status();
  ASSERT_EQ(job->warnings_size(), 1);
  EXPECT_THAT(job->warnings(0), HasSubstr("paths not checked"));
  EXPECT_EQ(job->state(), v1::JOB_STATE_QUEUED);
}

TEST_F(CoordinatorTest, CreateJob_ValidateOnly_StoresNothing) {
  v1::CreateJobRequest request;
  *request.mutable_spec() = TinySpec();
  request.set_job_id("dry");
  request.set_validate_only(true);
  const auto job = Create(request);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->job_id(), "dry");
  EXPECT_GT(job->spec().model().head_dim(), 0);  // resolved
  EXPECT_EQ(Get("dry").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(CoordinatorTest, CreateJob_SameRequestId_ReturnsTheFirstJobAlsoAfterARestart) {
  v1::CreateJobRequest request;
  *request.mutable_spec() = TinySpec();
  request.set_request_id(RandomUuid());
  const auto first = Create(request);
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = Create(request);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->job_id(), first->job_id());
  coordinator_.reset();
  StartCoordinator();
  const auto third = Create(request);
  ASSERT_TRUE(third.ok()) << third.status();
  EXPECT_EQ(third->job_id(), first->job_id());
}

TEST_F(CoordinatorTest, CreateJob_TakenIdOtherSpec_SaysWhatDiffers) {
  ASSERT_TRUE(Submit("taken").ok());
  v1::CreateJobRequest request;
  *request.mutable_spec() = TinySpec();
  request.mutable_spec()->mutable_train()->set_steps(99);
  request.set_job_id("taken");
  const auto job = Create(request);
  ASSERT_EQ(job.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(job.status().message()), HasSubstr("train.steps: 3 -> 99"));
}

TEST_F(CoordinatorTest, WatchJob_FromACursor_ReplaysTheEventsAfterIt) {
  const auto job = Submit("watched");
  ASSERT_TRUE(job.ok());
  grpc::ClientContext cancel_context;
  v1::CancelJobRequest cancel;
  cancel.set_job_id("watched");
  v1::Job cancelled;
  ASSERT_TRUE(jobs_->CancelJob(&cancel_context, cancel, &cancelled).ok());
  EXPECT_EQ(cancelled.state(), v1::JOB_STATE_CANCELLED);

  grpc::ClientContext context;
  rpc::SetDeadline(context, kPatience);
  v1::WatchJobRequest request;
  request.set_job_id("watched");
  request.set_cursor(job->revision());
  const auto stream = jobs_->WatchJob(&context, request);
  v1::WatchJobResponse response;
  ASSERT_TRUE(stream->Read(&response));
  ASSERT_GE(response.events_size(), 1);
  EXPECT_EQ(response.events(response.events_size() - 1).to_state(), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(response.cursor(), response.events(response.events_size() - 1).revision());

  // Deleting the job ends the stream.
  grpc::ClientContext delete_context;
  v1::DeleteJobRequest deletion;
  deletion.set_job_id("watched");
  v1::DeleteJobResponse deleted;
  ASSERT_TRUE(jobs_->DeleteJob(&delete_context, deletion, &deleted).ok());
  while (stream->Read(&response)) {
  }
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(Get("watched").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(CoordinatorTest, UpdateJob_StaleEtag_IsAborted) {
  const auto job = Submit("tagged");
  ASSERT_TRUE(job.ok());
  for (const bool stale : {false, true}) {  // the first update changes the etag
    grpc::ClientContext context;
    v1::UpdateJobRequest request;
    request.set_job_id("tagged");
    request.set_etag(job->etag());
    request.set_priority(stale ? 6 : 5);
    v1::Job updated;
    const grpc::Status status = jobs_->UpdateJob(&context, request, &updated);
    EXPECT_EQ(status.error_code(), stale ? grpc::StatusCode::ABORTED : grpc::StatusCode::OK);
  }
}

TEST_F(CoordinatorTest, ListJobs_PagesAndFilters) {
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(Submit(absl::StrCat("job-", i)).ok());
  }
  std::string seen;
  v1::ListJobsRequest request;
  request.set_page_size(2);
  request.set_filter("state=queued name=tiny");
  do {
    grpc::ClientContext context;
    v1::ListJobsResponse response;
    ASSERT_TRUE(jobs_->ListJobs(&context, request, &response).ok());
    for (const v1::Job& job : response.jobs()) {
      absl::StrAppend(&seen, job.job_id(), " ");
    }
    request.set_page_token(response.next_page_token());
  } while (!request.page_token().empty());
  EXPECT_EQ(seen, "job-4 job-3 job-2 job-1 job-0 ");
  grpc::ClientContext context;
  request.set_filter("state=asleep");
  v1::ListJobsResponse response;
  EXPECT_EQ(jobs_->ListJobs(&context, request, &response).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(CoordinatorTest, Worker_CordonIsDurable) {
  {
    FakeAgent agent(coordinator_->listen_address(), "w1");
    agent.Await([](const v1::CoordinatorMessage& m) { return m.has_welcome(); });
    grpc::ClientContext context;
    v1::CordonWorkerRequest request;
    request.set_worker_id("w1");
    v1::Worker worker;
    const auto workers = v1::WorkerService::NewStub(channel_);
    ASSERT_TRUE(workers->CordonWorker(&context, request, &worker).ok());
    EXPECT_TRUE(worker.cordoned());
    coordinator_.reset();
  }
  StartCoordinator();
  grpc::ClientContext context;
  v1::ListWorkersResponse response;
  const auto workers = v1::WorkerService::NewStub(channel_);
  ASSERT_TRUE(workers->ListWorkers(&context, {}, &response).ok());
  ASSERT_EQ(response.workers_size(), 1);
  EXPECT_TRUE(response.workers(0).cordoned());
}

TEST_F(CoordinatorTest, Connect_FirstMessageNotHello_IsRefused) {
  const auto stub = v1::AgentService::NewStub(channel_);
  grpc::ClientContext context;
  const auto stream = stub->Connect(&context);
  v1::AgentMessage message;
  message.mutable_heartbeat();
  stream->Write(message);
  v1::CoordinatorMessage answer;
  EXPECT_FALSE(stream->Read(&answer));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(CoordinatorTest, LowDiskSpace_ChangesAreRefusedAndNothingIsStored) {
  coordinator_.reset();
  options_.loop.min_free_bytes = int64_t{1} << 60;
  StartCoordinator();
  const auto job = Submit("unlucky");
  EXPECT_EQ(job.status().code(), absl::StatusCode::kResourceExhausted) << job.status();
  EXPECT_EQ(Get("unlucky").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(CoordinatorTest, Start_SameDataDir_IsRefused) {
  const auto second = Coordinator::Start(options_);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(CoordinatorTest, Start_PortTaken_SaysSo) {
  CoordinatorOptions options = options_;
  options.store.data_dir = root_ + "/other";
  options.listen = coordinator_->listen_address();
  const auto second = Coordinator::Start(options);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable) << second.status();
}

TEST_F(CoordinatorTest, Start_WritesEndpoints) {
  std::ifstream file(options_.store.data_dir + "/endpoints.json");
  const nlohmann::json endpoints = nlohmann::json::parse(file);
  EXPECT_EQ(endpoints["listen"], coordinator_->listen_address());
  EXPECT_EQ(endpoints["http"], coordinator_->http_address());
}

TEST_F(CoordinatorTest, Stop_OpenStreams_EndWithUnavailable) {
  ASSERT_TRUE(Submit("followed").ok());
  grpc::ClientContext context;
  v1::WatchJobRequest request;
  request.set_job_id("followed");
  const auto stream = jobs_->WatchJob(&context, request);
  v1::WatchJobResponse response;
  ASSERT_TRUE(stream->Read(&response));
  std::thread stopper([this] { coordinator_->Stop(); });
  while (stream->Read(&response)) {
  }
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  stopper.join();
}

}  // namespace
}  // namespace hearth::coordinator
