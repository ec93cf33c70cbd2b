#include "worker/daemon/device/gpu_monitor.h"

#include <string>
#include <utility>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/common/fake_clock.h"
#include "tests/support/common/fake_state.h"

namespace hearth::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kLibrary[] = HEARTH_FAKE_NVML_LIBRARY;
constexpr int64_t kMiB = 1 << 20;

class GpuMonitorTest : public ::testing::Test {
 protected:
  GpuMonitorTest() { fake_.SetTwoGpus(); }

  static std::string OpenError(const std::string& device, const std::string& visible = "") {
    const auto gpu = OpenGpu(device, visible, kLibrary);
    EXPECT_FALSE(gpu.ok()) << device;
    return gpu.status().ToString();
  }
  static std::string Uuid(const std::string& device, const std::string& visible = "") {
    const auto gpu = OpenGpu(device, visible, kLibrary);
    EXPECT_TRUE(gpu.ok()) << gpu.status();
    return gpu.ok() ? gpu->gpu->info().uuid : "";
  }
  // Samples only when it must: Held() asks for it.
  static std::unique_ptr<GpuMonitor> Monitor() {
    return std::make_unique<GpuMonitor>(*OpenGpu("cuda:0", "", kLibrary), Clock::Real(),
                                        GpuMonitor::Options{.period = absl::Hours(1)});
  }
  // Waits for a sample of after now.
  static std::string Held(GpuMonitor& monitor, pid_t trainer, std::optional<int64_t> baseline) {
    const absl::Duration gone = Clock::Real().Monotonic();
    monitor.AwaitSample(gone);
    return monitor.Held(trainer, baseline, gone).value_or("no sample");
  }

  nvml::FakeState fake_;
};

TEST_F(GpuMonitorTest, OpenGpu_NumberOrUuid_FindsIt) {
  EXPECT_EQ(Uuid("cuda:0"), "GPU-0");
  EXPECT_EQ(Uuid("cuda:1"), "GPU-1");
  EXPECT_EQ(Uuid("cuda:GPU-1"), "GPU-1");
}

TEST_F(GpuMonitorTest, OpenGpu_CudaVisibleDevices_Renumbers) {
  EXPECT_EQ(Uuid("cuda:0", "1"), "GPU-1");
  EXPECT_EQ(Uuid("cuda:1", "1,0"), "GPU-0");
  EXPECT_EQ(Uuid("cuda:0", "GPU-1"), "GPU-1");
  EXPECT_EQ(Uuid("cuda:GPU-0", "1"), "GPU-0") << "a UUID says it all";
  EXPECT_THAT(OpenError("cuda:1", "0"), HasSubstr("CUDA_VISIBLE_DEVICES=0 shows only 1"));
}

TEST_F(GpuMonitorTest, OpenGpu_Wrong_SaysWhatToDo) {
  EXPECT_THAT(OpenError("cuda:7"), HasSubstr("this host has 2 GPU(s); nvidia-smi -L"));
  for (const char* bad : {"cuda", "cuda:", "cuda:x", "cuda:-1", "gpu:0"}) {
    EXPECT_EQ(OpenGpu(bad, "", kLibrary).status().code(), absl::StatusCode::kInvalidArgument)
        << bad;
  }
  EXPECT_THAT(std::string(OpenGpu("cuda:0", "", "libnone.so.1").status().message()),
              HasSubstr("no NVIDIA driver here"));
}

TEST_F(GpuMonitorTest, MakeGpuDeviceInfo_AllTold_IsTheInventory) {
  fake_.Set({{"1.reserved", std::to_string(512 * kMiB)}});
  const auto gpu = OpenGpu("cuda:1", "", kLibrary);
  ASSERT_TRUE(gpu.ok());
  HostFacts facts;
  facts.threads = 16;
  facts.memory_bytes = 64LL << 30;
  const auto info = MakeGpuDeviceInfo(*gpu, 0, facts);
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->kind(), "cuda");
  EXPECT_EQ(info->index(), 1);
  EXPECT_EQ(info->model(), "NVIDIA Test 1");
  EXPECT_EQ(info->uuid(), "GPU-1");
  EXPECT_EQ(info->pci_bus_id(), "00000000:02:00.0");
  EXPECT_EQ(info->memory_bytes(), (32LL << 30) - 512 * kMiB);
  EXPECT_EQ(info->threads(), 8) << "the host's over its GPUs";
  EXPECT_EQ(info->compute_capability(), "12.0");
  EXPECT_EQ(info->driver_version(), "580.82.07");
  EXPECT_EQ(info->cuda_version(), "13.0");
  EXPECT_EQ(info->power_limit_watts(), 500.0);
  EXPECT_EQ(info->power_limit_default_watts(), 575.0);
  EXPECT_EQ(info->host_memory_bytes(), 64LL << 30) << "all of it, whatever the GPUs";
  EXPECT_EQ(MakeGpuDeviceInfo(*gpu, 3, facts)->threads(), 3);
  EXPECT_FALSE(MakeGpuDeviceInfo(*gpu, -1, facts).ok());
}

TEST_F(GpuMonitorTest, Status_Sample_IsTold) {
  fake_.Set({{"0.power", "321000"}, {"0.energy", "5000"}, {"0.throttle", "4"}, {"0.sm", "1980"}});
  const auto monitor = Monitor();
  const v1::DeviceStatus status = monitor->Status();
  EXPECT_EQ(status.power_watts(), 321.0);
  EXPECT_EQ(status.energy_joules(), 5.0);
  EXPECT_EQ(status.sm_clock_hertz(), 1.98e9);
  EXPECT_THAT(status.throttle_reasons(), ElementsAre("sw_power_cap"));
  EXPECT_EQ(monitor->EnergyJoules(), 5.0);
  EXPECT_EQ(monitor->unhealthy_reason(), "");
  EXPECT_EQ(monitor->Reading().info.uuid, "GPU-0");
}

TEST_F(GpuMonitorTest, Run_Period_KeepsSampling) {
  FakeClock clock;
  GpuMonitor monitor(*OpenGpu("cuda:0", "", kLibrary), clock, {.period = absl::Seconds(1)});
  clock.AwaitWaiters(1);
  fake_.Set({{"0.temp", "83"}});
  EXPECT_EQ(monitor.Status().temperature_celsius(), 40.0);
  clock.Advance(absl::Seconds(1));
  clock.AwaitWaiters(1);
  monitor.AwaitSample(clock.Monotonic());
  EXPECT_EQ(monitor.Status().temperature_celsius(), 83.0);
}

TEST_F(GpuMonitorTest, Held_MemoryBackWithin64MiB_IsFree) {
  fake_.Set({{"0.used", std::to_string(100 * kMiB)}});
  const auto monitor = Monitor();
  EXPECT_EQ(monitor->Baseline(), 100 * kMiB);
  EXPECT_EQ(Held(*monitor, 42, 100 * kMiB), "");
  fake_.Set({{"0.used", std::to_string(164 * kMiB)}});
  EXPECT_EQ(Held(*monitor, 42, 100 * kMiB), "");
  fake_.Set({{"0.used", std::to_string(165 * kMiB)}});
  EXPECT_THAT(Held(*monitor, 42, 100 * kMiB), HasSubstr("more memory in use"));
}

TEST_F(GpuMonitorTest, Held_OthersComeAndGo_AreNotCounted) {
  fake_.Set(
      {{"0.used", std::to_string(600 * kMiB)}, {"0.gprocs", "7:" + std::to_string(500 * kMiB)}});
  const auto monitor = Monitor();
  EXPECT_EQ(monitor->Baseline(), 100 * kMiB);
  fake_.Set(
      {{"0.used", std::to_string(2100 * kMiB)}, {"0.gprocs", "7:" + std::to_string(2000 * kMiB)}});
  EXPECT_EQ(Held(*monitor, 42, 100 * kMiB), "");
  fake_.Set({{"0.gprocs", "7:-"}});
  EXPECT_EQ(Held(*monitor, 42, 100 * kMiB), "") << "what the others use cannot be told";
}

TEST_F(GpuMonitorTest, Held_TrainerStillListed_IsNotFree) {
  const auto monitor = Monitor();
  fake_.Set({{"0.procs", "42:-"}});
  EXPECT_THAT(Held(*monitor, 42, 0), HasSubstr("still lists process 42"));
  EXPECT_EQ(Held(*monitor, 43, 0), "");
}

TEST_F(GpuMonitorTest, Health_LostGpu_IsUnhealthyUntilItAnswers) {
  const auto monitor = Monitor();
  fake_.Set({{"0.lost", "1"}});
  EXPECT_THAT(Held(*monitor, 42, 0), HasSubstr("GPU is lost"));
  EXPECT_THAT(monitor->unhealthy_reason(), HasSubstr("GPU is lost"));
  fake_.Erase("0.lost");
  EXPECT_EQ(Held(*monitor, 42, 0), "");
  EXPECT_EQ(monitor->unhealthy_reason(), "");
}

TEST_F(GpuMonitorTest, Health_FatalXid_StaysUnhealthyAndOthersAreCounted) {
  const auto monitor = Monitor();
  fake_.Set({{"0.xids", "31"}});
  Held(*monitor, 42, 0);
  EXPECT_EQ(monitor->unhealthy_reason(), "");
  EXPECT_EQ(monitor->Status().last_xid(), 31);
  fake_.Set({{"0.xids", "31,79"}});
  Held(*monitor, 42, 0);
  Held(*monitor, 42, 0);
  EXPECT_THAT(monitor->unhealthy_reason(), HasSubstr("XID 79"));
  EXPECT_EQ(monitor->Reading().xid_errors, 2);
}

// A GPU whose driver does not return from the second sample until it is told to.
class StuckGpu : public nvml::Gpu {
 public:
  StuckGpu(absl::Notification& stuck, absl::Notification& release)
      : stuck_(stuck), release_(release) {}
  const nvml::GpuInfo& info() const override { return info_; }
  absl::StatusOr<nvml::GpuSample> Sample() override {
    if (++samples_ == 2) {
      stuck_.Notify();
      release_.WaitForNotification();
    }
    return nvml::GpuSample{};
  }
  std::optional<double> EnergyJoules() override { return std::nullopt; }

 private:
  absl::Notification& stuck_;
  absl::Notification& release_;
  nvml::GpuInfo info_;
  int samples_ = 0;
};

TEST_F(GpuMonitorTest, Health_DriverThatHangs_HoldsUpNobodyAndIsSaid) {
  absl::Notification stuck;
  absl::Notification release;
  OpenedGpu gpu = *OpenGpu("cuda:0", "", kLibrary);
  gpu.gpu = std::make_unique<StuckGpu>(stuck, release);
  FakeClock clock;
  GpuMonitor monitor(std::move(gpu), clock, {.stall_bound = absl::Seconds(20)});
  clock.AwaitWaiters(1);
  clock.Advance(absl::Seconds(1));
  stuck.WaitForNotification();
  clock.Advance(absl::Seconds(19));
  EXPECT_EQ(monitor.unhealthy_reason(), "");
  EXPECT_EQ(monitor.Held(42, 0, clock.Monotonic()), std::nullopt);
  clock.Advance(absl::Seconds(2));
  EXPECT_THAT(monitor.unhealthy_reason(), HasSubstr("has not answered for 21s: the driver hangs"));
  release.Notify();
}

}  // namespace
}  // namespace hearth::worker
