#include "kernels/gemm/tuned_plans.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace hearth::kernels {
namespace {

constexpr char kHeader[] = "hearth gemm plans 1; NVIDIA H200; sm_90";

TunedPlans TwoPlans() {
  TunedPlans plans;
  plans["m1_n2"] = {{1, 0, 3, 0xFFFFFFFFFFFFFFFF, 5, 6, 7, 8}, 4096, 12.5};
  plans["m3_n4"] = {{}, 0, 0.25};
  return plans;
}

std::string NewPath(const char* name) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "plans" / name;
  std::filesystem::remove_all(folder);
  return (folder / "gemm.txt").string();
}

TEST(TunedPlans, Written_ReadBackTheSame) {
  const std::string path = NewPath("whole");
  ASSERT_TRUE(WriteTunedPlans(path, kHeader, TwoPlans()).ok());
  const TunedPlans read = ReadTunedPlans(path, kHeader);
  ASSERT_EQ(read.size(), 2U);
  EXPECT_EQ(read.at("m1_n2").algorithm, TwoPlans()["m1_n2"].algorithm);
  EXPECT_EQ(read.at("m1_n2").workspace_bytes, 4096);
  EXPECT_EQ(read.at("m3_n4").microseconds, 0.25);
}

TEST(TunedPlans, MadeForAnotherGpu_IsIgnored) {
  const std::string path = NewPath("other");
  ASSERT_TRUE(WriteTunedPlans(path, "hearth gemm plans 1; NVIDIA A100; sm_80", TwoPlans()).ok());
  EXPECT_TRUE(ReadTunedPlans(path, kHeader).empty());
  EXPECT_TRUE(ReadTunedPlans(path + ".absent", kHeader).empty());
}

TEST(TunedPlans, TornLine_IsPassedOver) {
  const std::string path = NewPath("torn");
  ASSERT_TRUE(WriteTunedPlans(path, kHeader, TwoPlans()).ok());
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 3);
  const TunedPlans read = ReadTunedPlans(path, kHeader);
  EXPECT_EQ(read.size(), 1U);
  EXPECT_EQ(read.count("m1_n2"), 1U);
}

TEST(TunedPlansText, Parsed_IsTheSameAndOfThisGpuAlone) {
  const std::string text = TunedPlansText(kHeader, TwoPlans());
  EXPECT_EQ(TunedPlansText(kHeader, ParseTunedPlans(text, kHeader)), text);
  EXPECT_TRUE(ParseTunedPlans(text, "hearth gemm plans 1; NVIDIA A100; sm_80").empty());
}

TEST(MergeTunedPlans, Given_WinAndTheRestStays) {
  TunedPlans plans = TwoPlans();
  TunedPlans given = {{"m1_n2", TwoPlans()["m1_n2"]}};
  given["m1_n2"].microseconds = 99;
  EXPECT_FALSE(MergeTunedPlans(given, {}, plans).stored);
  given["m1_n2"].algorithm[2] = 4;
  EXPECT_TRUE(MergeTunedPlans(given, {}, plans).stored);
  EXPECT_EQ(plans.at("m1_n2").algorithm[2], 4U);
  EXPECT_EQ(plans.size(), 2U);
  EXPECT_TRUE(MergeTunedPlans({{"m5_n6", TunedPlan()}}, {}, plans).stored);
  EXPECT_EQ(plans.size(), 3U);
}

// A caller that sees `used` must prepare again, and with it all ranks.
TEST(MergeTunedPlans, PlansNeverRunHere_ChangeNothingThatWasUsed) {
  TunedPlans plans = TwoPlans();
  const TunedPlans used = {{"m1_n2", TwoPlans()["m1_n2"]}};
  TunedPlans given = TwoPlans();
  given["m3_n4"].algorithm[0] = 7;  // known here, not run
  given["m5_n6"] = TunedPlan();     // not even known
  given["m1_n2"].workspace_bytes = 8192;
  const MergedTunedPlans merged = MergeTunedPlans(given, used, plans);
  EXPECT_TRUE(merged.stored);
  EXPECT_FALSE(merged.used);
  EXPECT_EQ(plans.at("m3_n4").algorithm[0], 7U) << "for when it is run";

  given["m1_n2"].algorithm[7] = 0;
  EXPECT_TRUE(MergeTunedPlans(given, used, plans).used);
  // Run with the library's first choice, which nobody stored.
  TunedPlans none;
  EXPECT_TRUE(MergeTunedPlans(given, used, none).used);
  EXPECT_FALSE(MergeTunedPlans(TwoPlans(), {}, none).used) << "nothing has been run yet";
}

TEST(TunedPlans, FolderCannotBeMade_IsUnavailable) {
  const std::string path = NewPath("blocked");
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path) << "a file where a folder should be";
  EXPECT_EQ(WriteTunedPlans(path + "/gemm.txt", kHeader, TwoPlans()).code(),
            absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace hearth::kernels
