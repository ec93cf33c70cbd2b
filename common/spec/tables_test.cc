// The small tables: formats, recipes, objectives, names.
#include <optional>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/spec/fields/rows.h"
#include "common/spec/gpus/gpus.h"
#include "common/spec/model/dtype_alias.h"
#include "common/spec/objective/objective_table.h"
#include "common/spec/optimizer/optimizer_table.h"
#include "common/spec/recipe/recipe.h"
#include "common/spec/violations/names.h"
#include "gtest/gtest.h"

namespace hearth::spec {
namespace {

TEST(EditDistanceTest, KnownPairs_CountInsertRemoveReplaceSwap) {
  EXPECT_EQ(EditDistance("", "abc"), 3);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3);
  EXPECT_EQ(EditDistance("bf61", "bf16"), 1);
  EXPECT_EQ(EditDistance("same", "same"), 0);
}

TEST(NearestNameTest, SlipOrPrefix_IsFoundAndNonsenseIsNot) {
  const std::vector<std::string_view> names = {"micro_batch_size", "global_batch_tokens"};
  EXPECT_EQ(NearestName("micro_batch_sizes", names), "micro_batch_size");
  EXPECT_EQ(NearestName("micro_batch", names), "micro_batch_size");
  EXPECT_EQ(NearestName("zzz", names), "");
  EXPECT_EQ(NearestName("", names), "");
  EXPECT_EQ(NearestName(std::string(100000, 'a'), names), "");
}

// By the capabilities that the units came with.
TEST(UnitsForTest, FollowTheCapability) {
  const auto units = [](std::string_view recipe, int compute) {
    const std::optional<MatrixFormat> found = UnitsFor(*FindRecipe(recipe), compute);
    return found.has_value() ? MatrixFormatName(*found) : "none";
  };
  EXPECT_EQ(units("bf16", 80), "bf16");
  EXPECT_EQ(units("fp8", 86), "none");
  EXPECT_EQ(units("fp8", 89), "fp8");
  EXPECT_EQ(units("fp8", 90), "fp8");
  EXPECT_EQ(units("fp8", 100), "fp8");
  EXPECT_EQ(units("fp8", 120), "fp8_block");
  for (const int compute : {89, 90}) {
    EXPECT_EQ(units("mxfp8", compute), "none");
    EXPECT_EQ(units("nvfp4", compute), "none");
  }
  for (const int compute : {100, 103, 120, 121}) {
    EXPECT_EQ(units("mxfp8", compute), "fp8_block");
    EXPECT_EQ(units("nvfp4", compute), "fp4");
    EXPECT_EQ(units("fp8_block", compute), "none");
  }
}

TEST(RecipesTest, PlainAndTensorScaled_AreRowsOfTheirKind) {
  EXPECT_FALSE(PlainRecipe().quantised());
  EXPECT_TRUE(TensorScaledRecipe().tensor_scaled());
}

TEST(RecipesTest, AllRows_HaveSoundOperandsAndKnownFallbacks) {
  std::set<std::string_view> names;
  for (const Recipe& recipe : Recipes()) {
    EXPECT_TRUE(names.insert(recipe.name).second);
    EXPECT_EQ(FindRecipe(recipe.name), &recipe);
    EXPECT_FALSE(recipe.comment.empty());
    bool delayed = false;
    for (const Gemm* gemm : {&recipe.fprop, &recipe.dgrad, &recipe.wgrad}) {
      for (const Operand* operand : {&gemm->a, &gemm->b}) {
        const bool narrow = DTypeBits(operand->dtype) < 16;
        EXPECT_EQ(narrow, recipe.quantised()) << recipe.name;
        EXPECT_EQ(narrow, operand->scaling != Scaling::kNone) << recipe.name;
        if (operand->scaling == Scaling::kBlock) {
          const formats::BlockLayoutRow& layout = formats::RowOf(operand->layout);
          EXPECT_TRUE(formats::HoldsValues(layout, operand->dtype)) << recipe.name;
          EXPECT_TRUE(layout.square || !operand->square) << recipe.name;
        }
        delayed = delayed || operand->scaling == Scaling::kTensorDelayed;
      }
    }
    EXPECT_EQ(delayed, recipe.amax_history > 0) << recipe.name;
    // Both forms of a tensor are written in one pass, in one format and in blocks of one kind.
    const auto alike = [](const Operand& rows, const Operand& columns) {
      return rows.dtype == columns.dtype && rows.layout == columns.layout &&
             rows.delayed() == columns.delayed();
    };
    EXPECT_TRUE(alike(recipe.fprop.a, recipe.wgrad.a)) << recipe.name;
    EXPECT_TRUE(alike(recipe.dgrad.a, recipe.wgrad.b)) << recipe.name;
    EXPECT_TRUE(alike(recipe.fprop.b, recipe.dgrad.b)) << recipe.name;
    // One implementation scales all operands of a recipe (worker/trainer/precision/scaling.cc), and
    // each operand has the blocks that its layout says.
    for (const Operand* operand : recipe.operands()) {
      EXPECT_EQ(operand->scaling, recipe.fprop.a.scaling) << recipe.name;
    }
    // A rotation of one operand of a GEMM cancels only against the same one of the other.
    for (const Gemm* gemm : {&recipe.fprop, &recipe.dgrad, &recipe.wgrad}) {
      EXPECT_EQ(gemm->a.hadamard, gemm->b.hadamard) << recipe.name;
      EXPECT_EQ(gemm->a.signs, gemm->b.signs) << recipe.name;
    }
    for (std::string_view fallback : recipe.fallback) {
      EXPECT_NE(FindRecipe(fallback), nullptr) << fallback;
    }
  }
}

// kernels/core/exec.h relies on it: a GPU has quantised forms beside bf16 alone.
TEST(RecipesTest, RowsThatQuantise_StoreBf16) {
  for (const Recipe& recipe : Recipes()) {
    if (recipe.quantised()) {
      EXPECT_EQ(recipe.activation, DType::kBF16) << recipe.name;
      EXPECT_EQ(recipe.parameters.storage, DType::kBF16) << recipe.name;
      EXPECT_EQ(recipe.fprop.output, DType::kBF16) << recipe.name;
      EXPECT_EQ(recipe.dgrad.output, DType::kBF16) << recipe.name;
    }
  }
}

TEST(RecipesTest, Rows_FollowTheirPapers) {
  const Recipe& fp8 = *FindRecipe("fp8");
  EXPECT_EQ(fp8.amax_history, 16);
  EXPECT_EQ(fp8.fprop.a.dtype, DType::kE4M3);
  EXPECT_EQ(fp8.dgrad.a.dtype, DType::kE5M2);
  EXPECT_EQ(fp8.wgrad.b.dtype, DType::kE5M2);
  EXPECT_TRUE(fp8.fprop.fast_accumulation);
  EXPECT_FALSE(fp8.dgrad.fast_accumulation || fp8.wgrad.fast_accumulation);
  const Recipe& fp8_block = *FindRecipe("fp8_block");
  EXPECT_EQ(fp8_block.dgrad.a.dtype, DType::kE4M3);
  EXPECT_EQ(formats::RowOf(fp8_block.dgrad.a.layout).length, 128);
  EXPECT_TRUE(fp8_block.fprop.b.square);
  EXPECT_FALSE(fp8_block.fprop.a.square || fp8_block.dgrad.a.square || fp8_block.wgrad.b.square);
  const Recipe& nvfp4 = *FindRecipe("nvfp4");
  EXPECT_TRUE(nvfp4.fprop.b.square);
  EXPECT_FALSE(nvfp4.fprop.a.square);
  EXPECT_EQ(nvfp4.dgrad.a.rounding, Rounding::kStochastic);
  EXPECT_EQ(nvfp4.dgrad.a.hadamard, 0);
  EXPECT_EQ(nvfp4.wgrad.a.hadamard, 16);
  const Recipe& eden = *FindRecipe("nvfp4_eden");
  EXPECT_EQ(eden.fprop.b.rounding, Rounding::kFourOverSix);
  EXPECT_EQ(eden.dgrad.b.rounding, Rounding::kEden);
  EXPECT_EQ(eden.dgrad.b.hadamard, 128);
  EXPECT_EQ(eden.wgrad.b.signs, HadamardSigns::kSeeded);
}

TEST(RecipesTest, Techniques_CanBeSwitchedOffOneByOne) {
  v1::PrecisionSpec precision;
  precision.set_recipe("nvfp4");
  const Recipe* row = FindRecipe("nvfp4");
  EXPECT_EQ(RecipeFor(precision), row);
  precision.mutable_techniques()->set_hadamard(true);
  EXPECT_EQ(RecipeFor(precision), row);
  precision.mutable_techniques()->set_hadamard(false);
  const Recipe* plain = RecipeFor(precision);
  EXPECT_EQ(plain, RecipeFor(precision)) << "made once";
  EXPECT_EQ(plain->wgrad.a.hadamard, 0);
  EXPECT_EQ(plain->wgrad.b.hadamard, 0);
  EXPECT_EQ(plain->dgrad.a.rounding, Rounding::kStochastic);
  precision.mutable_techniques()->set_stochastic_rounding(false);
  precision.mutable_techniques()->set_square_weights(false);
  const Recipe* bare = RecipeFor(precision);
  EXPECT_NE(bare, plain);
  EXPECT_EQ(bare->dgrad.a.rounding, Rounding::kNearest);
  EXPECT_FALSE(bare->fprop.b.square);
  EXPECT_EQ(bare->dgrad.b.source, Source::kHighPrecision);
  precision.set_recipe("nvfp4_eden");
  const Recipe* eden = RecipeFor(precision);
  EXPECT_EQ(eden->dgrad.b.rounding, Rounding::kNearest) << "MS-EDEN needs the transform";
  EXPECT_EQ(eden->fprop.a.rounding, Rounding::kFourOverSix);
  precision.set_recipe("fp8");
  EXPECT_EQ(RecipeFor(precision), FindRecipe("fp8")) << "they mean nothing to it";
  precision.set_recipe("nothing");
  EXPECT_EQ(RecipeFor(precision), nullptr);
}

TEST(RecipesTest, OperandLists_ChangeWhatTheyName) {
  v1::PrecisionSpec precision;
  precision.set_recipe("nvfp4");
  v1::BlockTechniques& techniques = *precision.mutable_techniques();
  techniques.add_bf16_operands("wgrad.x");
  const Recipe* kept = RecipeFor(precision);
  EXPECT_EQ(kept, RecipeFor(precision)) << "made once";
  EXPECT_FALSE(kept->wgrad.a.quantised());
  EXPECT_EQ(kept->wgrad.b.hadamard, 0) << "it would not cancel";
  EXPECT_EQ(kept->fprop.a, FindRecipe("nvfp4")->fprop.a);
  EXPECT_TRUE(kept->mixes());
  techniques.Clear();
  techniques.add_mxfp8_operands("wgrad.dy");
  kept = RecipeFor(precision);
  EXPECT_EQ(kept->wgrad.b.layout, BlockLayout::kMxfp8);
  EXPECT_EQ(kept->wgrad.b.hadamard, 16) << "it cancels against that of x";
  EXPECT_FALSE(kept->mixes());
  techniques.Clear();
  techniques.add_rotated_products("forward");
  kept = RecipeFor(precision);
  EXPECT_EQ(kept->fprop.a.hadamard, 16);
  EXPECT_EQ(kept->fprop.b.hadamard, 16);
  EXPECT_FALSE(kept->fprop.b.square);
  EXPECT_TRUE(kept->dgrad.b.square);
  techniques.Clear();
  techniques.add_four_over_six_operands("forward.w");
  techniques.add_nearest_operands("dgrad.dy");
  kept = RecipeFor(precision);
  EXPECT_EQ(kept->fprop.b.rounding, Rounding::kFourOverSix);
  EXPECT_EQ(kept->dgrad.a.rounding, Rounding::kNearest);
  EXPECT_EQ(kept->wgrad.b.rounding, Rounding::kStochastic);
  techniques.Clear();
  techniques.set_current_scales(true);
  EXPECT_FALSE(RecipeFor(precision)->delayed());
  EXPECT_TRUE(RecipeFor(precision)->fprop.a.tensor_scale());
  precision.set_recipe("fp8");
  techniques.Clear();
  techniques.set_e4m3_gradients(true);
  EXPECT_EQ(RecipeFor(precision)->dgrad.a.dtype, DType::kE4M3);
  techniques.add_bf16_operands("dgrad.dy");
  EXPECT_EQ(RecipeExecution(*RecipeFor(precision), "cuda"), Execution::kEmulated);
}

TEST(RecipeExecutionTest, Devices_RunWhatTheTableSays) {
  EXPECT_EQ(RecipeExecution(*FindRecipe("fp32"), "cpu"), Execution::kNative);
  EXPECT_EQ(RecipeExecution(*FindRecipe("bf16"), "cpu"), Execution::kEmulated);
  EXPECT_EQ(RecipeExecution(*FindRecipe("fp8"), "cpu"), Execution::kEmulated);
  EXPECT_EQ(RecipeExecution(*FindRecipe("fp8"), "cuda"), Execution::kNative);
  EXPECT_EQ(RecipeExecution(*FindRecipe("nvfp4"), "cuda"), Execution::kEmulated);
  EXPECT_EQ(RecipeExecution(*FindRecipe("bf16"), "tpu"), Execution::kNone);
  EXPECT_EQ(RecipeRefusal(*FindRecipe("fp32"), "cpu", false), "");
}

TEST(ResolveFormatsTest, JobsFormats_ReplaceTheRecipes) {
  const Recipe& recipe = *FindRecipe("bf16");
  v1::JobSpec job;
  absl::StatusOr<ParameterFormats> formats = ResolveFormats(recipe, job);
  ASSERT_TRUE(formats.ok()) << formats.status();
  EXPECT_EQ(formats->gradient, DType::kF32);
  EXPECT_EQ(formats->master, DType::kF32);
  job.mutable_gradients()->set_dtype("bf16");
  job.mutable_optimizer()->set_master("none");
  formats = ResolveFormats(recipe, job);
  ASSERT_TRUE(formats.ok()) << formats.status();
  EXPECT_EQ(formats->gradient, DType::kBF16);
  EXPECT_EQ(formats->master, DType::kBF16);
  job.mutable_gradients()->set_dtype("float");
  EXPECT_EQ(ResolveFormats(recipe, job).status().code(), absl::StatusCode::kInvalidArgument);
}

// What "optimizer.name has X" in the job file's rows asks.
TEST(OptimizersTest, OptionsOfRows_AreFieldsWithThatCondition) {
  const auto& type = *v1::OptimizerSpec::descriptor();
  for (const OptimizerRow& row : Optimizers()) {
    for (const absl::string_view option :
         absl::StrSplit(absl::string_view(row.options.data(), row.options.size()), ' ')) {
      const auto* const field = type.FindFieldByName(std::string(option));
      ASSERT_NE(field, nullptr) << row.name << ": " << option;
      EXPECT_EQ(RowOf(*field).applies_when(), absl::StrCat("optimizer.name has ", option));
    }
  }
}

TEST(GpusTest, EveryRow_IsFoundByItsOwnName) {
  for (const GpuRow& row : Gpus()) {
    const std::string name(row.name);
    for (const std::string& driver : {name, "NVIDIA " + name, "NVIDIA GeForce " + name,
                                      "NVIDIA " + name + " 80GB HBM3", name + "-SXM4-80GB"}) {
      EXPECT_EQ(FindGpu(driver), &row) << driver;
    }
  }
  EXPECT_EQ(FindGpu("NVIDIA GH200 480GB")->name, "GH200");
  EXPECT_EQ(FindGpu("NVIDIA H100 PCIe")->name, "H100 PCIe");
  EXPECT_EQ(FindGpu("NVIDIA H2000"), nullptr);
  for (const char* other :
       {"NVIDIA GeForce RTX 5070 Ti", "NVIDIA GeForce RTX 4080 SUPER", "NVIDIA GeForce RTX 3060 Ti",
        "NVIDIA GeForce RTX 5090 Laptop GPU", "NVIDIA GeForce RTX 4090 D", "NVIDIA H100 NVL",
        "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition"}) {
    EXPECT_EQ(FindGpu(other), nullptr) << other;
  }
  EXPECT_EQ(FindGpu(""), nullptr);
}

TEST(ObjectivesTest, AllRows_AreFoundByName) {
  for (const ObjectiveRow& row : Objectives()) {
    EXPECT_EQ(FindObjective(row.name), &row);
  }
  EXPECT_EQ(FindObjective("nothing"), nullptr);
}

}  // namespace
}  // namespace hearth::spec
