#include "common/spec/recipe/precision.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "common/spec/fields/idle.h"
#include "common/spec/recipe/techniques.h"
#include "common/spec/recipe/trial_recipes.h"
#include "common/spec/resolve/resolve.h"
#include "common/spec/violations/text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hearth::spec {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

v1::JobSpec Job(const std::string& recipe) {
  v1::JobSpec job;
  job.set_name("ladder");
  job.mutable_model()->set_preset("hearth-nano");
  job.mutable_data()->add_train()->set_path("/data");
  job.mutable_train()->set_steps(1000);
  job.mutable_precision()->set_recipe(recipe);
  return job;
}

std::vector<FieldViolation> Resolved(v1::JobSpec& job) {
  std::vector<FieldViolation> violations;
  Resolve(job, violations);
  return violations;
}

// The violations of a job with the given precision section changed by `change`.
template <typename Change>
std::vector<FieldViolation> With(const std::string& recipe, const Change& change) {
  v1::JobSpec job = Job(recipe);
  change(*job.mutable_precision());
  return Resolved(job);
}

testing::Matcher<std::vector<FieldViolation>> Says(const std::string& field,
                                                   const std::string& text) {
  return Contains(AllOf(Field(&FieldViolation::field, field),
                        Field(&FieldViolation::description, HasSubstr(text))));
}

TEST(PrecisionLadder, Defaults_AreTheRecipeThenTheFallbacksOfItsRow) {
  int tested = 0;
  for (const Recipe& recipe : Recipes()) {
    if (!recipe.quantised()) {
      continue;
    }
    ++tested;
    SCOPED_TRACE(std::string(recipe.name));
    v1::JobSpec job = Job(std::string(recipe.name));
    EXPECT_THAT(Resolved(job), IsEmpty());
    std::vector<const Recipe*> ladder = {&recipe};
    for (const std::string_view name : recipe.fallback) {
      ladder.push_back(FindRecipe(name));
    }
    EXPECT_THAT(PrecisionLadder(job), ElementsAreArray(ladder));
  }
  EXPECT_GT(tested, 0);
}

// Checks that a job in the recipe falls back along `ladder`. Returns its plan for 4 layers.
PrecisionPlan PlanWithLadder(const char* name, const std::vector<const Recipe*>& ladder) {
  v1::JobSpec job = Job(name);
  EXPECT_THAT(Resolved(job), IsEmpty());
  EXPECT_THAT(PrecisionLadder(job), ElementsAreArray(ladder));
  EXPECT_EQ(job.precision().fallback_after(), 3);
  return ResolvePrecision(job, *FindRecipe(name), 4);
}

TEST(PrecisionLadder, Fp8_FallsBackToBf16) {
  for (const char* name : {"fp8", "fp8_current"}) {
    SCOPED_TRACE(name);
    const PrecisionPlan plan = PlanWithLadder(name, {FindRecipe(name), FindRecipe("bf16")});
    EXPECT_EQ(plan.fallback, nullptr);
    EXPECT_THAT(plan.Formats(), ElementsAre(StepFormat{}, OwnIf(true)));
  }
  v1::JobSpec bf16 = Job("bf16");
  EXPECT_THAT(Resolved(bf16), IsEmpty());
  EXPECT_EQ(PrecisionLadder(bf16).size(), 1U);
}

TEST(PrecisionLadder, None_TurnsItOff) {
  v1::JobSpec job = Job("fp8_current");
  job.mutable_precision()->add_fallback("none");
  EXPECT_THAT(Resolved(job), IsEmpty());
  EXPECT_EQ(PrecisionLadder(job).size(), 1U);
  EXPECT_THAT(ResolvePrecision(job, *FindRecipe("fp8_current"), 4).Formats(),
              ElementsAre(OwnIf(true)));
}

TEST(PrecisionLadder, RecipesThatOneRunCannotSwitchTo_AreRefused) {
  const auto fallback = [](const char* name) {
    return [name](v1::PrecisionSpec& p) { p.add_fallback(name); };
  };
  EXPECT_THAT(With("fp8", fallback("fp8_current")),
              Says("precision.fallback[0]",
                   "fp8 cannot go on in fp8_current in this version, only in bf16"));
  EXPECT_THAT(With("bf16", fallback("fp32")),
              Says("precision.fallback[0]", "nor in any other recipe"));
  EXPECT_THAT(With("fp8", fallback("fp9")), Says("precision.fallback[0]", "fp9"));
  EXPECT_THAT(With("mxfp8", fallback("fp8")), Says("precision.fallback[0]", "cannot go on"));
  EXPECT_THAT(With("nvfp4", fallback("fp8_current")),
              Says("precision.fallback[0]", "only in bf16 and fp8"));
  EXPECT_THAT(With("nvfp4_eden", fallback("fp8")), IsEmpty());
  EXPECT_THAT(With("nvfp4",
                   [](v1::PrecisionSpec& p) {
                     p.add_fallback("bf16");
                     p.add_fallback("fp8");
                   }),
              Says("precision.fallback[1]", "narrower than the one before"));
}

TEST(PrecisionLadder, NamesThatAreNoOtherRecipe_AreRefusedForWhatTheyAre) {
  const auto fallback = [](const std::vector<const char*>& names) {
    return [names](v1::PrecisionSpec& p) {
      for (const char* name : names) {
        p.add_fallback(name);
      }
    };
  };
  EXPECT_THAT(
      With("fp8", fallback({"none", "bf16"})),
      ElementsAre(AllOf(Field(&FieldViolation::field, "precision.fallback[0]"),
                        Field(&FieldViolation::description, HasSubstr("none stands alone")))));
  EXPECT_THAT(With("nvfp4", fallback({"bf16", "none"})),
              Says("precision.fallback[1]", "none stands alone"));
  for (const Recipe& row : Recipes()) {
    const std::string recipe(row.name);
    EXPECT_THAT(With(recipe, fallback({recipe.c_str()})),
                ElementsAre(AllOf(Field(&FieldViolation::field, "precision.fallback[0]"),
                                  Field(&FieldViolation::description,
                                        recipe + " is precision.recipe itself, which "
                                                 "cannot be its own fallback"))));
  }
  EXPECT_THAT(With("fp8", fallback({"bf16", "bf16"})),
              Says("precision.fallback[1]", "bf16 is named twice"));
}

// What each row has, and what a job may therefore switch off.
TEST(Switches, Techniques_AreRefusedWhereTheRecipeIsWithoutThem) {
  const struct {
    const char* technique;
    std::vector<std::string> recipes;
    const char* text;
    bool by_default = true;
  } rows[] = {{"hadamard", {"nvfp4", "nvfp4_eden"}, "nvfp4 or nvfp4_eden"},
              {"stochastic_rounding", {"nvfp4"}, "nvfp4"},
              {"square_weights", {"fp8_block", "nvfp4"}, "fp8_block or nvfp4"},
              {"four_over_six", {"nvfp4_eden"}, "nvfp4_eden"},
              {"current_scales", {"nvfp4", "nvfp4_eden"}, "nvfp4 or nvfp4_eden", false},
              {"e4m3_gradients", {"fp8", "fp8_current"}, "fp8 or fp8_current", false}};
  int switches = 0;
  for (int i = 0; i < v1::BlockTechniques::descriptor()->field_count(); ++i) {
    switches += v1::BlockTechniques::descriptor()->field(i)->is_repeated() ? 0 : 1;
  }
  EXPECT_EQ(switches, static_cast<int>(std::size(rows)));
  for (const auto& row : rows) {
    EXPECT_THAT(RecipesWith(row.technique), ElementsAreArray(row.recipes)) << row.technique;
    for (const Recipe& recipe : Recipes()) {
      for (const bool value : {false, true}) {
        v1::JobSpec job = Job(std::string(recipe.name));
        v1::BlockTechniques& techniques = *job.mutable_precision()->mutable_techniques();
        techniques.GetReflection()->SetBool(
            &techniques, techniques.GetDescriptor()->FindFieldByName(row.technique), value);
        std::vector<FieldViolation> violations;
        CheckIdleKeys(job, violations);
        const bool has = std::count(row.recipes.begin(), row.recipes.end(), recipe.name) > 0;
        if (has || value == row.by_default) {
          EXPECT_THAT(violations, IsEmpty()) << recipe.name << ' ' << row.technique;
        } else {
          EXPECT_THAT(violations,
                      ElementsAre(AllOf(
                          Field(&FieldViolation::field,
                                std::string("precision.techniques.") + row.technique),
                          Field(&FieldViolation::description,
                                Text("changes nothing: it acts only with precision.recipe ",
                                     row.text, "; here precision.recipe is ", recipe.name)))));
        }
        EXPECT_THAT(Resolved(job), IsEmpty()) << recipe.name << ' ' << row.technique;
      }
    }
  }
  EXPECT_THAT(RecipesWith("no_such"), IsEmpty());
  EXPECT_THAT(With("bf16", [](v1::PrecisionSpec& p) { p.mutable_techniques(); }), IsEmpty());
}

// Entries of the lists that change nothing where they stand.
TEST(Switches, OperandsThatChangeNothing_AreRefused) {
  const struct {
    const char* recipe;
    const char* list;
    std::vector<std::string> names;
    std::string refused;  // the field; empty: none is
  } rows[] = {
      {"nvfp4", "bf16_operands", {"forward.x", "wgrad.dy"}, ""},
      {"nvfp4", "bf16_operands", {"forward.x", "forward.x"}, "bf16_operands[0]"},
      {"nvfp4", "mxfp8_operands", {"dgrad.dy"}, ""},
      {"mxfp8", "mxfp8_operands", {"dgrad.dy"}, "mxfp8_operands"},
      {"fp8", "mxfp8_operands", {"dgrad.dy"}, "mxfp8_operands"},
      {"bf16", "bf16_operands", {"dgrad.dy"}, "bf16_operands"},
      {"nvfp4", "four_over_six_operands", {"forward.w", "dgrad.dy"}, "four_over_six_operands[1]"},
      {"nvfp4", "nearest_operands", {"forward.w"}, "nearest_operands[0]"},
      {"nvfp4_eden", "nearest_operands", {"dgrad.dy"}, "nearest_operands"},
      {"nvfp4", "rotated_products", {"wgrad"}, "rotated_products[0]"},
      {"nvfp4", "rotated_products", {"forward", "dgrad"}, ""},
  };
  for (const auto& row : rows) {
    v1::JobSpec job = Job(row.recipe);
    v1::BlockTechniques& techniques = *job.mutable_precision()->mutable_techniques();
    const auto* list = techniques.GetDescriptor()->FindFieldByName(row.list);
    for (const std::string& name : row.names) {
      techniques.GetReflection()->AddString(&techniques, list, name);
    }
    std::vector<FieldViolation> violations;
    CheckIdleKeys(job, violations);
    const std::string text = std::string(row.recipe) + ' ' + row.list;
    if (row.refused.empty()) {
      EXPECT_THAT(violations, IsEmpty()) << text;
      EXPECT_THAT(Resolved(job), IsEmpty()) << text;
    } else {
      EXPECT_THAT(
          violations,
          Contains(AllOf(Field(&FieldViolation::field, "precision.techniques." + row.refused),
                         Field(&FieldViolation::description, HasSubstr("changes nothing")))))
          << text;
    }
    // A comparison leaves them out.
    v1::JobSpec in = InRecipe(job, row.recipe);
    violations.clear();
    CheckIdleKeys(in, violations);
    EXPECT_THAT(violations, IsEmpty()) << text;
  }
}

TEST(Switches, OperandsAndLinears_LeaveSomethingInTheRecipe) {
  const auto all = With("nvfp4", [](v1::PrecisionSpec& p) {
    for (const char* name :
         {"forward.x", "forward.w", "dgrad.dy", "dgrad.w", "wgrad.x", "wgrad.dy"}) {
      p.mutable_techniques()->add_bf16_operands(name);
    }
  });
  EXPECT_THAT(all, Says("precision.techniques.bf16_operands", "none in nvfp4"));
  EXPECT_THAT(With("fp8",
                   [](v1::PrecisionSpec& p) {
                     p.set_lm_head("fp8");
                     p.mutable_techniques()->add_bf16_operands("dgrad.w");
                   }),
              Says("precision.lm_head", "does not go with operands in BF16"));
  EXPECT_THAT(With("fp8", [](v1::PrecisionSpec& p) { p.add_high_precision_linears("down"); }),
              IsEmpty());
  EXPECT_THAT(With("fp8",
                   [](v1::PrecisionSpec& p) {
                     p.add_high_precision_linears("down");
                     p.add_high_precision_linears("down");
                   }),
              Says("precision.high_precision_linears[1]", "down is named twice"));
  EXPECT_THAT(With("fp8",
                   [](v1::PrecisionSpec& p) {
                     for (const char* kind : {"qkv", "o", "gate_up", "down"}) {
                       p.add_high_precision_linears(kind);
                     }
                   }),
              Says("precision.high_precision_linears", "none in fp8"));
}

// Scales of this step leave no magnitudes of earlier ones, which a fallback to fp8 goes on from.
TEST(Switches, CurrentScales_FallBackToBf16Alone) {
  v1::JobSpec job = Job("nvfp4");
  job.mutable_precision()->mutable_techniques()->set_current_scales(true);
  EXPECT_THAT(Resolved(job), IsEmpty());
  EXPECT_THAT(job.precision().fallback(), ElementsAre("bf16"));
  EXPECT_EQ(ResolvePrecision(job, *RecipeFor(job.precision()), 4).warmup_steps, 0);
}

TEST(Switches, HighPrecisionLayers_LeaveOneInTheRecipe) {
  const auto with = [](const char* recipe, int first, int last, std::vector<int> named,
                       const char* head = "bf16") {
    v1::JobSpec job = Job(recipe);
    job.mutable_model()->set_layers(4);
    job.mutable_precision()->set_lm_head(head);
    v1::LayerSet& set = *job.mutable_precision()->mutable_high_precision_layers();
    set.set_first(first);
    set.set_last(last);
    set.mutable_layers()->Assign(named.begin(), named.end());
    return Resolved(job);
  };
  const auto refused = Says("precision.high_precision_layers",
                            "keeps all 4 layers in BF16 and none in nvfp4; name fewer");
  EXPECT_THAT(with("nvfp4", 4, 0, {}), refused);
  EXPECT_THAT(with("nvfp4", 2, 2, {}), refused);
  EXPECT_THAT(with("nvfp4", 1, 1, {1, 2}), refused);
  EXPECT_THAT(with("nvfp4", 1, 1, {1}), IsEmpty());
  EXPECT_THAT(with("nvfp4", 3, 0, {}), IsEmpty());
  EXPECT_THAT(with("bf16", 4, 0, {}), IsEmpty()) << "in BF16 already";
  EXPECT_THAT(with("fp8", 4, 0, {}, "fp8"), IsEmpty()) << "the output projection is left";
  EXPECT_THAT(with("fp8", 4, 0, {}), Says("precision.high_precision_layers", "none in fp8"));
}

// Where the layers are those of model.from they are known only to the workers.
TEST(Switches, HighPrecisionLayers_OfAModelFolderAreCheckedWithItsLayers) {
  v1::JobSpec known = Job("fp8");
  EXPECT_THAT(Resolved(known), IsEmpty());
  v1::JobSpec job = Job("fp8");
  job.mutable_model()->clear_preset();
  job.mutable_model()->set_from("/model");
  job.mutable_precision()->mutable_high_precision_layers()->set_first(known.model().layers());
  EXPECT_THAT(Resolved(job), IsEmpty());
  v1::ModelSpec folder = known.model();
  folder.clear_preset();
  folder.set_vocab(256);
  std::vector<FieldViolation> violations;
  ResolveWithFacts(job, DataFacts(), &folder, violations);
  EXPECT_THAT(violations, Says("precision.high_precision_layers", "none in fp8"));
}

TEST(HighPrecisionLayers, FourBits_KeepTheFirstAndTheLastButOneOfModelsWithEnough) {
  struct Case {
    int layers;
    std::vector<int> kept;
  };
  int tested = 0;
  for (const Case& c :
       {Case{2, {}}, {4, {0}}, {7, {0}}, {8, {0, 6}}, {12, {0, 10}}, {48, {0, 46}}}) {
    for (const Recipe& row : Recipes()) {
      if (row.fprop.a.dtype != DType::kE2M1) {
        continue;
      }
      ++tested;
      SCOPED_TRACE(Text(row.name, ", ", c.layers, " layers"));
      const std::string recipe(row.name);
      v1::JobSpec job = Job(recipe);
      job.mutable_model()->set_layers(c.layers);
      EXPECT_THAT(Resolved(job), IsEmpty());
      std::vector<bool> kept(static_cast<size_t>(c.layers));
      for (const int layer : c.kept) {
        kept[static_cast<size_t>(layer)] = true;
      }
      EXPECT_EQ(LayersOf(job.precision().high_precision_layers(), c.layers), kept);
      v1::JobSpec named = Job(recipe);
      named.mutable_model()->set_layers(c.layers);
      named.mutable_precision()->mutable_high_precision_layers()->add_layers(1);
      EXPECT_THAT(Resolved(named), IsEmpty());
      EXPECT_EQ(named.precision().high_precision_layers().first(), 0);
      EXPECT_EQ(named.precision().high_precision_layers().layers_size(), 1);
    }
  }
  EXPECT_GT(tested, 0);
}

TEST(PrecisionLadder, FourBits_FallBackToFp8ThenBf16) {
  for (const char* name : {"nvfp4", "nvfp4_eden"}) {
    SCOPED_TRACE(name);
    const PrecisionPlan plan =
        PlanWithLadder(name, {FindRecipe(name), FindRecipe("fp8"), FindRecipe("bf16")});
    EXPECT_EQ(plan.fallback, FindRecipe("fp8"));
    EXPECT_THAT(plan.ladder,
                ElementsAre(LayerFormat::kOwn, LayerFormat::kFallback, LayerFormat::kPlain));
    EXPECT_THAT(plan.Formats(),
                ElementsAre(StepFormat{}, OwnIf(true), StepFormat{LayerFormat::kFallback, -1}));
    EXPECT_EQ(plan.Format(1, -1), (StepFormat{LayerFormat::kFallback, -1}));
    EXPECT_EQ(plan.FormatOf(plan.Format(1, -1), 3), LayerFormat::kFallback);
    EXPECT_EQ(plan.FormatOf(plan.Format(1, -1), -1), LayerFormat::kPlain) << "the head";
  }
}

TEST(Remedies, Checked_FieldByField) {
  const auto remedy = [](auto change) {
    return [change](v1::PrecisionSpec& p) { change(*p.add_remedies()); };
  };
  EXPECT_THAT(With("fp8", remedy([](auto& r) { r.set_learning_rate(0.5); })), IsEmpty());
  EXPECT_THAT(With("fp8", remedy([](auto& r) { r.set_steps(5); })),
              Says("precision.remedies[0]", "changes nothing"));
  EXPECT_THAT(With("fp8", remedy([](auto& r) { r.set_clip(1.5); })),
              Says("precision.remedies[0].clip", "must be > 0 and < 1"));
  EXPECT_THAT(With("bf16", remedy([](auto& r) { r.set_clip(0.5); })),
              Says("precision.remedies", "need precision.fallback"));
  EXPECT_THAT(With("nvfp4",
                   [](v1::PrecisionSpec& p) {
                     p.mutable_high_precision_layers()->set_last(1);
                     p.add_remedies()->mutable_high_precision_layers()->set_last(1);
                   }),
              Says("precision.remedies[0].high_precision_layers", "changes nothing"));
  EXPECT_THAT(With("fp8",
                   [](v1::PrecisionSpec& p) {
                     for (int i = 0; i < 5; ++i) {
                       p.add_remedies()->mutable_high_precision_layers()->set_first(1);
                     }
                   }),
              Says("precision.remedies[4].high_precision_layers", "at most 4"));
  const auto layers = [&](const char* in, const std::vector<int>& which) {
    return [=](v1::PrecisionSpec& p) {
      p.mutable_high_precision_layers()->set_last(0);
      v1::PrecisionRemedy& r = *p.add_remedies();
      r.set_layers_recipe(in);
      r.mutable_high_precision_layers()->mutable_layers()->Assign(which.begin(), which.end());
    };
  };
  EXPECT_THAT(With("nvfp4", layers("fp8", {0, 1})), IsEmpty());
  EXPECT_THAT(With("fp8", layers("fp8", {0})),
              Says("precision.remedies[0].layers_recipe", "neither bf16 nor one of"));
  EXPECT_THAT(With("nvfp4", layers("bf16", {0, 99})),
              Says("precision.remedies[0].high_precision_layers.layers[1]", "must be 0.."));
  EXPECT_THAT(With("nvfp4", layers("bf16", {0, 0})),
              Says("precision.remedies[0].high_precision_layers.layers[1]", "named twice"));
  EXPECT_THAT(With("nvfp4", remedy([](auto& r) {
                     r.set_clip(0.5);
                     r.set_layers_recipe("fp8");
                   })),
              Says("precision.remedies[0].layers_recipe", "needs high_precision_layers"));
  EXPECT_THAT(
      With("fp8", [](v1::PrecisionSpec& p) { p.mutable_high_precision_layers()->add_layers(-1); }),
      Says("precision.high_precision_layers.layers[0]", "must be 0.."));
}

// 'o', 'f' or 'p' of each layer.
std::string Layers(const PrecisionPlan& plan, int rung, int remedy) {
  std::string out;
  for (int l = 0; l < static_cast<int>(plan.layers.size()); ++l) {
    out += "pfo"[static_cast<int>(plan.FormatOf(plan.Format(rung, remedy), l))];
  }
  return out;
}

TEST(Remedies, Layers_RunWider) {
  v1::JobSpec job = Job("nvfp4");
  job.mutable_model()->set_layers(8);
  v1::PrecisionSpec& precision = *job.mutable_precision();
  precision.mutable_high_precision_layers()->set_first(0);
  precision.mutable_high_precision_layers()->set_last(1);
  precision.mutable_high_precision_layers()->add_layers(3);
  v1::PrecisionRemedy& fp8 = *precision.add_remedies();
  fp8.mutable_high_precision_layers()->set_first(1);
  fp8.mutable_high_precision_layers()->add_layers(3);
  fp8.mutable_high_precision_layers()->add_layers(5);
  fp8.set_layers_recipe("fp8");
  precision.add_remedies()->set_clip(0.5);
  v1::PrecisionRemedy& bf16 = *precision.add_remedies();
  bf16.mutable_high_precision_layers()->set_last(3);
  EXPECT_THAT(Resolved(job), IsEmpty());
  EXPECT_EQ(bf16.steps(), 100);
  EXPECT_EQ(bf16.layers_recipe(), "bf16");
  const PrecisionPlan plan = ResolvePrecision(job, *FindRecipe("nvfp4"), 8);
  EXPECT_EQ(Layers(plan, 0, -1), "ooopooop");
  EXPECT_EQ(Layers(plan, 0, 0), "foopofop") << "what is always in bf16 stays";
  EXPECT_EQ(Layers(plan, 0, 1), "ooopooop");
  EXPECT_EQ(Layers(plan, 0, 2), "ooopoppp");
  EXPECT_EQ(Layers(plan, 1, -1), "fffpfffp");
  EXPECT_EQ(plan.Format(1, 0), plan.Format(1, -1)) << "all is in fp8";
  EXPECT_EQ(Layers(plan, 1, 2), "fffpfppp");
  EXPECT_EQ(Layers(plan, 2, 2), "pppppppp");
  EXPECT_EQ(plan.Formats().size(), 6U);
}

TEST(Trial, Defaults_AndWhatItRuns) {
  v1::JobSpec job = Job("fp8");
  EXPECT_THAT(Resolved(job), IsEmpty());
  EXPECT_THAT(TrialRecipes(job), IsEmpty());
  job.mutable_precision()->mutable_trial();
  EXPECT_THAT(Resolved(job), IsEmpty());
  EXPECT_EQ(job.precision().trial().steps(), 1000);
  EXPECT_EQ(job.precision().trial().max_gap(), 0.015);
  EXPECT_THAT(TrialRecipes(job), ElementsAre("bf16", "fp8"));
  v1::JobSpec without = Job("nvfp4");
  without.mutable_precision()->mutable_trial();
  without.mutable_precision()->add_fallback("none");
  EXPECT_THAT(Resolved(without), IsEmpty());
  EXPECT_THAT(TrialRecipes(without), ElementsAre("bf16", "nvfp4"));
  without.mutable_precision()->clear_fallback();
  EXPECT_THAT(Resolved(without), IsEmpty());
  EXPECT_THAT(TrialRecipes(without), ElementsAre("bf16", "nvfp4", "fp8"));
}

TEST(Trial, Checked_FieldByField) {
  const auto trial = [](int64_t steps, double max_gap = 0.01) {
    return [=](v1::PrecisionSpec& p) {
      p.mutable_trial()->set_steps(steps);
      p.mutable_trial()->set_max_gap(max_gap);
    };
  };
  EXPECT_THAT(With("fp8", trial(1000)), IsEmpty());
  EXPECT_THAT(With("fp8", trial(10, 0)), IsEmpty());
  EXPECT_THAT(With("bf16", trial(100)), Says("precision.trial", "precision.recipe is bf16"));
  EXPECT_THAT(With("fp8", trial(9)), Says("precision.trial.steps", "must be 10.."));
  EXPECT_THAT(With("fp8", trial(1001)), Says("precision.trial.steps", "train.steps 1000"));
  EXPECT_THAT(With("fp8", trial(100, -0.01)), Says("precision.trial.max_gap", "must be 0..1"));
  EXPECT_THAT(With("fp8", trial(100, std::nan(""))), Says("precision.trial.max_gap", "must be"));
  const auto with = [&](auto change) {
    return [=](v1::PrecisionSpec& p) {
      trial(200)(p);
      change(p);
    };
  };
  EXPECT_THAT(With("fp8", with([](auto& p) { p.set_warmup_steps(200); })),
              Says("precision.trial.steps", "precision.warmup_steps 200"));
  EXPECT_THAT(With("fp8", with([](auto& p) { p.set_warmup_steps(199); })), IsEmpty());
  EXPECT_THAT(With("fp8", with([](auto& p) { p.set_bf16_tail(0.801); })),
              Says("precision.trial.steps", "precision.bf16_tail 0.801"));
  EXPECT_THAT(With("fp8", with([](auto& p) { p.set_bf16_tail(0.8); })), IsEmpty());
}

// What a job was resolved to in its own recipe is valid in the one chosen.
TEST(Trial, ResolvedJob_IsValidInEachRecipe) {
  v1::JobSpec job = Job("nvfp4");
  job.mutable_precision()->mutable_trial();
  job.mutable_precision()->add_remedies()->set_clip(0.5);
  job.mutable_precision()->mutable_high_precision_layers()->set_last(1);
  EXPECT_THAT(Resolved(job), IsEmpty());
  for (const std::string& recipe : TrialRecipes(job)) {
    v1::JobSpec in = InRecipe(job, recipe);
    EXPECT_EQ(in.precision().recipe(), recipe);
    EXPECT_FALSE(in.precision().has_trial());
    EXPECT_THAT(Resolved(in), IsEmpty()) << recipe;
    if (recipe == "bf16") {
      EXPECT_FALSE(InRecipe(job, recipe).precision().has_high_precision_layers()) << "idle there";
    } else {
      EXPECT_EQ(in.precision().high_precision_layers().last(), 1) << "the job's own stay";
    }
  }
  // A remedy in fp8 means nothing to a job that is in fp8 itself.
  v1::PrecisionRemedy& layers = *job.mutable_precision()->add_remedies();
  layers.mutable_high_precision_layers()->add_layers(0);
  layers.set_layers_recipe("fp8");
  EXPECT_THAT(Resolved(job), IsEmpty());
  for (const char* recipe : {"fp8", "mxfp8"}) {
    v1::JobSpec in = InRecipe(job, recipe);
    EXPECT_THAT(Resolved(in), IsEmpty()) << recipe;
    const PrecisionPlan plan = ResolvePrecision(in, *FindRecipe(recipe), 2);
    EXPECT_EQ(Layers(plan, 0, 1), "pp") << recipe;
    EXPECT_EQ(plan.fallback, nullptr);
  }
  // Nor do switches of four bits and of what is quantised to those without.
  job.mutable_train()->set_steps(2000);
  job.mutable_precision()->set_bf16_tail(0.2);
  job.mutable_precision()->mutable_techniques()->set_hadamard(false);
  job.mutable_precision()->mutable_techniques()->set_stochastic_rounding(false);
  EXPECT_THAT(Resolved(job), IsEmpty());
  EXPECT_THAT(TrialRecipes(job), ElementsAre("bf16", "nvfp4", "fp8"));
  for (const std::string& recipe : TrialRecipes(job)) {
    v1::JobSpec in = InRecipe(job, recipe);
    EXPECT_THAT(Resolved(in), IsEmpty()) << recipe;
    EXPECT_EQ(in.precision().techniques().ByteSizeLong() > 0, recipe == "nvfp4") << recipe;
    EXPECT_EQ(in.precision().bf16_tail(), recipe == "bf16" ? 0 : 0.2) << recipe;
  }
  EXPECT_EQ(InRecipe(job, "nvfp4").precision().techniques().SerializeAsString(),
            job.precision().techniques().SerializeAsString());
  for (const Recipe& row : Recipes()) {
    v1::JobSpec in = InRecipe(job, std::string(row.name));
    std::vector<FieldViolation> violations;
    CheckIdleKeys(in, violations);
    EXPECT_THAT(violations, IsEmpty()) << row.name;
  }
  job.mutable_precision()->mutable_remedies()->RemoveLast();
  EXPECT_EQ(InRecipe(job, "nvfp4").precision().remedies_size(), 1);
  EXPECT_EQ(InRecipe(job, "bf16").precision().remedies_size(), 0);
}

}  // namespace
}  // namespace hearth::spec
