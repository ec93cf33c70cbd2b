#include "worker/daemon/device/inventory.h"

#include <unistd.h>

#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/common/temp_dir.h"

namespace hearth::worker {
namespace {

using ::testing::HasSubstr;

TEST(InventoryTest, Parse_ProcTexts_FindFields) {
  EXPECT_EQ(ParseCpuModel("processor\t: 0\nmodel\t\t: 1\nmodel name\t: Fast CPU @ 3GHz\n"),
            "Fast CPU @ 3GHz");
  EXPECT_EQ(ParseCpuModel("processor : 0\n"), "");
  const std::string meminfo = "MemTotal:       16303428 kB\nMemFree:  12 kB\n";
  EXPECT_EQ(ParseMeminfo(meminfo, "MemTotal"), 16303428LL * 1024);
  EXPECT_EQ(ParseMeminfo(meminfo, "MemFree"), 12 * 1024);
  EXPECT_EQ(ParseMeminfo(meminfo, "Mem"), 0);
}

TEST(InventoryTest, ReadHostFacts_ThisMachine_IsPlausible) {
  const HostFacts facts = ReadHostFacts();
  EXPECT_FALSE(facts.host.empty());
  EXPECT_FALSE(facts.cpu_model.empty());
  EXPECT_GT(facts.memory_bytes, 1 << 20);
  EXPECT_GE(facts.threads, 1);
}

TEST(InventoryTest, MakeDeviceInfo_Cpu_DefaultsToAllThreads) {
  HostFacts facts;
  facts.cpu_model = "CPU";
  facts.threads = 6;
  facts.memory_bytes = 123;
  EXPECT_EQ(MakeDeviceInfo("cpu", 0, facts)->threads(), 6);
  EXPECT_EQ(MakeDeviceInfo("cpu", 2, facts)->threads(), 2);
  EXPECT_EQ(MakeDeviceInfo("cpu", 2, facts)->memory_bytes(), 123);
  EXPECT_EQ(MakeDeviceInfo("cpu", 2, facts)->host_memory_bytes(), 123);
}

TEST(InventoryTest, MakeDeviceInfo_Others_AreRefusedWithReason) {
  const auto other = MakeDeviceInfo("tpu", 0, {});
  EXPECT_THAT(std::string(other.status().message()), HasSubstr("cuda:GPU-UUID"));
  EXPECT_EQ(MakeDeviceInfo("tpu", 0, {}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(MakeDeviceInfo("cpu", -1, {}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(InventoryTest, DaemonIndex_Claims_AreLeastFreeAndReturned) {
  const TempDir dir;
  auto first = DaemonIndex::Claim(dir.path(), "cpu");
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->index(), 0);
  {
    const auto second = DaemonIndex::Claim(dir.path(), "cpu");
    EXPECT_EQ(second->index(), 1);
  }
  EXPECT_EQ(DaemonIndex::Claim(dir.path(), "cpu")->index(), 1);
  { const DaemonIndex gone = *std::move(first); }
  EXPECT_EQ(DaemonIndex::Claim(dir.path(), "cpu")->index(), 0);
}

TEST(InventoryTest, DaemonIndex_GpuOfAnotherDaemon_IsRefused) {
  const TempDir dir;
  {
    const auto first = DaemonIndex::ClaimGpu(dir.path(), "GPU-1", 3);
    ASSERT_TRUE(first.ok()) << first.status();
    EXPECT_EQ(first->index(), 3);
    EXPECT_EQ(DaemonIndex::ClaimGpu(dir.path(), "GPU-1", 3).status().code(),
              absl::StatusCode::kAlreadyExists);
    EXPECT_TRUE(DaemonIndex::ClaimGpu(dir.path(), "GPU-2", 4).ok());
  }
  EXPECT_TRUE(DaemonIndex::ClaimGpu(dir.path(), "GPU-1", 3).ok());
}

TEST(InventoryTest, UsageSampler_OwnProcess_CountsTimeOnceAndSurvivesAnother) {
  UsageSampler sampler;
  EXPECT_EQ(sampler.Look(0, 1.0, 1).resident_bytes, 0);
  const auto first = sampler.Look(getpid(), 1.0, 1);
  EXPECT_GT(first.resident_bytes, 0);
  EXPECT_EQ(first.utilization_ratio, 0.0);
  const auto second = sampler.Look(getpid(), 1.0, 1);
  EXPECT_GE(second.cpu_seconds_total, first.cpu_seconds_total);
  EXPECT_LE(second.utilization_ratio, 1.0);
  const auto none = sampler.Look(0, 1.0, 1);
  EXPECT_EQ(none.cpu_seconds_total, second.cpu_seconds_total);
}

TEST(InventoryTest, SourceAddressTowards_Loopback_IsLoopback) {
  EXPECT_EQ(SourceAddressTowards("127.0.0.1:7070"), "127.0.0.1");
}

}  // namespace
}  // namespace hearth::worker
