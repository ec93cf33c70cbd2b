#include "jobctl/doctor/doctor_job.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hearth::jobctl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kGiB = int64_t{1} << 30;

// A job in good order on one full GPU; the tests spoil it.
class DoctorJobTest : public ::testing::Test {
 protected:
  DoctorJobTest() {
    v1::Job& job = facts_.job;
    job.set_job_id("j");
    job.set_state(v1::JOB_STATE_RUNNING);
    job.set_step(100);
    job.add_workers("w");
    v1::JobSpec& spec = *job.mutable_spec();
    spec.mutable_train()->set_steps(1000);
    spec.mutable_data()->set_sequence_length(2048);
    spec.mutable_precision()->set_recipe("fp8");
    spec.mutable_resources()->set_device("cuda");
    v1::RunInfo& info = *job.mutable_run_info();
    info.set_recipe("fp8");
    info.set_recipe_execution("native");
    info.set_micro_batch_size(18);
    info.set_world_size(1);
    info.set_global_batch_tokens(int64_t{18} * 2048 * 16);
    info.set_comm("nccl");
    v1::Worker& worker = facts_.workers.emplace_back();
    worker.set_worker_id("w");
    v1::DeviceInfo& device = *worker.mutable_device();
    device.set_kind("cuda");
    device.set_model("NVIDIA Test");
    device.set_memory_bytes(32 * kGiB);
    device.set_power_limit_default_watts(575);
    device.set_sm_clock_max_hertz(3e9);
    v1::DeviceStatus& status = *worker.mutable_device_status();
    status.set_utilization_ratio(0.99);
    status.set_memory_used_bytes(28 * kGiB);
    status.set_power_watts(560);
    status.set_power_limit_watts(575);
    status.set_sm_clock_hertz(2.8e9);
    for (int i = 61; i <= 100; ++i) {
      v1::StepReport& step = facts_.steps.emplace_back();
      step.set_step(i);
      step.set_step_seconds(0.5);
      step.set_tokens_per_second(1e6);
      step.set_energy_joules(250);
      step.set_mfu(0.45);
      step.set_recipe("fp8");
      step.set_memory_bytes(27 * kGiB);
    }
  }

  v1::DeviceStatus& status() { return *facts_.workers[0].mutable_device_status(); }
  v1::JobSpec& spec() { return *facts_.job.mutable_spec(); }

  // "verdict check: text -> remedy", a line each.
  std::string Text() const {
    std::string out;
    for (const Finding& f : DiagnoseJob(facts_)) {
      out += std::string(VerdictName(f.verdict)) + " " + f.check + ": " + f.text + " -> " +
             f.remedy + "\n";
      if (f.verdict == Verdict::kFailed || f.verdict == Verdict::kWarning) {
        EXPECT_FALSE(f.remedy.empty()) << f.text;
      }
    }
    return out;
  }

  JobFacts facts_;
};

TEST_F(DoctorJobTest, GoodOrder_NothingStandsOut) {
  const std::string text = Text();
  EXPECT_THAT(text, HasSubstr("1.00M tok/s, 0.500 s a step (median of the last 20), 45.0 % of the "
                              "dense BF16 peak, 500 W, 2000.0 tokens per joule"));
  EXPECT_THAT(text, HasSubstr("nothing stands out"));
  EXPECT_THAT(text, Not(HasSubstr("warning")));
}

TEST_F(DoctorJobTest, EvalJob_IsJudgedByItsModels) {
  v1::Job& job = facts_.job;
  job.clear_spec();
  spec().set_task("eval");
  spec().mutable_resources()->set_device("cuda");
  job.set_step(2);
  for (int i = 0; i < 3; ++i) {
    job.add_models();
  }
  facts_.steps.resize(2);
  status().add_throttle_reasons("sw_thermal_slowdown");
  const std::string text = Text();
  EXPECT_THAT(text, HasSubstr("RUNNING, model 2 of 3"));
  EXPECT_THAT(text, HasSubstr("0.500 s a model (median of the last 2)"));
  EXPECT_THAT(text, HasSubstr("too hot")) << "of its GPU as of any";
  EXPECT_THAT(text, Not(HasSubstr("tok")));
  EXPECT_THAT(text, Not(HasSubstr(" step")));
  facts_.steps.clear();
  EXPECT_THAT(Text(), HasSubstr("no model has been reported yet"));
}

TEST_F(DoctorJobTest, Emulated_IsSaidFirst) {
  facts_.job.mutable_run_info()->set_recipe("nvfp4");
  facts_.job.mutable_run_info()->set_recipe_execution("emulated");
  EXPECT_THAT(Text(), HasSubstr("warning precision: recipe nvfp4 is emulated on NVIDIA Test"));
}

TEST_F(DoctorJobTest, OtherRecipe_WarmUpTailOrFallback) {
  facts_.steps.back().set_recipe("bf16");
  EXPECT_THAT(Text(), HasSubstr("warning precision: steps run in bf16, not in fp8"));
  spec().mutable_precision()->set_warmup_steps(200);
  EXPECT_THAT(Text(), HasSubstr("note precision: still in bf16: fp8 begins after step 200"));
  spec().mutable_precision()->set_warmup_steps(0);
  spec().mutable_precision()->set_bf16_tail(0.95);
  EXPECT_THAT(Text(), HasSubstr("for the last 950 steps (bf16_tail)"));
}

TEST_F(DoctorJobTest, Plan_SaysHowMuchOfTheGpuIsReached) {
  EXPECT_THAT(Text(), Not(HasSubstr(" plan: ")));
  v1::JobPlan& plan = facts_.plan.emplace();
  plan.set_gpus(1);
  plan.set_calibrated(true);
  plan.set_tokens_per_second(1.41e6);
  plan.mutable_step()->set_product_seconds(0.25);
  plan.mutable_step()->set_attention_seconds(0.105);
  plan.mutable_step()->set_seconds(0.355);
  EXPECT_THAT(Text(),
              HasSubstr("warning plan: you reach 71 % of what this GPU should give: 355.0 of "
                        "500.0 ms a step, 1.41M tok/s (products 250.0 + attention 105.0)"));
  plan.set_calibrated(false);  // may be tens of percent off: no reason to warn
  plan.set_gpus(4);
  EXPECT_THAT(Text(), HasSubstr("note plan: you reach 71 % of what these 4 GPUs should give"));
  EXPECT_THAT(Text(), HasSubstr("by the data sheet"));
  plan.mutable_step()->set_seconds(0.49);
  EXPECT_THAT(Text(), HasSubstr("ok plan: you reach 98 %"));
  plan.clear_tokens_per_second();
  plan.set_unknown("NVIDIA Test is not in configs/gpus.yaml");
  EXPECT_THAT(Text(), HasSubstr("note plan: no speed was planned: NVIDIA Test is not in"));
}

TEST_F(DoctorJobTest, Straggler_IsNamedWithItsWorker) {
  v1::Straggler& slow = *facts_.job.add_stragglers();
  slow.set_rank(2);
  slow.set_worker_id("w3");
  slow.set_ratio(1.42);
  EXPECT_THAT(Text(),
              HasSubstr("warning stragglers: rank 2 on w3 is 1.4 x slower than the median"));
}

TEST_F(DoctorJobTest, Throttled_NamesReasonClocksAndRemedy) {
  status().add_throttle_reasons("sw_thermal_slowdown");
  status().set_temperature_celsius(88);
  status().set_sm_clock_hertz(1.5e9);
  EXPECT_THAT(Text(), HasSubstr("warning GPU of w: throttled at 88 degrees: too hot (software "
                                "slowdown) (clock 1.50 of 3.00 GHz, 50 %) -> better cooling"));
}

TEST_F(DoctorJobTest, PowerCap_IsANoteAtTheDefaultAndAWarningBelow) {
  status().add_throttle_reasons("sw_power_cap");
  EXPECT_THAT(Text(), HasSubstr("note GPU of w: throttled: at its power limit, 560 of 575 W"));
  status().set_power_limit_watts(400);
  const std::string text = Text();
  EXPECT_THAT(text, HasSubstr("warning GPU of w: throttled: at its power limit"));
  EXPECT_THAT(text, HasSubstr("-pl 575"));
}

TEST_F(DoctorJobTest, LockedClocks_AreSaid) {
  status().set_sm_clock_hertz(1.2e9);
  EXPECT_THAT(Text(), HasSubstr("clocks are low without a reason given (clock 1.20 of 3.00 GHz"));
}

TEST_F(DoctorJobTest, SmallMicroBatch_SaysHowMuchLargerChangesNothing) {
  facts_.job.mutable_run_info()->set_micro_batch_size(2);
  status().set_memory_used_bytes(8 * kGiB);
  for (v1::StepReport& step : facts_.steps) {
    step.set_memory_bytes(7 * kGiB);
  }
  const std::string text = Text();
  EXPECT_THAT(text, HasSubstr("a micro-batch is 2 x 2048 = 4096 tokens and the GPU's memory is "
                              "25 % in use"));
  EXPECT_THAT(text, HasSubstr("a rank does 144 micro-batches a step"));
}

TEST_F(DoctorJobTest, Shares_OfDataCommunicationAndCheckpoints) {
  for (v1::StepReport& step : facts_.steps) {
    step.set_data_wait_seconds(0.1);
    step.set_comm_seconds(0.2);
    step.set_checkpoint_seconds(0.05);
  }
  facts_.job.mutable_run_info()->set_world_size(4);
  const std::string text = Text();
  EXPECT_THAT(text, HasSubstr("data: 20 % of the last steps' time is waiting for data"));
  EXPECT_THAT(text, HasSubstr("40 % of the last steps' time is communication over nccl"));
  EXPECT_THAT(text, HasSubstr("checkpoints: 10 %"));
}

TEST_F(DoctorJobTest, IdleGpuAndForeignMemory_AreSaid) {
  status().set_utilization_ratio(0.4);
  status().set_memory_used_bytes(31 * kGiB);
  const std::string text = Text();
  EXPECT_THAT(text, HasSubstr("runs a kernel only 40 % of the time"));
  EXPECT_THAT(text, HasSubstr("31.0 GiB of memory in use, 27.0 GiB of it by this rank"));
}

TEST_F(DoctorJobTest, SlowerThanBeforeAndUneven_AreSaid) {
  for (int i = 20; i < 40; ++i) {
    facts_.steps[static_cast<size_t>(i)].set_step_seconds(0.8);
  }
  facts_.steps[30].set_step_seconds(4.0);
  const std::string text = Text();
  EXPECT_THAT(text, HasSubstr("a step takes 60 % longer than around step 80"));
  EXPECT_THAT(text, HasSubstr("step 91 took 4.000 s, the median is 0.800 s"));
}

TEST_F(DoctorJobTest, RecomputeWithMemoryToSpare_IsSaid) {
  spec().set_recompute("block");
  status().set_memory_used_bytes(10 * kGiB);
  EXPECT_THAT(Text(), HasSubstr("recompute: block) although memory is only 31 % in use"));
}

TEST_F(DoctorJobTest, CpuJobBesideIdleGpus_IsSaid) {
  spec().mutable_resources()->set_device("cpu");
  facts_.workers.push_back(facts_.workers[0]);
  facts_.workers[0].mutable_device()->set_kind("cpu");
  facts_.workers[1].set_worker_id("g");
  facts_.workers[1].set_state(v1::WORKER_STATE_IDLE);
  EXPECT_THAT(Text(), HasSubstr("runs on the CPU while 1 GPU worker(s) idle"));
}

TEST_F(DoctorJobTest, NotRunning_SaysTheStateAlone) {
  facts_.job.set_state(v1::JOB_STATE_QUEUED);
  facts_.job.set_reason("needs 1 cuda worker, 0 exist and 1 unhealthy");
  EXPECT_THAT(Text(), HasSubstr("warning state: QUEUED, step 100 of 1000: needs 1 cuda worker"));
  facts_.job.set_state(v1::JOB_STATE_FAILED);
  EXPECT_TRUE(AnyFailed(DiagnoseJob(facts_)));
}

// Reports have the memory of rank 0, and the list of workers its own order.
TEST_F(DoctorJobTest, AnotherProcessOnTheGpuOfRank0_IsNamedThere) {
  facts_.workers.insert(facts_.workers.begin(), facts_.workers[0]);
  facts_.workers[0].set_worker_id("a");
  facts_.job.add_workers("a");  // rank 1
  facts_.workers[1].mutable_device_status()->set_memory_used_bytes(31 * kGiB);
  const std::string text = Text();
  EXPECT_THAT(text, HasSubstr("GPU of w: 31.0 GiB of memory in use"));
  EXPECT_THAT(text, Not(HasSubstr("GPU of a: 28.0 GiB of memory in use")));
}

}  // namespace
}  // namespace hearth::jobctl
