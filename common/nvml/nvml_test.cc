#include "common/nvml/nvml.h"

#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/common/fake_state.h"

namespace hearth::nvml {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(NvmlTest, Open_NoLibrary_IsNotFound) {
  EXPECT_EQ(Nvml::Open("libhearth-no-such-library.so.1").status().code(),
            absl::StatusCode::kNotFound);
}

TEST(NvmlTest, Open_LibraryWithoutNvmlsFunctions_NamesTheMissingOne) {
  const auto nvml = Nvml::Open("libm.so.6");
  EXPECT_EQ(nvml.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(nvml.status().message()), HasSubstr("nvmlInit_v2"));
}

TEST(NvmlTest, Open_DriverNotLoaded_IsUnavailableInItsWords) {
  FakeState fake;
  fake.Set({{"init", "9"}});
  const auto nvml = Nvml::Open(HEARTH_FAKE_NVML_LIBRARY);
  EXPECT_EQ(nvml.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(nvml.status().message()), HasSubstr("Driver Not Loaded (NVML 9)"));
}

TEST(NvmlTest, Info_AllTold_HasUnitsRight) {
  FakeState fake;
  fake.SetTwoGpus();
  const auto nvml = Nvml::Open(HEARTH_FAKE_NVML_LIBRARY);
  ASSERT_TRUE(nvml.ok()) << nvml.status();
  EXPECT_EQ((*nvml)->driver_version(), "580.82.07");
  EXPECT_EQ(CudaVersionText((*nvml)->cuda_version()), "13.0");
  EXPECT_EQ(*(*nvml)->Count(), 2);
  const auto gpu = (*nvml)->ByIndex(1);
  ASSERT_TRUE(gpu.ok()) << gpu.status();
  const GpuInfo& info = (*gpu)->info();
  EXPECT_EQ(info.index, 1);
  EXPECT_EQ(info.name, "NVIDIA Test 1");
  EXPECT_EQ(info.uuid, "GPU-1");
  EXPECT_EQ(info.pci_bus_id, "00000000:02:00.0");
  EXPECT_EQ(info.compute_major, 12);
  EXPECT_EQ(info.compute_minor, 0);
  EXPECT_EQ(info.memory_bytes, 32LL << 30);
  EXPECT_EQ(info.power_limit_watts, 500.0);
  EXPECT_EQ(info.power_limit_default_watts, 575.0);
  EXPECT_EQ(info.sm_clock_max_hertz, 3e9);
  EXPECT_EQ(info.mig, std::nullopt) << "not supported";
  EXPECT_EQ((*nvml)->ByUuid("GPU-0").value()->info().index, 0);
}

TEST(NvmlTest, By_UnknownGpu_IsNotFound) {
  FakeState fake;
  fake.SetTwoGpus();
  const auto nvml = *Nvml::Open(HEARTH_FAKE_NVML_LIBRARY);
  EXPECT_EQ(nvml->ByIndex(2).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(nvml->ByUuid("GPU-x").status().code(), absl::StatusCode::kNotFound);
}

TEST(NvmlTest, Sample_AllTold_HasUnitsRight) {
  FakeState fake;
  fake.SetTwoGpus();
  fake.Set({{"0.used", "1000"},
            {"0.reserved", "50"},
            {"0.power", "250500"},
            {"0.energy", "7000"},
            {"0.gpu_util", "80"},
            {"0.mem_util", "40"},
            {"0.temp", "66"},
            {"0.sm", "1500"},
            {"0.mem", "2600"},
            {"0.throttle", "36"},
            {"0.ecc", "3"},
            {"0.ecc_corrected", "17"},
            {"0.rows", "2,1,1,0"},
            {"0.pcie_replays", "5"},
            {"0.pcie_gen", "1"},
            {"0.pcie_width", "8"},
            {"0.pcie_gen_max", "5"},
            {"0.pcie_width_max", "16"},
            {"0.field.197", "9000000000"},
            {"0.field.198", "7"},
            {"0.field.82", "71"},
            {"0.procs", "12:300,13:-"},
            {"0.gprocs", "13:-,14:5"}});
  const auto nvml = *Nvml::Open(HEARTH_FAKE_NVML_LIBRARY);
  const auto gpu = *nvml->ByIndex(0);
  const GpuSample sample = *gpu->Sample();
  EXPECT_EQ(sample.memory_used_bytes, 1000);
  EXPECT_EQ(sample.memory_reserved_bytes, 50);
  EXPECT_EQ(sample.memory_total_bytes, 32LL << 30);
  EXPECT_EQ(sample.power_watts, 250.5);
  EXPECT_EQ(sample.energy_joules, 7.0);
  EXPECT_EQ(gpu->EnergyJoules(), 7.0);
  EXPECT_EQ(sample.utilization_ratio, 0.8);
  EXPECT_EQ(sample.memory_utilization_ratio, 0.4);
  EXPECT_EQ(sample.temperature_celsius, 66.0);
  EXPECT_EQ(sample.sm_clock_hertz, 1.5e9);
  EXPECT_EQ(sample.memory_clock_hertz, 2.6e9);
  EXPECT_THAT(ThrottleReasonNames(*sample.throttle_reasons),
              ElementsAre("sw_power_cap", "sw_thermal_slowdown"));
  EXPECT_EQ(sample.ecc_errors, 3);
  EXPECT_EQ(sample.ecc_corrected_errors, 17);
  ASSERT_TRUE(sample.remapped_rows.has_value());
  EXPECT_EQ(sample.remapped_rows->correctable, 2);
  EXPECT_EQ(sample.remapped_rows->uncorrectable, 1);
  EXPECT_TRUE(sample.remapped_rows->pending);
  EXPECT_FALSE(sample.remapped_rows->failed);
  EXPECT_EQ(sample.pcie_replays, 5);
  EXPECT_EQ(sample.pcie_generation, 1);
  EXPECT_EQ(sample.pcie_width, 8);
  EXPECT_EQ(gpu->info().pcie_generation_max, 5);
  EXPECT_EQ(gpu->info().pcie_width_max, 16);
  EXPECT_EQ(sample.pcie_sent_bytes, 9'000'000'000);
  EXPECT_EQ(sample.pcie_received_bytes, 7);
  EXPECT_EQ(sample.memory_temperature_celsius, 71.0);
  ASSERT_TRUE(sample.processes.has_value());
  ASSERT_EQ(sample.processes->size(), 3u) << "each once";
  EXPECT_EQ((*sample.processes)[0].pid, 12);
  EXPECT_EQ((*sample.processes)[0].used_bytes, 300);
  EXPECT_EQ((*sample.processes)[1].used_bytes, std::nullopt);
}

TEST(NvmlTest, Sample_NothingSupported_IsAllAbsent) {
  FakeState fake;
  fake.Set({{"count", "1"}});
  const auto nvml = *Nvml::Open(HEARTH_FAKE_NVML_LIBRARY);
  EXPECT_EQ(nvml->cuda_version(), 0);
  const auto gpu = *nvml->ByIndex(0);
  EXPECT_EQ(gpu->info().compute_major, 0);
  EXPECT_EQ(gpu->info().power_limit_watts, std::nullopt);
  const auto sample = gpu->Sample();
  ASSERT_TRUE(sample.ok()) << sample.status();
  EXPECT_EQ(sample->memory_used_bytes, std::nullopt);
  EXPECT_EQ(sample->power_watts, std::nullopt);
  EXPECT_EQ(sample->energy_joules, std::nullopt);
  EXPECT_EQ(sample->utilization_ratio, std::nullopt);
  EXPECT_EQ(sample->throttle_reasons, std::nullopt);
  EXPECT_FALSE(sample->remapped_rows.has_value());
  EXPECT_EQ(sample->pcie_replays, std::nullopt);
  EXPECT_EQ(sample->pcie_sent_bytes, std::nullopt);
  EXPECT_EQ(sample->memory_temperature_celsius, std::nullopt);
  EXPECT_EQ(sample->processes, std::nullopt);
  EXPECT_THAT(sample->xids, IsEmpty());
}

TEST(NvmlTest, Sample_ManyProcesses_AreAllListed) {
  FakeState fake;
  fake.SetTwoGpus();
  std::string list = "1:1";
  for (int pid = 2; pid <= 200; ++pid) {
    list += "," + std::to_string(pid) + ":1";
  }
  fake.Set({{"0.procs", list}});
  const auto nvml = *Nvml::Open(HEARTH_FAKE_NVML_LIBRARY);
  EXPECT_EQ((*nvml->ByIndex(0))->Sample()->processes->size(), 200u);
}

TEST(NvmlTest, Sample_Xids_AreToldOnce) {
  FakeState fake;
  fake.SetTwoGpus();
  const auto nvml = *Nvml::Open(HEARTH_FAKE_NVML_LIBRARY);
  const auto gpu = *nvml->ByIndex(0);
  fake.Set({{"0.xids", "31,79"}});
  EXPECT_THAT(gpu->Sample()->xids, ElementsAre(31, 79));
  EXPECT_THAT(gpu->Sample()->xids, IsEmpty());
  EXPECT_FALSE(IsFatalXid(31)) << "an illegal access is the program's fault";
  EXPECT_TRUE(IsFatalXid(79));
}

TEST(NvmlTest, Sample_LostGpu_SaysSo) {
  FakeState fake;
  fake.SetTwoGpus();
  const auto nvml = *Nvml::Open(HEARTH_FAKE_NVML_LIBRARY);
  const auto gpu = *nvml->ByIndex(0);
  fake.Set({{"0.lost", "1"}});
  const auto sample = gpu->Sample();
  EXPECT_EQ(sample.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(sample.status().message()), HasSubstr("GPU is lost"));
}

TEST(NvmlTest, ThrottleReasonNames_UnknownBit_IsNotHidden) {
  EXPECT_THAT(ThrottleReasonNames(0x1001), ElementsAre("gpu_idle", "unknown_0x1000"));
  EXPECT_THAT(SlowdownNames(0x1), IsEmpty());
}

}  // namespace
}  // namespace hearth::nvml
