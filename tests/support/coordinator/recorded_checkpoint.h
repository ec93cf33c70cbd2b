// A coordinator on loopback with a running job that has a recorded checkpoint, for tests that play
// the worker which sees it.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "common/rpc/channel.h"
#include "common/rpc/grpc_status.h"
#include "coordinator/coordinator.h"
#include "grpcpp/create_channel.h"
#include "gtest/gtest.h"
#include "hearth/v1/job.grpc.pb.h"
#include "tests/support/coordinator/fake_agent.h"
#include "tests/support/coordinator/tiny_spec.h"

namespace hearth::coordinator {

class RecordedCheckpointTest : public testing::Test {
 protected:
  // A server stream that the test reads.
  template <typename Response>
  struct Reading {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<Response>> reader;

    absl::Status Finish() const { return rpc::FromGrpc(reader->Finish()); }
  };

  RecordedCheckpointTest() {
    std::string pattern = testing::TempDir() + "/recorded_XXXXXX";
    root_ = mkdtemp(pattern.data());
    CoordinatorOptions options;
    options.store.data_dir = root_ + "/data";
    options.listen = "127.0.0.1:0";
    options.http = "127.0.0.1:0";
    options.no_auth = true;
    auto started = Coordinator::Start(options);
    EXPECT_TRUE(started.ok()) << started.status();
    coordinator_ = *std::move(started);
    channel_ =
        grpc::CreateChannel(coordinator_->listen_address(), grpc::InsecureChannelCredentials());
    jobs_ = v1::JobService::NewStub(channel_);
    agent_ = std::make_unique<FakeAgent>(coordinator_->listen_address(), "w1");
    WriteCheckpoint();
  }
  ~RecordedCheckpointTest() override {
    agent_.reset();
    coordinator_.reset();
    std::filesystem::remove_all(root_);
  }

  // Runs on the worker w1 and has written step 3.
  void WriteCheckpoint() {
    grpc::ClientContext context;
    rpc::SetDeadline(context);
    v1::CreateJobRequest request;
    *request.mutable_spec() = TinySpec();
    request.set_job_id("tiny-job");
    v1::Job job;
    ASSERT_TRUE(jobs_->CreateJob(&context, request, &job).ok());
    task_ = agent_->AwaitStart();
    folder_ = task_.checkpoint_dir() + "/step-00000003";
    agent_->Report(task_, [](v1::TaskReport& r) { r.mutable_run_info()->set_world_size(1); });
    agent_->Report(task_, [this](v1::TaskReport& r) {
      r.mutable_checkpoint()->set_step(3);
      r.mutable_checkpoint()->set_path(folder_);
    });
    ASSERT_TRUE(agent_->AwaitAck(task_, agent_->seq()));
  }

  std::string root_;
  std::string folder_;
  v1::Task task_;
  std::unique_ptr<Coordinator> coordinator_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::JobService::Stub> jobs_;
  std::unique_ptr<FakeAgent> agent_;
};

}  // namespace hearth::coordinator
