#include "worker/daemon/confine/cgroup.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/io/env.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/common/temp_dir.h"

namespace hearth::worker {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr char kMounts[] =
    "22 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n"
    "29 22 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

TEST(FindCgroup, UnifiedMachine_IsBelowTheMount) {
  EXPECT_EQ(*FindCgroup("0::/system.slice/hearth-worker@0.service\n", kMounts),
            "/sys/fs/cgroup/system.slice/hearth-worker@0.service");
  EXPECT_EQ(*FindCgroup("0::/\n", kMounts), "/sys/fs/cgroup");
}

TEST(FindCgroup, BothVersions_TakesTheSecondVersionsLine) {
  EXPECT_EQ(*FindCgroup("8:pids:/old\n0::/new\n", kMounts), "/sys/fs/cgroup/new");
}

TEST(FindCgroup, NotMounted_SaysSo) {
  const auto found = FindCgroup("8:pids:/\n", "22 1 254:0 / / rw - ext4 /dev/vda rw\n");
  EXPECT_EQ(found.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(found.status().message()), HasSubstr("not mounted"));
}

// Plain files where the kernel would have its own.
class CgroupTest : public ::testing::Test {
 protected:
  CgroupTest() {
    fs::create_directories(base_ / "daemon");
    fs::create_directories(base_ / "trainers-w1");
    for (const char* file :
         {"cgroup.subtree_control", "daemon/cgroup.procs", "trainers-w1/cgroup.procs",
          "trainers-w1/memory.max", "trainers-w1/pids.max", "trainers-w1/cpu.max"}) {
      std::ofstream(base_ / file).close();
    }
    Has("cpuset cpu io memory pids\n");
  }

  void Has(const std::string& controllers) const {
    std::ofstream(base_ / "cgroup.controllers") << controllers;
  }
  std::string Read(const std::string& file) const {
    return Env::Real().ReadFile((base_ / file).string()).value_or("(none)");
  }
  absl::StatusOr<Cgroup> Make(const CgroupLimits& limits) const {
    return Cgroup::Make(base_.string(), "w1", limits);
  }

  const TempDir temp_;
  const fs::path base_ = temp_.path();
};

TEST_F(CgroupTest, Make_AllLimits_WritesThemAndMovesTheDaemonAside) {
  const auto group = Make({.memory_bytes = 8 << 20, .processes = 500, .cpus = 1.5});
  ASSERT_TRUE(group.ok()) << group.status();
  EXPECT_EQ(Read("daemon/cgroup.procs"), absl::StrCat(getpid()));
  EXPECT_EQ(Read("cgroup.subtree_control"), "+memory +pids +cpu");
  EXPECT_EQ(Read("trainers-w1/memory.max"), "8388608");
  EXPECT_EQ(Read("trainers-w1/pids.max"), "500");
  EXPECT_EQ(Read("trainers-w1/cpu.max"), "150000 100000");
  ASSERT_EQ(write(group->procs_fd(), "0", 1), 1);
  EXPECT_EQ(Read("trainers-w1/cgroup.procs"), "0");
}

TEST_F(CgroupTest, Make_OneLimit_NeedsItsControllerAlone) {
  Has("memory\n");
  EXPECT_TRUE(Make({.memory_bytes = 1 << 20}).ok());
  EXPECT_EQ(Read("cgroup.subtree_control"), "+memory");
  EXPECT_EQ(Read("trainers-w1/pids.max"), "");
}

TEST_F(CgroupTest, Make_NoController_NamesItAndWhatThereIs) {
  Has("hugetlb\n");
  const auto group = Make({.processes = 5});
  EXPECT_EQ(group.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(group.status().message()),
              HasSubstr("no controller pids (it has: hugetlb); with systemd, set Delegate=yes"));
  EXPECT_EQ(Read("daemon/cgroup.procs"), "") << "nothing was changed";
}

TEST_F(CgroupTest, Make_NotDelegated_SaysWhatCannotBeWritten) {
  fs::remove(base_ / "cgroup.subtree_control");
  const auto group = Make({.processes = 5});
  EXPECT_EQ(group.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(group.status().message()), HasSubstr("cgroup.subtree_control"));
  EXPECT_THAT(std::string(group.status().message()), HasSubstr("Delegate=yes"));
}

}  // namespace
}  // namespace hearth::worker
