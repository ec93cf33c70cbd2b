#include "worker/trainer/device/tuned_plan_paths.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "common/base/system.h"

namespace hearth::trainer {
namespace {

TEST(ShippedPlansOf, InstalledProgramAndBuildFolder_FindTheFolder) {
  const std::filesystem::path top = std::filesystem::path(testing::TempDir()) / "tuned_plan_paths";
  std::filesystem::remove_all(top);
  EXPECT_EQ(ShippedPlansOf((top / "bin/hearth-trainer").string()), "");
  std::filesystem::create_directories(top / "configs/plans");
  const std::string plans = (top / "configs/plans").string();
  EXPECT_EQ(ShippedPlansOf((top / "bin/hearth-trainer").string()), plans);
  EXPECT_EQ(ShippedPlansOf((top / "build/release/bin/hearth-trainer").string()), plans);
  EXPECT_EQ(ShippedPlansOf((top / "other/bin/deep/er/hearth-trainer").string()), "");
}

TEST(FindTunedPlanPaths, Environment_NamesFilesAndTime) {
  SetEnv("HEARTH_HOME", "/somewhere");
  SetEnv("HEARTH_PLANS", "/plans");
  SetEnv("HEARTH_TUNING_SECONDS", "0.5");
  const auto files = FindTunedPlanPaths();
  ASSERT_TRUE(files.ok());
  EXPECT_EQ(files->own, "/somewhere/plans.txt");
  EXPECT_EQ(files->shipped, "/plans");
  EXPECT_EQ(files->tuning_seconds, 0.5);
  SetEnv("HEARTH_PLANS", "");
  EXPECT_EQ(FindTunedPlanPaths()->shipped, "") << "none";
  SetEnv("HEARTH_TUNING_SECONDS", "-1");
  EXPECT_EQ(FindTunedPlanPaths().status().code(), absl::StatusCode::kInvalidArgument);
  UnsetEnv("HEARTH_HOME");
  UnsetEnv("HEARTH_PLANS");
  UnsetEnv("HEARTH_TUNING_SECONDS");
}

}  // namespace
}  // namespace hearth::trainer
