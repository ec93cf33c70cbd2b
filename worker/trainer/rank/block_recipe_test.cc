// Whole runs in every block-scaled recipe, on the CPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/io/sha256.h"
#include "common/spec/plan/plan_inputs.h"
#include "common/spec/plan/training_plan.h"
#include "common/spec/recipe/precision.h"
#include "kernels/core/block_quant.h"
#include "kernels/core/kept_input.h"
#include "tests/support/trainer/test_link.h"
#include "tests/support/trainer/test_recipes.h"
#include "tests/support/trainer/test_run.h"

namespace hearth::trainer {
namespace {

constexpr const char* kLevels[] = {"norm_act", "ffn", "attention", "block"};  // above "none"

class BlockRecipeTest : public testing::TestWithParam<std::string> {
 protected:
  v1::JobSpec Job(const std::string& recipe, int steps, const char* family = "qwen3") {
    v1::JobSpec spec = SmallJob(dir_.path(), family);
    SetExtentsOf128(spec);
    v1::ModelSpec& model = *spec.mutable_model();
    model.set_heads(4);
    model.set_kv_heads(std::string(family) == "gpt2" ? 4 : 2);
    if (model.position() == "learned") {
      model.set_max_position(32);
    }
    spec.mutable_precision()->set_recipe(recipe);
    spec.mutable_precision()->mutable_high_precision_layers()->set_last(0);
    spec.mutable_train()->set_steps(steps);
    spec.mutable_train()->set_eval_every(0);
    return spec;
  }
  std::vector<v1::StepReport> Steps(const v1::JobSpec& spec, const std::string& folder) {
    FakeLink link(MakeTask(spec, dir_.path() + "/" + folder), store_);
    const v1::TrainerExit exit = RunTo(link);
    EXPECT_EQ(exit.reason(), v1::EXIT_REASON_FINISHED) << exit.message();
    return std::move(link.steps);
  }
  std::vector<double> Losses(const v1::JobSpec& spec, const std::string& folder) {
    std::vector<double> losses;
    for (const v1::StepReport& step : Steps(spec, folder)) {
      losses.push_back(step.loss());
    }
    return losses;
  }
  // Losses, norms, and what was counted: once, however often it is computed.
  std::vector<double> Facts(const v1::JobSpec& spec, const std::string& folder) {
    std::vector<double> facts;
    for (const v1::StepReport& step : Steps(spec, folder)) {
      facts.insert(facts.end(), {step.loss(), step.grad_norm()});
      for (const v1::TensorStats& row : step.tensors()) {
        facts.insert(facts.end(), {row.amax(), row.underflow_ratio(), row.saturation_ratio()});
      }
    }
    return facts;
  }
  TempDir dir_;
  LocalKeyValueStore store_;
};

TEST_P(BlockRecipeTest, Run_LearnsLikeBf16) {
  const std::vector<double> bf16 = Losses(Job("bf16", 40), "bf16");
  const std::vector<double> got = Losses(Job(GetParam(), 40), "block");
  ASSERT_EQ(got.size(), bf16.size());
  EXPECT_LT(bf16.back(), 0.7 * bf16.front()) << "the job learns nothing";
  EXPECT_NE(got.back(), bf16.back()) << "nothing was quantised";
  EXPECT_NEAR(got.back(), bf16.back(), 0.1 * bf16.back());
}

// Random numbers, signs and scales of tensors go on where they were.
TEST_P(BlockRecipeTest, Run_PausedAndResumed_EqualsNeverStopped) {
  const v1::JobSpec spec = Job(GetParam(), 10);
  FakeLink whole(MakeTask(spec, dir_.path() + "/whole"), store_);
  ASSERT_EQ(RunTo(whole).reason(), v1::EXIT_REASON_FINISHED);
  FakeLink first(MakeTask(spec, dir_.path() + "/e1"), store_);
  first.AskAt(6, v1::CONTROL_BIT_PAUSE);
  ASSERT_EQ(RunTo(first).reason(), v1::EXIT_REASON_PAUSED);
  v1::Task task = MakeTask(spec, dir_.path() + "/e2");
  ResumeFrom(first.checkpoints[0], task);
  FakeLink second(task, store_);
  ASSERT_EQ(RunTo(second).reason(), v1::EXIT_REASON_FINISHED);
  for (size_t i = 0; i < second.steps.size(); ++i) {
    EXPECT_EQ(second.steps[i].loss(), whole.steps[i + 6].loss()) << i;
  }
  const auto weights = [](const FakeLink& link) {
    return *Sha256HexOfFile(Env::Real(), link.checkpoints.back().path() + "/model.safetensors");
  };
  EXPECT_EQ(weights(second), weights(whole));
}

TEST_P(BlockRecipeTest, Run_EveryRecomputationLevel_GivesTheSameBits) {
  v1::JobSpec spec = Job(GetParam(), 4);
  spec.mutable_precision()->set_stats_every(4);
  spec.set_recompute("none");
  const std::vector<double> want = Facts(spec, "none");
  EXPECT_GT(want.size(), 4U);
  for (const char* level : kLevels) {
    spec.set_recompute(level);
    EXPECT_EQ(Facts(spec, level), want) << level;
  }
}

// One layer of three is quantised, the others keep what BF16 needs; of two kinds of models.
TEST_P(BlockRecipeTest, Run_NarrowActivationsOrNot_EveryLevelGivesTheSameBits) {
  for (const char* family : {"qwen3", "gpt2"}) {
    std::set<std::vector<double>> curves;
    for (const bool narrow : {true, false}) {
      SCOPED_TRACE(std::string(family) + (narrow ? " narrow" : " wide"));
      v1::JobSpec spec = Job(GetParam(), 2, family);
      spec.mutable_model()->set_layers(3);
      v1::PrecisionSpec& precision = *spec.mutable_precision();
      precision.mutable_high_precision_layers()->set_first(1);
      precision.mutable_high_precision_layers()->set_last(1);
      precision.set_narrow_activations(narrow);
      spec.set_recompute("none");
      const std::string folder = std::string(family) + (narrow ? "1" : "0");
      const std::vector<double> want = Facts(spec, folder + "none");
      for (const char* level : kLevels) {
        spec.set_recompute(level);
        EXPECT_EQ(Facts(spec, folder + level), want) << level;
      }
      EXPECT_TRUE(curves.insert(want).second) << "the switch changes nothing";
    }
  }
}

// Each ratio is what its name says, and magnitudes are those of the step.
TEST_P(BlockRecipeTest, Stats_TellUnderflowFromSaturation) {
  v1::JobSpec spec = Job(GetParam(), 12);
  spec.mutable_precision()->set_stats_every(6);
  FakeLink link(MakeTask(spec, dir_.path() + "/stats"), store_);
  ASSERT_EQ(RunTo(link).reason(), v1::EXIT_REASON_FINISHED);
  const bool fp4 = spec::FindRecipe(GetParam())->fprop.a.dtype == spec::DType::kE2M1;
  for (const size_t step : {6, 12}) {
    double underflow = 0;
    double saturation = 0;
    for (const v1::TensorStats& row : link.steps[step - 1].tensors()) {
      if (row.role() == "x") {
        EXPECT_GT(row.amax(), 0);
        underflow += row.underflow_ratio();
        saturation += row.saturation_ratio();
      }
    }
    // Scales of FP8 are rounded up, so nothing saturates. More of the other values are small within
    // their block and become zero than lie beyond the largest.
    EXPECT_EQ(saturation > 0, fp4) << step;
    EXPECT_GT(underflow, saturation) << step;
  }
}

INSTANTIATE_TEST_SUITE_P(Recipes, BlockRecipeTest, testing::ValuesIn(BlockScaledRecipes()));

class TechniquesTest : public BlockRecipeTest {};

TEST_F(TechniquesTest, EachSwitchedOff_ChangesTheCurveAndStillLearns) {
  std::set<double> ends;
  const auto end = [&](const v1::JobSpec& spec, const std::string& name) {
    const std::vector<double> losses = Losses(spec, name);
    EXPECT_LT(losses.back(), 0.8 * losses.front()) << name;
    EXPECT_TRUE(ends.insert(losses.back()).second) << name << " changes nothing";
  };
  v1::JobSpec spec = Job("nvfp4", 30);
  end(spec, "all");
  spec.mutable_precision()->mutable_techniques()->set_hadamard(false);
  end(spec, "hadamard");
  spec.mutable_precision()->clear_techniques();
  spec.mutable_precision()->mutable_techniques()->set_stochastic_rounding(false);
  end(spec, "rounding");
  spec.mutable_precision()->clear_techniques();
  spec.mutable_precision()->mutable_techniques()->set_square_weights(false);
  end(spec, "square");
  spec.mutable_precision()->clear_techniques();
  spec.mutable_precision()->mutable_high_precision_layers()->set_last(1);
  end(spec, "layers");
}

// The names that each list of techniques may have in a recipe, and that change it.
struct Switch {
  const char* recipe;
  const char* list;
  std::vector<std::string> names;
};

const std::vector<std::string> kOperands = {"forward.x", "forward.w", "dgrad.dy",
                                            "dgrad.w",   "wgrad.x",   "wgrad.dy"};

v1::JobSpec Switched(v1::JobSpec spec, const char* list, const std::vector<std::string>& names) {
  v1::BlockTechniques& techniques = *spec.mutable_precision()->mutable_techniques();
  for (const std::string& name : names) {
    techniques.GetReflection()->AddString(&techniques,
                                          techniques.GetDescriptor()->FindFieldByName(list), name);
  }
  return spec;
}

// Whatever backward makes again, and each is another recipe.
TEST_F(TechniquesTest, EachOperand_ChangesTheCurveAndEveryLevelGivesTheSameBits) {
  const Switch switches[] = {
      {"nvfp4", "bf16_operands", kOperands},
      {"nvfp4", "mxfp8_operands", kOperands},
      {"nvfp4", "four_over_six_operands", {"forward.x", "forward.w", "dgrad.w", "wgrad.x"}},
      {"nvfp4", "nearest_operands", {"dgrad.dy", "wgrad.dy"}},
      {"nvfp4", "rotated_products", {"forward", "dgrad"}},
      {"nvfp4_eden", "bf16_operands", kOperands},
      {"nvfp4_eden", "mxfp8_operands", kOperands},
      {"mxfp8", "bf16_operands", kOperands},
      {"fp8_block", "bf16_operands", {"forward.x", "wgrad.dy"}},
      {"fp8", "bf16_operands", kOperands},
      {"fp8_current", "bf16_operands", kOperands},
  };
  for (const Switch& row : switches) {
    const std::string folder = std::string(row.recipe) + row.list;
    std::set<std::vector<double>> curves = {Losses(Job(row.recipe, 4), folder)};
    for (const std::string& name : row.names) {
      SCOPED_TRACE(absl::StrCat(folder, " ", name));
      v1::JobSpec spec = Switched(Job(row.recipe, 4), row.list, {name});
      spec.mutable_precision()->set_stats_every(2);
      spec.set_recompute("none");
      const std::vector<double> want = Facts(spec, folder + name);
      spec.set_recompute("block");
      EXPECT_EQ(Facts(spec, absl::StrCat(folder, name, "block")), want);
      spec.mutable_precision()->clear_stats_every();
      EXPECT_TRUE(curves.insert(Losses(spec, absl::StrCat(folder, name, "curve"))).second)
          << "it changes nothing";
    }
  }
}

TEST_F(TechniquesTest, EachSwitchedOn_ChangesTheCurveAndEveryLevelGivesTheSameBits) {
  const struct {
    const char* recipe;
    const char* technique;
  } rows[] = {{"nvfp4", "current_scales"},
              {"nvfp4_eden", "current_scales"},
              {"fp8", "e4m3_gradients"},
              {"fp8_current", "e4m3_gradients"}};
  for (const auto& row : rows) {
    const std::string folder = std::string(row.recipe) + row.technique;
    SCOPED_TRACE(folder);
    v1::JobSpec spec = Job(row.recipe, 6);
    const std::vector<double> without = Losses(spec, folder + "without");
    v1::BlockTechniques& techniques = *spec.mutable_precision()->mutable_techniques();
    techniques.GetReflection()->SetBool(
        &techniques, techniques.GetDescriptor()->FindFieldByName(row.technique), true);
    spec.set_recompute("none");
    const std::vector<double> want = Losses(spec, folder + "none");
    EXPECT_NE(want, without) << "it changes nothing";
    EXPECT_LT(want.back(), want.front());
    spec.set_recompute("block");
    EXPECT_EQ(Losses(spec, folder + "block"), want);
  }
}

// With both operands of forward in BF16 the products are those of the recipe bf16.
TEST_F(TechniquesTest, ForwardInBf16_HasTheFirstLossOfBf16) {
  const double bf16 = Losses(Job("bf16", 1), "bf16")[0];
  for (const char* recipe : {"mxfp8", "fp8_block", "fp8_current"}) {
    EXPECT_NE(Losses(Job(recipe, 1), std::string(recipe) + "plain")[0], bf16) << recipe;
    const v1::JobSpec spec = Switched(Job(recipe, 1), "bf16_operands", {"forward.x", "forward.w"});
    EXPECT_EQ(Losses(spec, recipe)[0], bf16) << recipe;
  }
}

TEST_F(TechniquesTest, EachLinear_ChangesTheCurveAndEveryLevelGivesTheSameBits) {
  for (const char* recipe : {"nvfp4", "mxfp8", "fp8", "fp8_current"}) {
    for (const bool narrow : {true, false}) {
      std::set<std::vector<double>> curves;
      for (const char* kind : {"none", "qkv", "o", "gate_up", "down"}) {
        const std::string folder = std::string(recipe) + kind + (narrow ? "1" : "0");
        SCOPED_TRACE(folder);
        v1::JobSpec spec = Job(recipe, 4);
        spec.mutable_precision()->set_narrow_activations(narrow);
        if (std::string(kind) != "none") {
          spec.mutable_precision()->add_high_precision_linears(kind);
        }
        spec.set_recompute("none");
        const std::vector<double> want = Losses(spec, folder);
        spec.set_recompute("block");
        EXPECT_EQ(Losses(spec, folder + "block"), want);
        EXPECT_TRUE(curves.insert(want).second) << "it changes nothing";
      }
    }
  }
}

// What the plan reserves is what the op writes.
TEST(FormBytesTest, AgreesWithTheKernels) {
  for (const spec::Recipe& recipe : spec::Recipes()) {
    if (!recipe.column_scales()) {
      continue;
    }
    const spec::Operand& operand = recipe.fprop.a;
    for (const int64_t lines : {32, 128, 1000}) {
      for (const int64_t extent : {32, 96, 4096}) {
        const int64_t values = kernels::DTypeBytes(operand.dtype, lines * extent);
        EXPECT_EQ(spec::FormScaleOffset(operand, lines, extent), values);
        EXPECT_EQ(spec::FormBytes(operand, lines, extent),
                  values + kernels::BlockScaleBytes(operand.layout, lines, extent));
      }
    }
  }
}

class KeptBytesTest : public BlockRecipeTest {};

TEST_F(KeptBytesTest, AgreeWithTheKernels) {
  for (const char* family : {"qwen3", "gpt2"}) {
    for (const int64_t batch : {1, 3}) {
      const auto job = spec::MakePlanInputs(Job("nvfp4", 1, family), batch, 1, true);
      ASSERT_TRUE(job.ok()) << job.status();
      const spec::TrainingPlanOptions& options = (*job)->options;
      const auto plan = spec::PlanTraining(options);
      ASSERT_TRUE(plan.ok()) << plan.status();
      const auto kept = plan->Find("layers.0.ffn.kept");
      ASSERT_TRUE(kept.ok()) << kept.status();
      EXPECT_EQ((*kept)->bytes,
                kernels::KeptBytes(batch * options.sequence_length, options.shape.ffn_in_width()));
    }
  }
}

}  // namespace
}  // namespace hearth::trainer
