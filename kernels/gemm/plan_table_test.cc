#include "kernels/gemm/plan_table.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <initializer_list>
#include <string>
#include <utility>

namespace hearth::kernels {
namespace {

const PlanOrigin kH200 = {"NVIDIA H200", 9, 0, 130100, 13000};

TunedPlan Plan(uint64_t algorithm) {
  return {{algorithm}, 4096, 12.5};
}

class PlanTableTest : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_ / "shipped");
  }
  std::string own() const { return (folder_ / "own.txt").string(); }
  std::string shipped() const { return (folder_ / "shipped").string(); }
  void Ship(const std::string& name, const PlanOrigin& origin, const TunedPlans& plans) const {
    ASSERT_TRUE(
        WriteTunedPlans((folder_ / "shipped" / name).string(), origin.Header(), plans).ok());
  }
  // First word of the algorithm found; 0: none.
  static uint64_t Found(const PlanTable& table, const std::string& key) {
    const TunedPlan* const plan = table.Find(key);
    return plan == nullptr ? 0 : plan->algorithm[0];
  }

  const std::filesystem::path folder_ =
      std::filesystem::path(testing::TempDir()) / "plan_table" /
      testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(PlanTableTest, Header_IsThatOfFilesOfEarlierVersions) {
  EXPECT_EQ(kH200.Header(),
            "hearth gemm plans 1; NVIDIA H200; sm_90; cuBLASLt 130100; driver 13000");
}

TEST_F(PlanTableTest, ShippedPlans_AreBehindOwnOnes) {
  Ship("h200.plans", kH200, {{"both", Plan(1)}, {"shipped", Plan(2)}});
  ASSERT_TRUE(WriteTunedPlans(own(), kH200.Header(), {{"both", Plan(3)}}).ok());
  const PlanTable table(kH200, own(), shipped());
  EXPECT_EQ(Found(table, "both"), 3U);
  EXPECT_EQ(Found(table, "shipped"), 2U);
  EXPECT_EQ(Found(table, "neither"), 0U);
}

TEST_F(PlanTableTest, ShippedPlansOfAnotherLibraryOrGpu_AreRejected) {
  for (const auto& [name, origin] : std::initializer_list<std::pair<const char*, PlanOrigin>>{
           {"library.plans", {"NVIDIA H200", 9, 0, 130200, 13000}},
           {"gpu.plans", {"NVIDIA H200 NVL", 9, 0, 130100, 13000}},
           {"capability.plans", {"NVIDIA H200", 12, 0, 130100, 13000}}}) {
    Ship(name, origin, {{name, Plan(1)}});
    EXPECT_EQ(Found(PlanTable(kH200, "", shipped()), name), 0U) << name;
    EXPECT_EQ(Found(PlanTable(origin, "", shipped()), name), 1U) << name;
  }
}

TEST_F(PlanTableTest, ShippedPlansOfAnotherDriver_AreTaken) {
  Ship("h200.plans", {"NVIDIA H200", 9, 0, 130100, 12080}, {{"m1", Plan(1)}});
  EXPECT_EQ(Found(PlanTable(kH200, "", shipped()), "m1"), 1U);
}

TEST_F(PlanTableTest, SeveralFiles_TheFirstByNameWinsAndOtherNamesAreNoPlans) {
  Ship("b.plans", kH200, {{"both", Plan(2)}, {"b", Plan(3)}});
  Ship("a.plans", kH200, {{"both", Plan(1)}});
  Ship("README.md", kH200, {{"text", Plan(1)}});
  const PlanTable table(kH200, "", shipped());
  EXPECT_EQ(Found(table, "both"), 1U);
  EXPECT_EQ(Found(table, "b"), 3U);
  EXPECT_EQ(Found(table, "text"), 0U);
}

TEST_F(PlanTableTest, NoShippedFolder_IsNoError) {
  EXPECT_EQ(PlanTable(kH200, own(), shipped() + "/absent").Find("m1"), nullptr);
}

// A later version of the program may ship another plan: who has run one keeps its bits.
TEST_F(PlanTableTest, UsedShippedPlan_BecomesTheUsersOwn) {
  Ship("h200.plans", kH200, {{"used", Plan(1)}, {"unused", Plan(2)}});
  PlanTable table(kH200, own(), shipped());
  EXPECT_EQ(table.shipped_used(), 0);
  table.Use("used");
  table.Use("used");
  table.Use("neither");
  EXPECT_EQ(table.shipped_used(), 1);
  EXPECT_NE(table.Export().find("used"), std::string::npos) << "other ranks run the same";
  ASSERT_TRUE(table.Save().ok());
  Ship("h200.plans", kH200, {{"used", Plan(7)}, {"unused", Plan(8)}});
  const PlanTable later(kH200, own(), shipped());
  EXPECT_EQ(Found(later, "used"), 1U);
  EXPECT_EQ(Found(later, "unused"), 8U);
}

TEST_F(PlanTableTest, Save_WritesNewPlansBesideThoseOfOtherProcessesAndLeavesShippedFilesAlone) {
  Ship("h200.plans", kH200, {{"shipped", Plan(1)}});
  PlanTable table(kH200, own(), shipped());
  ASSERT_TRUE(table.Save().ok());
  EXPECT_FALSE(std::filesystem::exists(own())) << "nothing is new";
  table.Record("here", Plan(1));
  ASSERT_TRUE(WriteTunedPlans(own(), kH200.Header(), {{"elsewhere", Plan(2)}}).ok());
  ASSERT_TRUE(table.Save().ok());
  const TunedPlans saved = ReadTunedPlans(own(), kH200.Header());
  EXPECT_EQ(saved.size(), 2U);
  EXPECT_EQ(ReadShippedPlans(shipped(), kH200).size(), 1U);
}

TEST_F(PlanTableTest, Import_TakesOverPlansOfThisOriginAlone) {
  PlanTable table(kH200, own(), "");
  table.Record("m1", Plan(1));
  const TunedPlans used = {{"m1", Plan(1)}};
  EXPECT_FALSE(table.Import("nonsense", used).ok());
  const PlanOrigin other = {"NVIDIA A100", 8, 0, 130100, 13000};
  EXPECT_FALSE(*table.Import(TunedPlansText(other.Header(), {{"m1", Plan(2)}}), used));
  EXPECT_EQ(Found(table, "m1"), 1U);
  EXPECT_TRUE(*table.Import(TunedPlansText(kH200.Header(), {{"m1", Plan(2)}}), used));
  EXPECT_EQ(Found(table, "m1"), 2U);
}

}  // namespace
}  // namespace hearth::kernels
