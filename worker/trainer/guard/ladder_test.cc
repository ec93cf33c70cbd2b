#include "worker/trainer/guard/ladder.h"

#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hearth::trainer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

LadderOptions Options() {
  LadderOptions options;
  options.recipes = {"nvfp4", "fp8", "bf16"};
  options.after = 2;
  options.window = 10;
  options.steps = 5;
  return options;
}

// "action from>to until" of each.
std::vector<std::string> Short(const std::vector<Decision>& decisions) {
  std::vector<std::string> out;
  for (const Decision& d : decisions) {
    const std::string_view action = ActionName(d.action);
    out.push_back(absl::StrCat(absl::string_view(action.data(), action.size()), " ", d.from, ">",
                               d.to, " ", d.until_step));
  }
  return out;
}

std::vector<std::string> Refuse(Ladder& ladder, int64_t step, Verdict cause = Verdict::kSpike) {
  std::vector<Decision> decisions;
  ladder.Refused(step, ladder.At(step).rung, cause, {9, 1, 0}, {3, kInfinity}, decisions);
  return Short(decisions);
}

std::vector<std::string> Apply(Ladder& ladder, int64_t step) {
  std::vector<Decision> decisions;
  ladder.Applied(step, decisions);
  return Short(decisions);
}

TEST(Ladder, RefusedOnce_OnlyThatStepIsDoneAgain) {
  Ladder ladder(Options());
  EXPECT_EQ(ladder.Attempt(7), 0);
  EXPECT_THAT(Refuse(ladder, 7), ElementsAre("redo nvfp4>fp8 0"));
  EXPECT_EQ(ladder.Attempt(7), 1);
  EXPECT_EQ(ladder.At(7).rung, 1);
  EXPECT_EQ(ladder.At(8).rung, 0);
  EXPECT_THAT(Refuse(ladder, 7, Verdict::kNonFinite), ElementsAre("redo fp8>bf16 0"));
  EXPECT_EQ(ladder.At(7).rung, 2);
  EXPECT_THAT(Apply(ladder, 7), ElementsAre());
  EXPECT_EQ(ladder.counts().redone_steps(), 1);
  EXPECT_EQ(ladder.counts().spike(), 1);
  EXPECT_EQ(ladder.counts().non_finite(), 1);
}

TEST(Ladder, RefusedInTheLastRecipe_Stops) {
  Ladder ladder(Options());
  std::vector<Decision> decisions;
  EXPECT_FALSE(ladder.Refused(3, 2, Verdict::kNonFinite, {}, {}, decisions));
  EXPECT_THAT(Short(decisions), ElementsAre("stop bf16> 0"));
  LadderOptions alone;
  alone.recipes = {"bf16"};
  Ladder none(alone);
  EXPECT_FALSE(none.Refused(3, 0, Verdict::kSpike, {}, {}, decisions));
}

TEST(Ladder, WeightsUpdatedAlready_StopsWhateverRecipesFollow) {
  Ladder ladder(Options());
  std::vector<Decision> decisions;
  StepFacts facts;
  facts.nonfinite_gradients = 1;
  facts.begun = true;
  EXPECT_FALSE(ladder.Refused(3, 0, Verdict::kNonFinite, facts, {}, decisions));
  EXPECT_THAT(Short(decisions), ElementsAre("stop nvfp4> 0"));
  EXPECT_THAT(VerdictText(Verdict::kNonFinite, facts, 3), HasSubstr("optimizer.fused"));
}

TEST(Ladder, RepeatedTrouble_MovesTheRunForAWhileAndBack) {
  Ladder ladder(Options());
  Refuse(ladder, 20);
  Apply(ladder, 20);
  EXPECT_THAT(Refuse(ladder, 25), ElementsAre("fallback nvfp4>fp8 29"));
  for (int64_t step = 25; step <= 29; ++step) {
    EXPECT_EQ(ladder.At(step).rung, 1) << step;
  }
  EXPECT_EQ(ladder.At(30).rung, 0);
  for (int64_t step = 25; step < 29; ++step) {
    EXPECT_THAT(Apply(ladder, step), ElementsAre());
  }
  EXPECT_THAT(Apply(ladder, 29), ElementsAre("return fp8>nvfp4 0"));
  EXPECT_THAT(Apply(ladder, 30), ElementsAre());
  EXPECT_EQ(ladder.counts().fallbacks(), 1);
  // Trouble in the fallback moves further down.
  Refuse(ladder, 31);
  EXPECT_THAT(Refuse(ladder, 32), ElementsAre("fallback nvfp4>fp8 36"));
  EXPECT_THAT(Refuse(ladder, 33), ElementsAre("redo fp8>bf16 0"));
  EXPECT_THAT(Refuse(ladder, 34), ElementsAre("fallback fp8>bf16 38"));
  EXPECT_EQ(ladder.At(38).rung, 2);
}

TEST(Ladder, TroubleFarApart_IsNotRepeated) {
  Ladder ladder(Options());
  for (int64_t step = 10; step < 100; step += 10) {
    EXPECT_THAT(Refuse(ladder, step), ElementsAre("redo nvfp4>fp8 0"));
    Apply(ladder, step);
  }
  EXPECT_EQ(ladder.state().trouble.size(), 1U);
}

TEST(Ladder, Remedies_ComeFirstAndStartOverAfterAQuietTime) {
  LadderOptions options = Options();
  options.remedies = {{"half", 0.5, 1, false, 6}, {"layers", 1, 0.25, true, 4}};
  options.after = 1;
  Ladder ladder(options);
  EXPECT_THAT(Refuse(ladder, 5), ElementsAre("remedy nvfp4>half 10", "redo nvfp4>fp8 0"));
  EXPECT_EQ(ladder.At(5).learning_rate, 0.5);
  EXPECT_EQ(ladder.At(5).rung, 1);
  Apply(ladder, 5);
  EXPECT_THAT(Refuse(ladder, 6), ElementsAre("remedy nvfp4>layers 9", "redo nvfp4>fp8 0"));
  EXPECT_EQ(ladder.At(6).layer_remedy, 1);
  EXPECT_EQ(ladder.At(7).layer_remedy, 1);
  EXPECT_EQ(ladder.At(7).learning_rate, 0.5);
  EXPECT_EQ(ladder.At(7).clip, 0.25);
  EXPECT_THAT(Apply(ladder, 9), ElementsAre("remedy_end layers> 0"));
  EXPECT_THAT(Apply(ladder, 10), ElementsAre("remedy_end half> 0"));
  EXPECT_EQ(ladder.At(11).layer_remedy, -1);
  EXPECT_EQ(ladder.At(11).learning_rate, 1);
  EXPECT_THAT(Refuse(ladder, 12), ElementsAre("fallback nvfp4>fp8 16"));
  EXPECT_THAT(Refuse(ladder, 26), ElementsAre("fallback nvfp4>fp8 30"));
  EXPECT_THAT(Refuse(ladder, 41), ElementsAre("remedy nvfp4>half 46", "redo nvfp4>fp8 0"));
}

// A resume from any step goes on as if never stopped.
TEST(Ladder, StateOfACheckpoint_DecidesAlike) {
  LadderOptions options = Options();
  options.remedies = {{"half", 0.5, 1, false, 6}};
  const auto bad = [](int64_t step) { return step % 7 == 3 || step % 11 == 4; };
  Ladder whole(options);
  for (int64_t cut = 1; cut < 60; ++cut) {
    Ladder again(options);
    again.Restore(whole.state());
    if (bad(cut) && whole.At(cut).rung < 2) {
      EXPECT_EQ(Refuse(again, cut), Refuse(whole, cut));
    }
    EXPECT_EQ(Apply(again, cut), Apply(whole, cut));
    EXPECT_EQ(again.At(cut + 1).rung, whole.At(cut + 1).rung);
    EXPECT_EQ(again.At(cut + 1).learning_rate, whole.At(cut + 1).learning_rate);
    EXPECT_EQ(again.counts().SerializeAsString(), whole.counts().SerializeAsString());
  }
  EXPECT_GT(whole.counts().fallbacks(), 0);
  EXPECT_GT(whole.counts().remedies(), 0);
}

TEST(Ladder, RestoreIntoAShorterLadder_StaysInside) {
  LadderState state;
  state.fallback_rung = 2;
  state.fallback_until = 100;
  state.remedy_until = {50, 60, 70};
  state.next_remedy = 3;
  LadderOptions options = Options();
  options.recipes = {"fp8", "bf16"};
  Ladder ladder(options);
  ladder.Restore(state);
  EXPECT_EQ(ladder.At(40).rung, 1);
  EXPECT_THAT(Apply(ladder, 100), ElementsAre("return bf16>fp8 0"));
}

TEST(DecisionText, Redo_SaysWhatWasMeasuredAndWhatFollows) {
  Ladder ladder(Options());
  std::vector<Decision> decisions;
  ladder.Refused(7, 0, Verdict::kSpike, {9.5, 1, 0}, {3.25, kInfinity}, decisions);
  EXPECT_THAT(DecisionText(decisions[0]), HasSubstr("step 7: the loss jumped to 9.5 in nvfp4"));
  EXPECT_THAT(DecisionText(decisions[0]), HasSubstr("limit 3.25"));
  EXPECT_THAT(DecisionText(decisions[0]), HasSubstr("again in fp8"));
  v1::GuardDecision proto;
  ToProto(decisions[0], proto);
  EXPECT_EQ(proto.action(), "redo");
  EXPECT_EQ(proto.cause(), "spike");
  EXPECT_EQ(proto.loss(), 9.5);
}

}  // namespace
}  // namespace hearth::trainer
