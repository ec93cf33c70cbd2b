// A coordinator on loopback without authentication, for tests that call its API.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/coordinator.h"
#include "grpcpp/create_channel.h"
#include "gtest/gtest.h"
#include "hearth/v1/job.grpc.pb.h"
#include "tests/support/common/temp_dir.h"
#include "tests/support/coordinator/loopback_options.h"

namespace hearth::coordinator {

// Starts none by itself: a test may change the options first.
class LoopbackCoordinatorTest : public testing::Test {
 protected:
  // Also again, on the same data, after coordinator_.reset(); stubs of the old one are dead then.
  void StartCoordinator() {
    auto started = Coordinator::Start(options_);
    ASSERT_TRUE(started.ok()) << started.status();
    coordinator_ = *std::move(started);
    channel_ =
        grpc::CreateChannel(coordinator_->listen_address(), grpc::InsecureChannelCredentials());
    jobs_ = v1::JobService::NewStub(channel_);
  }

  // The messages of the job's events, a line each.
  std::string EventMessages(const std::string& job_id) {
    grpc::ClientContext context;
    v1::ListEventsRequest request;
    request.set_job_id(job_id);
    v1::ListEventsResponse events;
    EXPECT_TRUE(jobs_->ListEvents(&context, request, &events).ok());
    std::string messages;
    for (const v1::JobEvent& event : events.events()) {
      absl::StrAppend(&messages, event.message(), "\n");
    }
    return messages;
  }

  const TempDir temp_;
  const std::string root_ = temp_.path();
  CoordinatorOptions options_ = LoopbackOptions(root_ + "/data");
  std::unique_ptr<Coordinator> coordinator_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::JobService::Stub> jobs_;
};

}  // namespace hearth::coordinator
