#include "common/spec/feasibility/measured_plan.h"

#include <cmath>

#include "common/spec/feasibility/accuracy.h"
#include "common/spec/feasibility/feasibility.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/common/planned_job.h"

namespace hearth::spec {
namespace {

using ::testing::HasSubstr;

v1::JobDevices Devices(const std::string& model, int gpus, int hosts = 1) {
  v1::JobDevices devices;
  for (int host = 0; host < hosts; ++host) {
    v1::DeviceGroup& group = *devices.add_groups();
    group.set_host(host == 0 ? "a" : "b");
    group.set_kind("cuda");
    group.set_model(model);
    for (int i = 0; i < gpus / hosts; ++i) {
      group.add_worker_ids("w");
    }
  }
  return devices;
}

v1::RunInfo RunOf(const v1::JobSpec& job, int gpus) {
  v1::RunInfo run;
  run.set_micro_batch_size(job.batch().micro_batch_size());
  run.set_world_size(gpus);
  run.set_global_batch_tokens(job.batch().global_batch_tokens());
  run.set_planned_bytes(int64_t{10} << 30);
  return run;
}

v1::StepReport Step(double tok_s, double seconds, double watts) {
  v1::StepReport step;
  step.set_tokens_per_second(tok_s);
  step.set_step_seconds(seconds);
  step.set_energy_joules(watts * seconds);
  step.set_memory_bytes(11'000'000'000);
  return step;
}

// The same numbers that `jobctl plan` gives for the job on these GPUs.
TEST(PlanStartedTest, IsThePlanOfTheJob) {
  const v1::JobSpec job = PlannedJob("hearth-112m", "fp8", 8, 2048);
  for (const int gpus : {1, 4}) {
    FeasibilityQuery query;
    query.gpus = gpus;
    const GpuRow& gpu = GpuNamed("H200");
    const auto f = AssessFeasibility(job, gpu, CalibrationFor(gpu), query);
    ASSERT_TRUE(f.ok()) << f.status();
    const auto plan = PlanStarted(job, RunOf(job, gpus), Devices("NVIDIA H200", gpus));
    ASSERT_TRUE(plan.has_value());
    EXPECT_EQ(plan->unknown(), "");
    EXPECT_EQ(plan->gpu(), "H200");
    EXPECT_EQ(plan->gpus(), gpus);
    EXPECT_TRUE(plan->calibrated());
    EXPECT_EQ(plan->parameters(), f->parameters);
    EXPECT_NEAR(plan->tokens_per_second() / f->tok_s, 1, 1e-9);
    EXPECT_DOUBLE_EQ(plan->watts(), f->time.watts);
    EXPECT_DOUBLE_EQ(plan->step().seconds(), f->time.seconds);
    EXPECT_EQ(plan->micro_batches(), f->micro_batches);
    EXPECT_EQ(plan->memory_bytes(), (int64_t{10} << 30) + OverheadBytes(gpus));
  }
}

TEST(PlanStartedTest, SaysWhyThereIsNone) {
  const v1::JobSpec job = PlannedJob("hearth-112m", "bf16");
  const v1::RunInfo run = RunOf(job, 2);
  EXPECT_THAT(PlanStarted(job, run, Devices("NVIDIA T4", 2))->unknown(), HasSubstr("NVIDIA T4"));
  EXPECT_THAT(PlanStarted(job, run, Devices("NVIDIA H200", 2, 2))->unknown(),
              HasSubstr("several hosts"));
  v1::JobDevices mixed = Devices("NVIDIA H200", 1);
  *mixed.add_groups() = Devices("NVIDIA L40S", 1).groups(0);
  EXPECT_THAT(PlanStarted(job, run, mixed)->unknown(), HasSubstr("several kinds"));
  v1::JobSpec cpu = job;
  cpu.mutable_resources()->set_device("cpu");
  EXPECT_FALSE(PlanStarted(cpu, run, Devices("NVIDIA H200", 2)).has_value());
  v1::RunInfo absurd = run;  // of a worker that says anything
  absurd.set_micro_batch_size(1 << 30);
  EXPECT_FALSE(PlanStarted(job, absurd, Devices("NVIDIA H200", 2)).has_value());
  EXPECT_FALSE(PlanStarted(job, v1::RunInfo(), Devices("NVIDIA H200", 2)).has_value());
}

TEST(AddMeasuredTest, CountsStepsThatOnlyTrain_AfterTheWarmUp) {
  v1::JobPlan plan;
  plan.set_gpus(2);
  plan.set_tokens_per_second(1000);
  AddMeasured(Step(10, 1, 100), 10, plan);
  EXPECT_FALSE(plan.has_measured());
  EXPECT_FALSE(IsComparable(plan));
  AddMeasured(Step(800, 1, 1000), 11, plan);
  AddMeasured(Step(1200, 3, 1400), 12, plan);
  v1::StepReport evaluated = Step(100, 50, 100);
  evaluated.set_validation_loss(3);
  AddMeasured(evaluated, 13, plan);
  v1::StepReport saved = Step(100, 50, 100);
  saved.set_checkpoint_seconds(1);
  AddMeasured(saved, 14, plan);
  EXPECT_EQ(plan.measured().steps(), 2);
  EXPECT_DOUBLE_EQ(MeasuredTokS(plan), (800 + 3 * 1200) / 4.0);
  EXPECT_DOUBLE_EQ(MeasuredWatts(plan), (1000 + 3 * 1400) / 4.0 / 2);
  EXPECT_EQ(plan.measured().memory_bytes(), 11'000'000'000);
  EXPECT_TRUE(IsComparable(plan));
}

v1::JobPlan Ended(const std::string& id, const Feasibility& like, double planned_over_measured) {
  v1::JobPlan plan;
  plan.set_job_id(id);
  plan.set_gpu(like.gpu);
  plan.set_gpus(like.gpus);
  plan.set_parameters(like.parameters);
  plan.set_recipe(like.recipe);
  plan.set_micro_batch(like.micro_batch);
  plan.set_sequence_length(like.sequence_length);
  plan.set_tokens_per_second(1000 * planned_over_measured);
  plan.mutable_measured()->set_tokens(1000);
  plan.mutable_measured()->set_seconds(1);
  return plan;
}

TEST(ConfidenceTest, IsTheErrorsOfTheNearestJobsOfTheGpu) {
  const v1::JobSpec job = PlannedJob("hearth-112m", "bf16");
  const GpuRow& gpu = GpuNamed("RTX 5090");
  const Calibration& calibration = CalibrationFor(gpu);
  const auto f = AssessFeasibility(job, gpu, calibration, {});
  ASSERT_TRUE(f.ok()) << f.status();
  EXPECT_EQ(f->confidence, "nothing measured on this GPU: from the data sheet");
  v1::JobPlan far = Ended("far", *f, 3);
  far.set_parameters(f->parameters * 64);
  v1::JobPlan elsewhere = Ended("elsewhere", *f, 5);
  elsewhere.set_gpu("H200");
  const std::vector<v1::JobPlan> ended = {elsewhere, far, Ended("one", *f, 1.10),
                                          Ended("two", *f, 0.95), Ended("three", *f, 1.02)};
  FeasibilityJudge judge(job, {}, ended);
  const auto judged = judge.Judge(gpu, calibration);
  ASSERT_TRUE(judged.ok()) << judged.status();
  EXPECT_EQ(judged->confidence,
            "from the data sheet, and jobs of this GPU: plans of the nearest runs (job one, job "
            "two, job three) were -5.0 to +10.0 % off in tok/s");
}

TEST(ConfidenceTest, ErrorsOfOneSign_AreNotSaidToReachZero) {
  const v1::JobSpec job = PlannedJob("hearth-112m", "bf16");
  const GpuRow& gpu = GpuNamed("RTX 5090");
  const auto f = AssessFeasibility(job, gpu, CalibrationFor(gpu), {});
  ASSERT_TRUE(f.ok()) << f.status();
  FeasibilityJudge judge(job, {}, {Ended("one", *f, 1.10), Ended("two", *f, 1.02)});
  const auto judged = judge.Judge(gpu, CalibrationFor(gpu));
  ASSERT_TRUE(judged.ok()) << judged.status();
  EXPECT_THAT(judged->confidence, testing::HasSubstr("were +2.0 to +10.0 % off"));
}

TEST(ConfidenceTest, RunsOnSeveralGpus_SayOnHowMany) {
  FeasibilityQuery query;
  query.gpus = 4;
  const auto f = AssessFeasibility(PlannedJob("hearth-112m", "bf16", 18, 2048), GpuNamed("H200"),
                                   CalibrationFor(GpuNamed("H200")), query);
  ASSERT_TRUE(f.ok()) << f.status();
  EXPECT_THAT(f->confidence, testing::HasSubstr("(hearth-112m bf16 on 4 GPUs, "));
}

}  // namespace
}  // namespace hearth::spec
