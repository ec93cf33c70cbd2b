#include "common/spec/precision.h"

#include <cmath>
#include <string>
#include <vector>

#include "common/spec/resolve.h"
#include "common/spec/trial.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hearth::spec {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
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

TEST(PrecisionLadder, Defaults_AreTheRecipeThenBf16) {
  for (const char* recipe : {"fp8", "fp8_current"}) {
    v1::JobSpec job = Job(recipe);
    EXPECT_THAT(Resolved(job), IsEmpty());
    const std::vector<const Recipe*> ladder = PrecisionLadder(job);
    EXPECT_THAT(ladder, ElementsAre(FindRecipe(recipe), FindRecipe("bf16")));
    EXPECT_EQ(job.precision().fallback_after(), 3);
    const PrecisionPlan plan = ResolvePrecision(job, *ladder[0], 4);
    EXPECT_TRUE(plan.plain_fallback);
    EXPECT_TRUE(plan.HasPlainPhase(4));
    EXPECT_FALSE(plan.HasInner());
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
  EXPECT_FALSE(ResolvePrecision(job, *FindRecipe("fp8_current"), 4).HasPlainPhase(4));
}

TEST(PrecisionLadder, RecipesThatOneRunCannotSwitchTo_AreRefused) {
  const auto fallback = [](const char* name) {
    return [name](v1::PrecisionSpec& p) { p.add_fallback(name); };
  };
  EXPECT_THAT(With("fp8", fallback("fp8_current")),
              Says("precision.fallback[0]", "fp8 cannot go on in fp8_current"));
  EXPECT_THAT(With("bf16", fallback("fp32")), Says("precision.fallback[0]", "cannot go on"));
  EXPECT_THAT(With("fp8", fallback("fp9")), Says("precision.fallback[0]", "fp9"));
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
  EXPECT_THAT(With("fp8",
                   [](v1::PrecisionSpec& p) {
                     p.mutable_high_precision_layers()->set_first(2);
                     p.add_remedies()->mutable_high_precision_layers()->set_first(1);
                   }),
              Says("precision.remedies[0].high_precision_layers.first", ">= 2"));
  // nvfp4's own row keeps the last two in BF16.
  EXPECT_THAT(
      With("nvfp4", remedy([](auto& r) { r.mutable_high_precision_layers()->set_last(2); })),
      Says("precision.remedies[0].high_precision_layers", "changes nothing"));
  EXPECT_THAT(With("fp8",
                   [](v1::PrecisionSpec& p) {
                     p.add_remedies()->mutable_high_precision_layers()->set_first(1);
                     p.add_remedies()->mutable_high_precision_layers()->set_last(1);
                   }),
              Says("precision.remedies[1].high_precision_layers", "only one"));
}

TEST(Remedies, Layers_NarrowTheQuantisedRange) {
  v1::JobSpec job = Job("fp8");
  job.mutable_model()->set_layers(8);
  job.mutable_precision()->mutable_high_precision_layers()->set_last(1);
  v1::LayerRange& more = *job.mutable_precision()->add_remedies()->mutable_high_precision_layers();
  more.set_first(1);
  more.set_last(2);
  EXPECT_THAT(Resolved(job), IsEmpty());
  EXPECT_EQ(job.precision().remedies(0).steps(), 100);
  const PrecisionPlan plan = ResolvePrecision(job, *FindRecipe("fp8"), 8);
  EXPECT_EQ(plan.first_layer, 0);
  EXPECT_EQ(plan.end_layer, 7);
  EXPECT_EQ(plan.inner_first_layer, 1);
  EXPECT_EQ(plan.inner_end_layer, 6);
  EXPECT_TRUE(plan.HasInner());
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
  EXPECT_THAT(Resolved(job), IsEmpty());
  for (const std::string& recipe : TrialRecipes(job)) {
    v1::JobSpec in = InRecipe(job, recipe);
    EXPECT_EQ(in.precision().recipe(), recipe);
    EXPECT_FALSE(in.precision().has_trial());
    EXPECT_THAT(Resolved(in), IsEmpty()) << recipe;
    EXPECT_EQ(in.precision().high_precision_layers().last(), 2) << "the job's own stay";
  }
  EXPECT_EQ(InRecipe(job, "nvfp4").precision().remedies_size(), 1);
  EXPECT_EQ(InRecipe(job, "bf16").precision().remedies_size(), 0);
}

}  // namespace
}  // namespace hearth::spec
