#include "kernels/gemm/plan_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace hearth::kernels {
namespace {

constexpr char kHeader[] = "hearth gemm plans 1; NVIDIA H200; sm_90";

StoredPlans TwoPlans() {
  StoredPlans plans;
  plans["m1_n2"] = {{1, 0, 3, 0xFFFFFFFFFFFFFFFF, 5, 6, 7, 8}, 4096, 12.5};
  plans["m3_n4"] = {{}, 0, 0.25};
  return plans;
}

std::string NewPath(const char* name) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "plans" / name;
  std::filesystem::remove_all(folder);
  return (folder / "gemm.txt").string();
}

TEST(PlanFile, Written_ReadBackTheSame) {
  const std::string path = NewPath("whole");
  ASSERT_TRUE(WritePlanFile(path, kHeader, TwoPlans()).ok());
  const StoredPlans read = ReadPlanFile(path, kHeader);
  ASSERT_EQ(read.size(), 2U);
  EXPECT_EQ(read.at("m1_n2").algorithm, TwoPlans()["m1_n2"].algorithm);
  EXPECT_EQ(read.at("m1_n2").workspace_bytes, 4096);
  EXPECT_EQ(read.at("m3_n4").microseconds, 0.25);
}

TEST(PlanFile, MadeForAnotherGpu_IsIgnored) {
  const std::string path = NewPath("other");
  ASSERT_TRUE(WritePlanFile(path, "hearth gemm plans 1; NVIDIA A100; sm_80", TwoPlans()).ok());
  EXPECT_TRUE(ReadPlanFile(path, kHeader).empty());
  EXPECT_TRUE(ReadPlanFile(path + ".absent", kHeader).empty());
}

TEST(PlanFile, TornLine_IsPassedOver) {
  const std::string path = NewPath("torn");
  ASSERT_TRUE(WritePlanFile(path, kHeader, TwoPlans()).ok());
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 3);
  const StoredPlans read = ReadPlanFile(path, kHeader);
  EXPECT_EQ(read.size(), 1U);
  EXPECT_EQ(read.count("m1_n2"), 1U);
}

TEST(PlanText, Parsed_IsTheSameAndOfThisGpuAlone) {
  const std::string text = PlansText(kHeader, TwoPlans());
  EXPECT_EQ(PlansText(kHeader, ParsePlans(text, kHeader)), text);
  EXPECT_TRUE(ParsePlans(text, "hearth gemm plans 1; NVIDIA A100; sm_80").empty());
}

TEST(MergePlans, Given_WinAndTheRestStays) {
  StoredPlans plans = TwoPlans();
  StoredPlans given = {{"m1_n2", TwoPlans()["m1_n2"]}};
  given["m1_n2"].microseconds = 99;
  EXPECT_FALSE(MergePlans(given, {}, plans).stored);
  given["m1_n2"].algorithm[2] = 4;
  EXPECT_TRUE(MergePlans(given, {}, plans).stored);
  EXPECT_EQ(plans.at("m1_n2").algorithm[2], 4U);
  EXPECT_EQ(plans.size(), 2U);
  EXPECT_TRUE(MergePlans({{"m5_n6", StoredPlan()}}, {}, plans).stored);
  EXPECT_EQ(plans.size(), 3U);
}

// A caller that sees `used` must prepare again, and with it all ranks.
TEST(MergePlans, PlansNeverRunHere_ChangeNothingThatWasUsed) {
  StoredPlans plans = TwoPlans();
  const StoredPlans used = {{"m1_n2", TwoPlans()["m1_n2"]}};
  StoredPlans given = TwoPlans();
  given["m3_n4"].algorithm[0] = 7;  // known here, not run
  given["m5_n6"] = StoredPlan();    // not even known
  given["m1_n2"].workspace_bytes = 8192;
  const MergedPlans merged = MergePlans(given, used, plans);
  EXPECT_TRUE(merged.stored);
  EXPECT_FALSE(merged.used);
  EXPECT_EQ(plans.at("m3_n4").algorithm[0], 7U) << "for when it is run";

  given["m1_n2"].algorithm[7] = 0;
  EXPECT_TRUE(MergePlans(given, used, plans).used);
  // Run with the library's first choice, which nobody stored.
  StoredPlans none;
  EXPECT_TRUE(MergePlans(given, used, none).used);
  EXPECT_FALSE(MergePlans(TwoPlans(), {}, none).used) << "nothing has been run yet";
}

TEST(PlanFile, FolderCannotBeMade_IsUnavailable) {
  const std::string path = NewPath("blocked");
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path) << "a file where a folder should be";
  EXPECT_EQ(WritePlanFile(path + "/gemm.txt", kHeader, TwoPlans()).code(),
            absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace hearth::kernels
