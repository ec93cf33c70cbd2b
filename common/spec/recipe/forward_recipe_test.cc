#include "common/spec/recipe/forward_recipe.h"

#include <algorithm>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hearth::spec {
namespace {

using ::testing::HasSubstr;

TEST(DefaultRecipeOnTest, Devices_GetWhatTheyRunNatively) {
  EXPECT_EQ(DefaultRecipeOn("cuda").name, "bf16");
  EXPECT_EQ(DefaultRecipeOn("cpu").name, "fp32");
  EXPECT_EQ(DefaultRecipeOn("abacus").name, "fp32");
}

TEST(ForwardRecipeTest, NoName_IsTheDefault) {
  for (const char* device : {"cpu", "cuda"}) {
    const absl::StatusOr<const Recipe*> recipe = ForwardRecipe("", device, Emulation::kRefused);
    ASSERT_TRUE(recipe.ok()) << recipe.status();
    EXPECT_EQ(*recipe, &DefaultRecipeOn(device)) << device;
  }
}

TEST(ForwardRecipeTest, Rows_MustBePlainAndRunOnTheDevice) {
  for (const char* device : {"cpu", "cuda"}) {
    for (const Recipe& row : Recipes()) {
      const Execution execution = RecipeExecution(row, device);
      EXPECT_EQ(ForwardRecipe(row.name, device, Emulation::kRefused).ok(),
                !row.quantised() && execution == Execution::kNative)
          << row.name << " on " << device;
      EXPECT_EQ(ForwardRecipe(row.name, device, Emulation::kAllowed).ok(),
                !row.quantised() && execution != Execution::kNone)
          << row.name << " on " << device;
    }
  }
}

TEST(ForwardRecipeTest, Refusal_NamesWhatWouldDo) {
  const auto refusal = [](std::string_view name, std::string_view device) {
    const absl::Status status = ForwardRecipe(name, device, Emulation::kRefused).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(refusal("fp8", "cuda"), HasSubstr("recipe \"fp8\": must be fp32 or bf16 on cuda"));
  EXPECT_THAT(refusal("bf16", "cpu"), HasSubstr("recipe \"bf16\": must be fp32 on cpu"));
  EXPECT_THAT(refusal("fp99", "cpu"), HasSubstr("recipe \"fp99\": must be fp32 on cpu"));
}

TEST(GenerationRecipeTest, Rows_PlainOrWithScalesThatHold) {
  for (const char* device : {"cpu", "cuda"}) {
    EXPECT_EQ(*GenerationRecipe("", device), &DefaultRecipeOn(device));
    for (const Recipe& row : Recipes()) {
      const bool plain = ForwardRecipe(row.name, device, Emulation::kRefused).ok();
      EXPECT_EQ(GenerationRecipe(row.name, device).ok(), plain || row.name == "fp8")
          << row.name << " on " << device;
      const std::vector<std::string_view> names = GenerationRecipeNames(device);
      EXPECT_EQ(std::count(names.begin(), names.end(), row.name),
                GenerationRecipe(row.name, device).ok() ? 1 : 0)
          << row.name << " on " << device;
    }
  }
  EXPECT_THAT(std::string(GenerationRecipe("fp8_current", "cuda").status().message()),
              HasSubstr("recipe \"fp8_current\": must be fp32 or bf16 or fp8 on cuda: what a "
                        "text's numbers are scaled with"));
}

}  // namespace
}  // namespace hearth::spec
