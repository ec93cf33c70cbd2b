// What leaves the coordinator before its commit, and what a crash makes of it, over loopback gRPC.
#include <string>

#include "common/fault/fault.h"
#include "gtest/gtest.h"
#include "tests/support/coordinator/fake_agent.h"
#include "tests/support/coordinator/loopback_coordinator.h"
#include "tests/support/coordinator/tiny_spec.h"

namespace hearth::coordinator {
namespace {

class CommitsTest : public LoopbackCoordinatorTest {
 protected:
  ~CommitsTest() override { EXPECT_TRUE(fault::Configure("").ok()); }

  void Submit() {
    grpc::ClientContext context;
    v1::CreateJobRequest request;
    *request.mutable_spec() = TinySpec();
    v1::Job job;
    ASSERT_TRUE(jobs_->CreateJob(&context, request, &job).ok());
  }
  v1::Job Get(const std::string& job_id) {
    grpc::ClientContext context;
    v1::GetJobRequest request;
    request.set_job_id(job_id);
    v1::Job job;
    EXPECT_TRUE(jobs_->GetJob(&context, request, &job).ok());
    return job;
  }
  static v1::AgentMessage WaitFor(const v1::Task& task, const std::string& key) {
    v1::AgentMessage message;
    message.mutable_kv_wait()->set_job_id(task.job_id());
    message.mutable_kv_wait()->set_epoch(task.epoch());
    message.mutable_kv_wait()->set_rank(task.rank());
    message.mutable_kv_wait()->set_key(key);
    return message;
  }
  static v1::AgentMessage ReportOf(const v1::Task& task, int64_t seq) {
    v1::AgentMessage message;
    message.mutable_report()->set_job_id(task.job_id());
    message.mutable_report()->set_epoch(task.epoch());
    message.mutable_report()->set_rank(task.rank());
    message.mutable_report()->set_seq(seq);
    return message;
  }
  static v1::AgentMessage Put(const v1::Task& task) {
    v1::AgentMessage message = ReportOf(task, 1);
    message.mutable_report()->mutable_kv_put()->set_key("address");
    message.mutable_report()->mutable_kv_put()->set_value("10.0.0.1:7");
    return message;
  }
  static bool IsValue(const v1::CoordinatorMessage& message) { return message.has_kv_value(); }
};

// From here on no commit succeeds, as if the coordinator died before it.
TEST_F(CommitsTest, CrashAfterAValueHasLeft_ThePutComesAgainAndTheGangGoesOn) {
  v1::Hello hello;
  hello.set_incarnation(std::string(32, 'a'));
  StartCoordinator();
  v1::Task task;
  {
    FakeAgent agent(coordinator_->listen_address(), "w1", 1 << 30, "", hello);
    Submit();
    task = agent.AwaitStart();
    ASSERT_EQ(task.epoch(), 1);
    agent.Write(WaitFor(task, "address"));
    ASSERT_TRUE(fault::Configure("store.before_commit=error").ok());
    agent.Write(Put(task));
    EXPECT_EQ(agent.Await(IsValue).kv_value().value().value(), "10.0.0.1:7");
    coordinator_->WaitUntil([] { return false; });  // until its store fails
    EXPECT_TRUE(coordinator_->failed());
  }
  coordinator_.reset();
  ASSERT_TRUE(fault::Configure("").ok());

  StartCoordinator();
  v1::TaskStatus& status = *hello.add_tasks();
  status.set_job_id(task.job_id());
  status.set_epoch(task.epoch());
  status.set_running(true);
  status.set_last_seq(1);
  status.set_first_unacked_seq(1);
  FakeAgent agent(coordinator_->listen_address(), "w1", 1 << 30, "", hello);
  agent.Write(WaitFor(task, "address"));
  agent.Write(Put(task));
  EXPECT_TRUE(agent.AwaitAck(task, 1));
  EXPECT_EQ(agent.Await(IsValue).kv_value().value().value(), "10.0.0.1:7");
  v1::AgentMessage step = ReportOf(task, 2);
  step.mutable_report()->mutable_step()->set_step(1);
  agent.Write(step);
  EXPECT_TRUE(agent.AwaitAck(task, 2));
  const v1::Job job = Get(task.job_id());
  EXPECT_EQ(job.state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(job.epoch(), 1);
  EXPECT_EQ(job.step(), 1);
}

// Its end stores what waits: nothing has to come again.
TEST_F(CommitsTest, OrderlyEnd_StoresTheReportsThatWait) {
  StartCoordinator();
  v1::Task task;
  {
    FakeAgent agent(coordinator_->listen_address(), "w1");
    Submit();
    task = agent.AwaitStart();
    agent.Report(task, [](v1::TaskReport& report) {
      report.mutable_kv_put()->set_key("address");
      report.mutable_kv_put()->set_value("10.0.0.1:7");
    });
    ASSERT_TRUE(fault::Configure("store.before_commit=delay:200ms").ok());
    agent.ReportStep(task, 1);  // RUNNING, so it is committed at once
    ASSERT_TRUE(agent.AwaitAck(task, agent.seq()));
    agent.ReportStep(task, 2);  // waits for four times as long as that took
    agent.Write(WaitFor(task, "address"));
    ASSERT_TRUE(agent.Await(IsValue).has_kv_value()) << "so the step before it was applied";
    coordinator_.reset();
  }
  ASSERT_TRUE(fault::Configure("").ok());
  StartCoordinator();
  EXPECT_EQ(Get(task.job_id()).step(), 2);
}

}  // namespace
}  // namespace hearth::coordinator
