// What a coordinator without limits took in must not harm one that has them.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/spec/resolve/resolve.h"
#include "coordinator/coordinator.h"
#include "gmock/gmock.h"
#include "grpcpp/create_channel.h"
#include "gtest/gtest.h"
#include "hearth/v1/job.grpc.pb.h"
#include "hearth/v1/worker.grpc.pb.h"
#include "tests/support/coordinator/loopback_coordinator.h"
#include "tests/support/coordinator/tiny_spec.h"

namespace hearth::coordinator {
namespace {

using testing::HasSubstr;

class StoredDataTest : public LoopbackCoordinatorTest {
 protected:
  v1::JobRecord Record(const std::string& id) {
    v1::JobRecord record;
    v1::Job& job = *record.mutable_job();
    job.set_job_id(id);
    *job.mutable_spec() = TinySpec();
    std::vector<spec::FieldViolation> violations;
    spec::Resolve(*job.mutable_spec(), violations);
    EXPECT_TRUE(violations.empty());
    job.set_state(v1::JOB_STATE_PAUSED);
    job.set_desired(v1::DESIRED_PAUSE);
    job.set_reason_code("user_pause");
    job.set_revision(++revision_);
    job.mutable_create_time()->set_seconds(1'700'000'000 + revision_);
    return record;
  }

  // Stores the rows and starts a coordinator on them.
  void Start(const Effects& rows) {
    auto store = Store::Open(options_.store);
    ASSERT_TRUE(store.ok()) << store.status();
    ASSERT_TRUE((*store)->Load().ok());
    ASSERT_TRUE((*store)->Commit({&rows, 1}).ok());
    store->reset();
    StartCoordinator();
    // The same bound as in jobctl.
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(16 << 20);
    const auto channel = grpc::CreateCustomChannel(coordinator_->listen_address(),
                                                   grpc::InsecureChannelCredentials(), arguments);
    jobs_ = v1::JobService::NewStub(channel);
    workers_ = v1::WorkerService::NewStub(channel);
  }

  int64_t revision_ = 0;
  std::unique_ptr<v1::WorkerService::Stub> workers_;
};

TEST_F(StoredDataTest, OddLabels_AreDroppedByAResumeWithChanges) {
  Effects rows;
  v1::JobRecord record = Record("odd");
  auto& labels = *record.mutable_job()->mutable_spec()->mutable_labels();
  labels["team"] = "research";
  labels["Team A"] = "x";
  labels["color"] = "\x1b[31m\n";
  labels["long"] = std::string(1 << 20, 'v');
  rows.jobs.push_back({record});
  Start(rows);
  grpc::ClientContext context;
  v1::ResumeJobRequest request;
  request.set_job_id("odd");
  request.add_overrides("train.steps=20");
  v1::Job job;
  const grpc::Status status = jobs_->ResumeJob(&context, request, &job);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(job.spec().train().steps(), 20);
  ASSERT_EQ(job.spec().labels_size(), 1);
  EXPECT_EQ(job.spec().labels().at("team"), "research");
  const std::string messages = EventMessages("odd");
  EXPECT_THAT(messages, HasSubstr("labels.Team A: x -> removed"));
  EXPECT_THAT(messages, HasSubstr("labels.color: ?[31m"));
  EXPECT_LT(messages.size(), 1000u);
}

TEST_F(StoredDataTest, HugeJobsAndWorkers_AreListedShortened) {
  Effects rows;
  for (int i = 0; i < 3; ++i) {
    v1::JobRecord record = Record(absl::StrCat("huge-", i));
    record.mutable_job()->mutable_spec()->mutable_data()->mutable_train(0)->set_path(
        std::string(14 << 20, 'p'));
    rows.jobs.push_back({record});
  }
  for (int i = 0; i < 2; ++i) {
    v1::WorkerRecord record;
    record.mutable_worker()->set_worker_id(absl::StrCat("huge-", i));
    for (int k = 0; k < 180'000; ++k) {
      (*record.mutable_worker()->mutable_labels())[absl::StrCat(k)] = "value";
    }
    rows.workers.push_back({record});
  }
  Start(rows);
  grpc::ClientContext context;
  v1::ListJobsResponse jobs;
  ASSERT_TRUE(jobs_->ListJobs(&context, v1::ListJobsRequest(), &jobs).ok());
  ASSERT_EQ(jobs.jobs_size(), 3);
  EXPECT_EQ(jobs.jobs(0).job_id(), "huge-2");
  EXPECT_LT(jobs.ByteSizeLong(), 100'000u);
  grpc::ClientContext workers_context;
  v1::ListWorkersResponse workers;
  ASSERT_TRUE(workers_->ListWorkers(&workers_context, v1::ListWorkersRequest(), &workers).ok());
  EXPECT_EQ(workers.workers_size(), 2);
  EXPECT_LT(workers.ByteSizeLong(), 100'000u);
}

}  // namespace
}  // namespace hearth::coordinator
