// A coordinator on loopback with a running job that has a recorded checkpoint, for tests that play
// the worker which sees it.
#pragma once

#include <memory>
#include <string>

#include "common/rpc/channel.h"
#include "common/rpc/grpc_status.h"
#include "hearth/v1/job.grpc.pb.h"
#include "tests/support/coordinator/fake_agent.h"
#include "tests/support/coordinator/loopback_coordinator.h"
#include "tests/support/coordinator/tiny_spec.h"

namespace hearth::coordinator {

class RecordedCheckpointTest : public LoopbackCoordinatorTest {
 protected:
  // A server stream that the test reads.
  template <typename Response>
  struct Reading {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<Response>> reader;

    absl::Status Finish() const { return rpc::FromGrpc(reader->Finish()); }
  };

  RecordedCheckpointTest() {
    StartCoordinator();
    agent_ = std::make_unique<FakeAgent>(coordinator_->listen_address(), "w1");
    WriteCheckpoint();
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

  std::string folder_;
  v1::Task task_;
  std::unique_ptr<FakeAgent> agent_;
};

}  // namespace hearth::coordinator
