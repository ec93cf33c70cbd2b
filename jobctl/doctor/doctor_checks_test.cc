#include "jobctl/doctor/doctor_checks.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace hearth::jobctl {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kGiB = int64_t{1} << 30;

// "verdict check: text -> remedy", a line each.
std::string Text(const Findings& findings) {
  std::string out;
  for (const Finding& f : findings) {
    out += std::string(VerdictName(f.verdict)) + " " + f.check + ": " + f.text + " -> " + f.remedy +
           "\n";
  }
  return out;
}

// What every finding that is not in order must have.
void ExpectRemedies(const Findings& findings) {
  for (const Finding& f : findings) {
    if (f.verdict == Verdict::kFailed || f.verdict == Verdict::kWarning) {
      EXPECT_FALSE(f.remedy.empty()) << f.check << ": " << f.text;
    }
  }
}

CoordinatorFacts Coordinator(absl::Duration skew = absl::ZeroDuration()) {
  CoordinatorFacts facts;
  facts.address = "127.0.0.1:7070";
  facts.asked = absl::FromUnixSeconds(1000);
  facts.answered = facts.asked + absl::Milliseconds(10);
  const absl::Time time = facts.asked + absl::Milliseconds(5) + skew;
  facts.version.set_version("0.1.0");
  facts.version.mutable_time()->set_seconds(absl::ToUnixSeconds(time));
  facts.version.mutable_time()->set_nanos(static_cast<int32_t>(
      absl::ToInt64Nanoseconds(time - absl::FromUnixSeconds(absl::ToUnixSeconds(time)))));
  facts.version.set_data_dir("/var/lib/hearth");
  facts.version.set_data_free_bytes(100 * kGiB);
  return facts;
}

std::string CoordinatorText(const CoordinatorFacts& facts) {
  Findings out;
  CheckCoordinator(facts, "0.1.0 (abc)", out);
  ExpectRemedies(out);
  return Text(out);
}

TEST(CheckCoordinator, AllWell_IsOk) {
  const std::string text = CoordinatorText(Coordinator());
  EXPECT_THAT(text, HasSubstr("ok coordinator: 127.0.0.1:7070 answers, version 0.1.0"));
  EXPECT_THAT(text, HasSubstr("ok clock: the coordinator's clock is 0.000 s ahead of ours"));
  EXPECT_THAT(text, HasSubstr("ok coordinator: 100.0 GiB free in /var/lib/hearth"));
}

TEST(CheckCoordinator, ClockSkew_IsWarnedOfAndThenFails) {
  EXPECT_THAT(CoordinatorText(Coordinator(-absl::Seconds(5))),
              HasSubstr("warning clock: the coordinator's clock is 5.000 s behind ours"));
  EXPECT_THAT(CoordinatorText(Coordinator(absl::Seconds(90))),
              HasSubstr("failed clock: the coordinator's clock is 90.000 s ahead of ours"));
}

TEST(CheckCoordinator, OtherVersionAndFullDisk_AreSaid) {
  CoordinatorFacts facts = Coordinator();
  facts.version.set_version("0.2.0");
  facts.version.set_data_free_bytes(kGiB / 2);
  const std::string text = CoordinatorText(facts);
  EXPECT_THAT(text, HasSubstr("warning coordinator"));
  EXPECT_THAT(text, HasSubstr("jobctl is 0.1.0 (abc)"));
  EXPECT_THAT(text, HasSubstr("failed coordinator: 512.0 MiB free"));
}

v1::Worker Gpu(v1::WorkerState state) {
  v1::Worker worker;
  worker.set_worker_id("h-gpu0");
  worker.set_host("h");
  worker.set_state(state);
  worker.set_version("0.1.0 (abc)");
  worker.mutable_device()->set_kind("cuda");
  worker.mutable_device()->set_model("NVIDIA Test");
  worker.mutable_device()->set_power_limit_default_watts(575);
  worker.mutable_device_status()->set_power_limit_watts(575);
  return worker;
}

std::string WorkersText(const std::vector<v1::Worker>& workers) {
  Findings out;
  CheckWorkers(workers, Coordinator().version, out);
  ExpectRemedies(out);
  return Text(out);
}

TEST(CheckWorkers, States_AreJudged) {
  EXPECT_THAT(WorkersText({}), HasSubstr("failed workers"));
  EXPECT_THAT(WorkersText({Gpu(v1::WORKER_STATE_IDLE)}), HasSubstr("ok worker h-gpu0: idle"));
  EXPECT_THAT(WorkersText({Gpu(v1::WORKER_STATE_LOST)}), HasSubstr("failed worker h-gpu0"));
  v1::Worker confined = Gpu(v1::WORKER_STATE_IDLE);
  confined.add_confinement("no capabilities");
  confined.add_confinement("system calls filtered");
  EXPECT_THAT(WorkersText({confined}),
              HasSubstr("trainers with no capabilities, system calls filtered"));
  v1::Worker sick = Gpu(v1::WORKER_STATE_UNHEALTHY);
  sick.set_reason("GPU-1 has 2.0 GiB more memory in use than before the task");
  const std::string text = WorkersText({sick});
  EXPECT_THAT(text, HasSubstr("failed worker h-gpu0: unhealthy, not scheduled: GPU-1 has 2.0 GiB"));
  EXPECT_THAT(text, HasSubstr("jobctl uncordon h-gpu0"));
}

TEST(CheckWorkers, Gpu_CapErrorsVersionAndDisk_AreSaid) {
  v1::Worker worker = Gpu(v1::WORKER_STATE_BUSY);
  worker.set_version("0.0.9");
  worker.set_checkpoint_root("/ck");
  worker.set_checkpoint_free_bytes(5 * kGiB);
  worker.mutable_device_status()->set_power_limit_watts(400);
  worker.mutable_device_status()->set_xid_errors(2);
  worker.mutable_device_status()->set_last_xid(31);
  worker.mutable_device_status()->set_ecc_errors(1);
  const std::string text = WorkersText({worker});
  EXPECT_THAT(text,
              HasSubstr("capped at 400 W, its default is 575 W -> sudo nvidia-smi -i 0 -pl 575"));
  EXPECT_THAT(text, HasSubstr("2 XID error(s) since the worker started, the last was 31"));
  EXPECT_THAT(text, HasSubstr("1 uncorrectable"));
  EXPECT_THAT(text, HasSubstr("version 0.0.9, the coordinator has 0.1.0"));
  EXPECT_THAT(text, HasSubstr("warning worker h-gpu0: 5.0 GiB free in /ck"));
}

TEST(CheckDriver, TooOldOrNoGpu_Fails) {
  Findings out;
  CheckDriver("535.1", 12020, 1, out);
  CheckDriver("580.1", 13000, 0, out);
  CheckDriver("580.1", 13000, 2, out);
  CheckNoDriver(absl::NotFoundError("no library"), /*has_gpu=*/true, out);
  CheckNoDriver(absl::NotFoundError("no library"), /*has_gpu=*/false, out);
  ASSERT_EQ(out.size(), 5u);
  EXPECT_EQ(out[0].verdict, Verdict::kFailed);
  EXPECT_THAT(out[0].remedy, HasSubstr("driver 580"));
  EXPECT_EQ(out[1].verdict, Verdict::kFailed);
  EXPECT_EQ(out[2].verdict, Verdict::kOk);
  EXPECT_EQ(out[3].verdict, Verdict::kFailed);
  EXPECT_EQ(out[4].verdict, Verdict::kNote) << "a machine without a GPU is in order";
  ExpectRemedies(out);
  EXPECT_TRUE(AnyFailed(out));
}

TEST(CheckGpu, Facts_AreJudged) {
  nvml::GpuInfo info;
  info.index = 2;
  info.name = "NVIDIA Test";
  info.compute_major = 7;
  info.memory_bytes = 32 * kGiB;
  info.power_limit_default_watts = 575;
  info.persistence = false;
  nvml::GpuSample sample;
  sample.memory_used_bytes = 20 * kGiB;
  sample.power_limit_watts = 450;
  sample.throttle_reasons = 0x24;
  sample.temperature_celsius = 90;
  Findings out;
  CheckGpu(info, sample, out);
  ExpectRemedies(out);
  const std::string text = Text(out);
  EXPECT_THAT(text, HasSubstr("failed GPU 2: NVIDIA Test, compute capability 7.0"));
  EXPECT_THAT(text, HasSubstr("12.0 GiB of 32.0 GiB free, 0 processes"));
  EXPECT_THAT(text, HasSubstr("power limit 450 W, 78 % of the default 575 W"));
  EXPECT_THAT(text, HasSubstr("clocks limited: sw_power_cap, sw_thermal_slowdown"));
  EXPECT_THAT(text, HasSubstr("90 degrees"));
  EXPECT_THAT(text, HasSubstr("note GPU 2: persistence mode is off"));
  out.clear();
  CheckGpu(info, absl::UnavailableError("GPU is lost"), out);
  EXPECT_THAT(Text(out), HasSubstr("failed GPU 2: GPU is lost"));
}

TEST(MergeTrainerChecks, Rows_AreTakenOver) {
  Findings out;
  MergeTrainerChecks(
      R"([{"name":"nccl","ok":false,"text":"not found","remedy":"install libnccl2"},
          {"name":"cuda","ok":true,"text":"13.0","remedy":""},
          {"name":"nvfp4","ok":true,"note":true,"text":"not on this GPU: emulated","remedy":""}])",
      /*gpus=*/1, out);
  EXPECT_EQ(Text(out),
            "failed trainer nccl: not found -> install libnccl2\nok trainer cuda: 13.0 -> \n"
            "note trainer nvfp4: not on this GPU: emulated -> \n");
  out.clear();
  MergeTrainerChecks(R"([{"name":"device","ok":true,"text":"no GPU in use","remedy":""}])",
                     /*gpus=*/2, out);
  EXPECT_THAT(Text(out), HasSubstr("failed trainer device: the driver shows 2 GPU(s)"));
  out.clear();
  MergeTrainerChecks("Segmentation fault", /*gpus=*/0, out);
  EXPECT_EQ(out.at(0).verdict, Verdict::kFailed);
  ExpectRemedies(out);
}

TEST(Render, TableAndJson_HaveEachFinding) {
  const Findings findings = {{Verdict::kOk, "disk", "9 GiB free", ""},
                             {Verdict::kFailed, "GPU 0", "lost \xff", "reset it"}};
  EXPECT_EQ(Render(findings, OutputFormat::kTable),
            "ok       disk   9 GiB free\n"
            "failed   GPU 0  lost \xff\n"
            "                -> reset it\n");
  const auto json = nlohmann::json::parse(Render(findings, OutputFormat::kJson));
  EXPECT_EQ(json.at(1).at("status"), "failed");
  EXPECT_EQ(json.at(1).at("remedy"), "reset it");
}

}  // namespace
}  // namespace hearth::jobctl
