// PlanService over loopback gRPC, with a worker that has a GPU played by the test.
#include <memory>
#include <string>
#include <vector>

#include "common/rpc/channel.h"
#include "common/rpc/grpc_status.h"
#include "common/spec/feasibility/measured_plan.h"
#include "common/spec/feasibility/plan_messages.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "hearth/v1/plan.grpc.pb.h"
#include "tests/support/common/planned_job.h"
#include "tests/support/coordinator/fake_agent.h"
#include "tests/support/coordinator/loopback_coordinator.h"

namespace hearth::coordinator {
namespace {

using google::protobuf::util::MessageDifferencer;
using ::testing::HasSubstr;

constexpr int kSteps = 30;
constexpr double kTokS = 250'000;
constexpr const char* kGpu = "NVIDIA H200";

class PlanServiceTest : public LoopbackCoordinatorTest {
 protected:
  PlanServiceTest() { Begin(); }

  // Also after a restart's coordinator_.reset().
  void Begin() {
    StartCoordinator();
    plans_ = v1::PlanService::NewStub(channel_);
  }

  template <typename Stub, typename Request, typename Response>
  static absl::StatusOr<Response> Call(Stub& stub,
                                       grpc::Status (Stub::*method)(grpc::ClientContext*,
                                                                    const Request&,
                                                                    Response*),
                                       const Request& request) {
    grpc::ClientContext context;
    rpc::SetDeadline(context, FakeAgent::kPatience);
    Response response;
    const grpc::Status status = (stub.*method)(&context, request, &response);
    if (!status.ok()) {
      return rpc::FromGrpc(status);
    }
    return response;
  }

  absl::StatusOr<v1::PlanJobResponse> Plan(const v1::JobSpec& spec,
                                           const std::vector<std::string>& gpus,
                                           const spec::FeasibilityQuery& query = {}) {
    v1::PlanJobRequest request;
    *request.mutable_spec() = spec;
    request.mutable_gpus()->Assign(gpus.begin(), gpus.end());
    *request.mutable_question() = spec::QuestionOf(query);
    return Call<v1::PlanService::StubInterface>(*plans_, &v1::PlanService::StubInterface::PlanJob,
                                                request);
  }

  absl::StatusOr<v1::JobPlan> GetPlan(const std::string& job_id) {
    v1::GetJobPlanRequest request;
    request.set_job_id(job_id);
    return Call<v1::PlanService::StubInterface>(
        *plans_, &v1::PlanService::StubInterface::GetJobPlan, request);
  }

  absl::StatusOr<v1::ListJobPlansResponse> ListPlans(const std::string& gpu) {
    v1::ListJobPlansRequest request;
    request.set_gpu(gpu);
    return Call<v1::PlanService::StubInterface>(
        *plans_, &v1::PlanService::StubInterface::ListJobPlans, request);
  }

  static v1::JobSpec SmallJob() {
    v1::JobSpec spec = spec::PlannedJobFile("hearth-112m", "bf16", 4, 1024);
    spec.mutable_train()->set_steps(kSteps);
    return spec;
  }

  // Submits the job and plays its rank 0 to the end.
  void RunJob(FakeAgent& agent, const std::string& job_id) {
    v1::CreateJobRequest request;
    *request.mutable_spec() = SmallJob();
    request.set_job_id(job_id);
    const auto job = Call<v1::JobService::StubInterface>(
        *jobs_, &v1::JobService::StubInterface::CreateJob, request);
    ASSERT_TRUE(job.ok()) << job.status();
    const v1::Task task = agent.AwaitStart();
    ASSERT_EQ(task.job_id(), job_id);
    agent.Report(task, [](v1::TaskReport& r) {
      v1::RunInfo& run = *r.mutable_run_info();
      run.set_micro_batch_size(4);
      run.set_world_size(1);
      run.set_global_batch_tokens(16384);
      run.set_planned_bytes(int64_t{9} << 30);
    });
    for (int64_t step = 1; step <= kSteps; ++step) {
      agent.Report(task, [&](v1::TaskReport& r) {
        v1::StepReport& s = *r.mutable_step();
        s.set_step(step);
        s.set_loss(1);
        s.set_step_seconds(16384 / kTokS);
        s.set_tokens_per_second(kTokS);
        s.set_energy_joules(650 * s.step_seconds());
        s.set_memory_bytes(int64_t{10} << 30);
      });
    }
    agent.Report(task, [](v1::TaskReport& r) {
      r.mutable_exit()->mutable_exit()->set_reason(v1::EXIT_REASON_FINISHED);
      r.mutable_exit()->mutable_exit()->set_step(kSteps);
      r.mutable_exit()->set_clean(true);
    });
    ASSERT_TRUE(agent.AwaitAck(task, agent.seq()));
  }

  std::unique_ptr<v1::PlanService::Stub> plans_;
};

TEST_F(PlanServiceTest, PlanJob_IsWhatJobctlWouldSayOnItsOwn) {
  spec::FeasibilityQuery query;
  query.prices.per_gpu_hour = 2;
  query.tokens = 1e9;
  query.wanted_tok_s = 1e5;
  v1::JobSpec file = spec::PlannedJobFile("hearth-774m", "fp8", 8, 2048);
  const auto there = Plan(file, {"all"}, query);
  ASSERT_TRUE(there.ok()) << there.status();
  std::vector<spec::FieldViolation> violations;
  spec::Resolve(file, violations);
  ASSERT_TRUE(violations.empty());
  spec::FeasibilityJudge judge(file, query);
  ASSERT_EQ(there->judgements_size(), static_cast<int>(spec::Gpus().size()));
  for (int i = 0; i < there->judgements_size(); ++i) {
    const spec::GpuRow& gpu = spec::Gpus()[static_cast<size_t>(i)];
    const auto here = judge.Judge(gpu, spec::CalibrationFor(gpu));
    ASSERT_TRUE(here.ok()) << here.status();
    EXPECT_TRUE(MessageDifferencer::Equals(there->judgements(i), spec::JudgementOf(*here)))
        << gpu.name;
  }
}

TEST_F(PlanServiceTest, PlanJob_OfSeveralGpus_IsOfAJobWithSoManyWorkers) {
  v1::JobSpec file = SmallJob();
  file.mutable_parallel()->set_shard("optimizer");
  EXPECT_THAT(std::string(Plan(file, {"H200"}).status().message()),
              HasSubstr("here resources.workers is 1"));
  spec::FeasibilityQuery query;
  query.gpus = 4;
  const auto asked = Plan(file, {"H200"}, query);
  ASSERT_TRUE(asked.ok()) << asked.status();
  EXPECT_EQ(asked->judgements(0).shard(), "optimizer");
  file.mutable_resources()->set_workers(4);
  const auto written = Plan(file, {"H200"});
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_TRUE(MessageDifferencer::Equals(*asked, *written));
}

TEST_F(PlanServiceTest, PlanJob_AsksAWorkerWhereTheJobFileDoesNotSayAll) {
  v1::JobSpec open = SmallJob();
  open.mutable_model()->clear_preset();
  open.mutable_model()->set_layers(2);
  open.mutable_model()->set_hidden(256);
  open.mutable_model()->set_heads(4);
  open.mutable_model()->set_ffn_hidden(512);
  const auto alone = Plan(open, {"H200"});
  EXPECT_EQ(alone.status().code(), absl::StatusCode::kFailedPrecondition) << alone.status();
  EXPECT_THAT(std::string(alone.status().message()), HasSubstr("no worker with device cuda"));
  FakeAgent agent(coordinator_->listen_address(), "w1", int64_t{1} << 20, kGpu);
  open.mutable_model()->set_vocab(256);  // what the worker says of its dataset
  const auto said = Plan(open, {"H200"});
  ASSERT_TRUE(said.ok()) << said.status();
  open.mutable_model()->clear_vocab();
  absl::StatusOr<v1::PlanJobResponse> asked = absl::UnavailableError("not yet");
  for (int i = 0; i < 1000 && !asked.ok(); ++i) {  // until the worker has said hello
    asked = Plan(open, {"H200"});
  }
  ASSERT_TRUE(asked.ok()) << asked.status() << ": also though it does not fit that worker";
  EXPECT_TRUE(MessageDifferencer::Equals(*asked, *said));
}

TEST_F(PlanServiceTest, PlanJob_FaultsAreNamed) {
  const auto unknown = Plan(SmallJob(), {"RTX 5091"});
  EXPECT_EQ(unknown.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(unknown.status().message()), HasSubstr("RTX 5090"));
  EXPECT_EQ(Plan(SmallJob(), {}).status().code(), absl::StatusCode::kInvalidArgument);
  spec::FeasibilityQuery query;
  query.prices.per_kwh = -1;
  EXPECT_THAT(std::string(Plan(SmallJob(), {"H200"}, query).status().message()),
              HasSubstr("--price-kwh: -1"));
  v1::JobSpec bad = SmallJob();
  bad.mutable_train()->set_steps(-5);
  EXPECT_THAT(std::string(Plan(bad, {"H200"}).status().message()), HasSubstr("train.steps"));
  EXPECT_TRUE(absl::IsNotFound(GetPlan("nobody").status()));
  EXPECT_FALSE(ListPlans("RTX 5091").ok());
}

TEST_F(PlanServiceTest, AnEndedJob_KeepsPlannedAgainstMeasured_AndServesLaterPlans) {
  {
    FakeAgent agent(coordinator_->listen_address(), "w1", int64_t{141} << 30, kGpu);
    RunJob(agent, "first");
  }
  coordinator_.reset();
  Begin();  // it is in the store
  const auto plan = GetPlan("first");
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->gpu(), "H200");
  EXPECT_GT(plan->tokens_per_second(), 100'000);
  EXPECT_EQ(plan->memory_bytes(), (int64_t{9} << 30) + spec::kProcessOverheadBytes);
  EXPECT_EQ(plan->measured().steps(), kSteps - 10);
  EXPECT_NEAR(spec::MeasuredTokS(*plan), kTokS, 1);
  EXPECT_NEAR(spec::MeasuredWatts(*plan), 650, 1e-6);
  EXPECT_EQ(plan->measured().memory_bytes(), int64_t{10} << 30);
  EXPECT_TRUE(plan->has_end_time());
  const auto list = ListPlans("h200");
  ASSERT_TRUE(list.ok()) << list.status();
  ASSERT_EQ(list->plans_size(), 1);
  EXPECT_TRUE(MessageDifferencer::Equals(list->plans(0), *plan));
  EXPECT_EQ(ListPlans("H100 SXM")->plans_size(), 0);
  const auto later = Plan(SmallJob(), {"H200", "H100 SXM"});
  ASSERT_TRUE(later.ok()) << later.status();
  EXPECT_THAT(later->judgements(0).confidence(), HasSubstr("job first"));
  EXPECT_THAT(later->judgements(1).confidence(), testing::Not(HasSubstr("job first")));
}

}  // namespace
}  // namespace hearth::coordinator
