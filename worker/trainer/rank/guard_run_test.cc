// Runs whose numbers are spoiled on purpose: what is decided, and that a replay, a resume and every
// rank decide and compute alike.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/fault/fault.h"
#include "common/io/sha256.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/trainer/test_link.h"
#include "tests/support/trainer/test_recipes.h"
#include "tests/support/trainer/test_run.h"
#include "tests/support/trainer/test_shards.h"
#include "worker/trainer/checkpoint/checkpoint.h"
#include "worker/trainer/guard/guard.h"
#include "worker/trainer/rank/rank.h"

namespace hearth::trainer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kSteps = 30;

std::string Digest(const std::string& checkpoint) {
  return *Sha256HexOfFile(Env::Real(), checkpoint + "/model.safetensors") +
         *Sha256HexOfFile(Env::Real(), checkpoint + "/state/tensors.safetensors");
}

// "step action from>to" of each decision of a run.
std::vector<std::string> Decisions(const FakeLink& link) {
  std::vector<std::string> out;
  const auto add = [&out](const v1::GuardDecision& d) {
    out.push_back(std::to_string(d.step()) + " " + d.action() + " " + d.from() + ">" + d.to());
  };
  for (const v1::StepReport& step : link.steps) {
    for (const v1::GuardDecision& decision : step.decisions()) {
      add(decision);
    }
  }
  for (const v1::TrainerExit& exit : link.exits) {
    for (const v1::GuardDecision& decision : exit.decisions()) {
      add(decision);
    }
  }
  return out;
}

class GuardRunTest : public testing::TestWithParam<std::string> {
 protected:
  ~GuardRunTest() override { EXPECT_TRUE(fault::Configure("").ok()); }

  v1::JobSpec Job(const std::string& recipe = GetParam()) {
    v1::JobSpec spec = SmallJob(dir_.path(), "qwen3");
    spec.mutable_model()->set_head_dim(8);
    spec.mutable_model()->set_ffn_hidden(32);
    spec.mutable_model()->set_dropout(0.1);
    v1::PrecisionSpec& precision = *spec.mutable_precision();
    precision.set_recipe(recipe);
    precision.clear_fallback();
    precision.add_fallback("bf16");
    precision.set_fallback_steps(5);
    precision.set_fallback_window(10);
    spec.mutable_train()->set_steps(kSteps);
    spec.mutable_train()->set_spike_sigma(8);
    spec.mutable_train()->set_spike_window(8);
    return spec;
  }

  // A run of its own folder; `faults` as in HEARTH_FAULTS.
  std::unique_ptr<FakeLink> Run(const v1::JobSpec& spec, const std::string& faults) {
    EXPECT_TRUE(fault::Configure(faults).ok());
    auto link = std::make_unique<FakeLink>(
        MakeTask(spec, dir_.path() + "/run" + std::to_string(runs_++)), store_);
    RunTo(*link);
    return link;
  }

  // From the checkpoint that `whole` wrote after step `cut` to the end; a checkpoint each step.
  std::unique_ptr<FakeLink> Resume(const v1::JobSpec& spec,
                                   const FakeLink& whole,
                                   int cut,
                                   const std::string& faults) {
    v1::Task task = MakeTask(spec, dir_.path() + "/cut" + std::to_string(cut));
    task.set_epoch(2);
    task.set_resume_path(whole.checkpoints[static_cast<size_t>(cut - 1)].path());
    task.set_resume_step(cut);
    EXPECT_TRUE(fault::Configure(faults).ok());
    auto resumed = std::make_unique<FakeLink>(task, store_);
    EXPECT_EQ(RunTo(*resumed).reason(), v1::EXIT_REASON_FINISHED) << resumed->exits[0].message();
    return resumed;
  }

  // Both ranks of a run.
  std::pair<std::unique_ptr<FakeLink>, v1::TrainerExit> RunTwo(const v1::JobSpec& spec,
                                                               const std::string& faults) {
    EXPECT_TRUE(fault::Configure(faults).ok());
    const std::string folder = dir_.path() + "/run" + std::to_string(runs_++);
    LocalKeyValueStore store;
    auto leader = std::make_unique<FakeLink>(MakeTask(spec, folder, 0, 2), store);
    FakeLink follower(MakeTask(spec, folder, 1, 2), store);
    const v1::TrainerExit exit = RunBoth(*leader, follower).second;
    return {std::move(leader), exit};
  }
  // The leader of two ranks that finish.
  std::unique_ptr<FakeLink> FinishTwo(const v1::JobSpec& spec, const std::string& faults) {
    auto [leader, follower] = RunTwo(spec, faults);
    EXPECT_EQ(leader->exits[0].reason(), v1::EXIT_REASON_FINISHED) << leader->exits[0].message();
    EXPECT_EQ(follower.reason(), v1::EXIT_REASON_FINISHED) << follower.message();
    return std::move(leader);
  }

  TempDir dir_;
  LocalKeyValueStore store_;
  int runs_ = 0;
};

TEST_P(GuardRunTest, Nan_StepIsDoneAgainInBf16AndTheRunEndsAsTheCleanOne) {
  const auto clean = Run(Job(), "");
  ASSERT_EQ(clean->exits[0].reason(), v1::EXIT_REASON_FINISHED) << clean->exits[0].message();
  EXPECT_THAT(Decisions(*clean), IsEmpty());
  const auto spoiled = Run(Job(), "trainer.nan_gradient=error@15");
  ASSERT_EQ(spoiled->exits[0].reason(), v1::EXIT_REASON_FINISHED) << spoiled->exits[0].message();
  EXPECT_THAT(Decisions(*spoiled), ElementsAre(std::string("15 redo ") + GetParam() + ">bf16"));
  ASSERT_EQ(spoiled->steps.size(), size_t{kSteps});
  for (size_t i = 0; i < 14; ++i) {
    EXPECT_EQ(spoiled->steps[i].loss(), clean->steps[i].loss());
  }
  const v1::StepReport& redone = spoiled->steps[14];
  EXPECT_EQ(redone.recipe(), "bf16");
  EXPECT_EQ(redone.decisions(0).cause(), "non_finite");
  EXPECT_GE(redone.decisions(0).nonfinite_gradients(), 1);
  EXPECT_TRUE(std::isfinite(redone.decisions(0).loss())) << "the gradient alone was spoiled";
  EXPECT_EQ(redone.guard().non_finite(), 1);
  EXPECT_EQ(redone.guard().redone_steps(), 1);
  EXPECT_EQ(redone.skipped_steps(), 1);
  EXPECT_EQ(spoiled->steps[15].recipe(), GetParam());
  // Same data and dropout: the loss of the step differs by the format alone.
  EXPECT_NEAR(redone.loss() / clean->steps[14].loss(), 1.0, 0.05);
  EXPECT_NEAR(spoiled->steps.back().loss() / clean->steps.back().loss(), 1.0, 0.05);
  EXPECT_NEAR(spoiled->steps.back().validation_loss() / clean->steps.back().validation_loss(), 1.0,
              0.05);
  // Once more: the same bits.
  const auto again = Run(Job(), "trainer.nan_gradient=error@15");
  EXPECT_EQ(Digest(again->checkpoints.back().path()), Digest(spoiled->checkpoints.back().path()));
}

TEST_P(GuardRunTest, Spike_IsFoundAndDoneAgain) {
  const auto clean = Run(Job(), "");
  const auto spoiled = Run(Job(), "trainer.loss_spike=error@22");
  ASSERT_EQ(spoiled->exits[0].reason(), v1::EXIT_REASON_FINISHED) << spoiled->exits[0].message();
  EXPECT_THAT(Decisions(*spoiled), ElementsAre(std::string("22 redo ") + GetParam() + ">bf16"));
  const v1::GuardDecision& decision = spoiled->steps[21].decisions(0);
  EXPECT_EQ(decision.cause(), "spike");
  EXPECT_GT(decision.loss(), decision.loss_limit());
  EXPECT_THAT(decision.text(), HasSubstr("the loss jumped to"));
  EXPECT_EQ(spoiled->steps[21].guard().spike(), 1);
  EXPECT_NEAR(spoiled->steps.back().loss() / clean->steps.back().loss(), 1.0, 0.05);
  const bool logged =
      std::any_of(spoiled->logs.begin(), spoiled->logs.end(), [](const std::string& line) {
        return line.find("warning: step 22: the loss jumped") != std::string::npos;
      });
  EXPECT_TRUE(logged);
}

// How many deviations of the recent steps' norms the norm of step `step` (from 1) is above their
// mean, as the guard counts.
double DeviationsAbove(const FakeLink& run, const v1::JobSpec& spec, int step) {
  const int window = static_cast<int>(spec.train().spike_window());
  const auto limit = [&](double sigma) {
    Guard guard({0, sigma, window});
    for (int k = step - window; k < step; ++k) {
      guard.Record({0, run.steps[static_cast<size_t>(k - 1)].grad_norm()});
    }
    return std::log(guard.Limits().grad_norm);
  };
  const double above = std::log(run.steps[static_cast<size_t>(step - 1)].grad_norm()) - limit(1);
  return 1 + above / (limit(2) - limit(1));
}

// The limit lies between what the run does by itself and what the spoiled step does, far from both:
// sums are rounded in another order on each kind of CPU.
TEST_P(GuardRunTest, GradientSpike_IsFoundToo) {
  constexpr int kSpoiled = 50;
  const std::string fault = "trainer.loss_spike=error@" + std::to_string(kSpoiled);
  v1::JobSpec spec = Job();
  spec.mutable_model()->set_dropout(0);
  spec.mutable_batch()->set_micro_batch_size(8);
  spec.mutable_batch()->set_global_batch_tokens(512);
  spec.mutable_train()->set_steps(kSpoiled + 1);
  spec.mutable_train()->set_spike_sigma(0);
  spec.mutable_precision()->set_fallback_after(1000);
  const auto unguarded = Run(spec, fault);
  ASSERT_EQ(unguarded->steps.size(), size_t{kSpoiled + 1});
  double own = 1;
  for (int step = static_cast<int>(spec.train().spike_window()) + 1; step < kSpoiled; ++step) {
    own = std::max(own, DeviationsAbove(*unguarded, spec, step));
  }
  const double spoiled_by = DeviationsAbove(*unguarded, spec, kSpoiled);
  ASSERT_GT(spoiled_by, 4 * own) << "own " << own;
  spec.mutable_train()->set_spike_grad_sigma(std::sqrt(own * spoiled_by));
  const auto spoiled = Run(spec, fault);
  ASSERT_EQ(spoiled->exits[0].reason(), v1::EXIT_REASON_FINISHED) << spoiled->exits[0].message();
  EXPECT_THAT(Decisions(*spoiled),
              ElementsAre(std::to_string(kSpoiled) + " redo " + GetParam() + ">bf16"));
  const v1::GuardDecision& decision = spoiled->steps[kSpoiled - 1].decisions(0);
  EXPECT_EQ(decision.cause(), "grad_spike");
  EXPECT_EQ(decision.grad_norm(), unguarded->steps[kSpoiled - 1].grad_norm());
  EXPECT_GT(decision.grad_norm(), decision.grad_norm_limit());
}

TEST_P(GuardRunTest, LastRecipeFailsToo_StopsAsNumerical) {
  const auto run = Run(Job(), "trainer.nan_gradient=error@15x9");
  EXPECT_EQ(run->exits[0].reason(), v1::EXIT_REASON_NUMERICAL);
  EXPECT_EQ(run->exits[0].step(), 14);
  EXPECT_THAT(run->exits[0].message(), HasSubstr("step 15"));
  EXPECT_THAT(run->exits[0].message(), HasSubstr("not finite"));
  EXPECT_THAT(Decisions(*run),
              ElementsAre(std::string("15 redo ") + GetParam() + ">bf16", "15 stop bf16>"));
}

TEST_P(GuardRunTest, NoFallback_StopsAtOnce) {
  v1::JobSpec spec = Job();
  spec.mutable_precision()->set_fallback(0, "none");
  const auto run = Run(spec, "trainer.nan_gradient=error@15");
  EXPECT_EQ(run->exits[0].reason(), v1::EXIT_REASON_NUMERICAL);
  EXPECT_THAT(Decisions(*run), ElementsAre(std::string("15 stop ") + GetParam() + ">"));
}

// Remedies, then the fallback and back; cut at every kind of moment.
TEST_P(GuardRunTest, RepeatedTrouble_ResumedAnywhere_EqualsNeverStopped) {
  v1::JobSpec spec = Job();
  spec.mutable_precision()->set_fallback_after(2);
  v1::PrecisionRemedy& remedy = *spec.mutable_precision()->add_remedies();
  remedy.set_learning_rate(0.5);
  remedy.mutable_high_precision_layers()->set_first(1);
  remedy.set_layers_recipe("bf16");
  remedy.set_steps(4);
  spec.mutable_checkpoint()->set_every_steps(1);
  spec.mutable_checkpoint()->set_keep_last(1000);
  const std::string faults = "trainer.nan_gradient=error@10-13";
  const auto whole = Run(spec, faults);
  ASSERT_EQ(whole->exits[0].reason(), v1::EXIT_REASON_FINISHED) << whole->exits[0].message();
  const std::string own = GetParam();
  const std::string layers = "learning rate x 0.5, first 1 layers in bf16";
  const std::vector<std::string> decisions = Decisions(*whole);
  EXPECT_THAT(decisions, ElementsAre("10 redo " + own + ">bf16", "11 remedy " + own + ">" + layers,
                                     "11 redo " + own + ">bf16", "12 redo " + own + ">bf16",
                                     "13 fallback " + own + ">bf16",
                                     "14 remedy_end " + layers + ">", "17 return bf16>" + own));
  EXPECT_EQ(whole->steps[16].recipe(), "bf16");
  EXPECT_EQ(whole->steps[17].recipe(), own);
  EXPECT_EQ(whole->steps.back().guard().fallbacks(), 1);
  EXPECT_EQ(whole->steps.back().guard().remedies(), 1);
  const auto clean = Run(spec, "");
  for (int step = 11; step <= 14; ++step) {
    EXPECT_DOUBLE_EQ(whole->steps[static_cast<size_t>(step - 1)].learning_rate(),
                     0.5 * clean->steps[static_cast<size_t>(step - 1)].learning_rate());
  }
  EXPECT_EQ(whole->steps[14].learning_rate(), clean->steps[14].learning_rate());
  ASSERT_EQ(whole->checkpoints.size(), size_t{kSteps});
  for (const int cut : {9, 10, 11, 12, 13, 14, 16, 17, 18}) {
    SCOPED_TRACE(cut);
    const auto resumed = Resume(spec, *whole, cut, faults);
    ASSERT_EQ(resumed->steps.size(), static_cast<size_t>(kSteps - cut));
    for (size_t i = 0; i < resumed->steps.size(); ++i) {
      const v1::StepReport& want = whole->steps[i + static_cast<size_t>(cut)];
      EXPECT_EQ(resumed->steps[i].loss(), want.loss()) << want.step();
      EXPECT_EQ(resumed->steps[i].guard().SerializeAsString(), want.guard().SerializeAsString());
    }
    std::vector<std::string> later;
    for (const std::string& decision : decisions) {
      if (std::atoi(decision.c_str()) > cut) {
        later.push_back(decision);
      }
    }
    EXPECT_EQ(Decisions(*resumed), later);
    EXPECT_EQ(Digest(resumed->checkpoints.back().path()), Digest(whole->checkpoints.back().path()));
  }
}

TEST_P(GuardRunTest, TwoRanks_DecideAlikeShardedOrNot) {
  const std::string faults = "trainer.nan_gradient=error@12,trainer.loss_spike=error@22";
  const auto solo = Run(Job(), faults);
  ASSERT_EQ(solo->exits[0].reason(), v1::EXIT_REASON_FINISHED) << solo->exits[0].message();
  const std::string own = GetParam();
  for (const std::string& shard : AllShards()) {
    SCOPED_TRACE(shard);
    v1::JobSpec spec = Job();
    spec.mutable_parallel()->set_shard(shard);
    const auto leader = FinishTwo(spec, faults);
    EXPECT_THAT(Decisions(*leader),
                ElementsAre("12 redo " + own + ">bf16", "22 redo " + own + ">bf16"));
    EXPECT_NEAR(leader->steps.back().loss() / solo->steps.back().loss(), 1.0, 0.05);
    const auto [again, other] = RunTwo(spec, faults);
    EXPECT_EQ(other.reason(), v1::EXIT_REASON_FINISHED);
    ASSERT_EQ(again->steps.size(), leader->steps.size());
    for (size_t i = 0; i < again->steps.size(); ++i) {
      EXPECT_EQ(again->steps[i].loss(), leader->steps[i].loss()) << i + 1;
    }
    EXPECT_EQ(*Sha256HexOfFile(Env::Real(), again->checkpoints[0].path() + "/model.safetensors"),
              *Sha256HexOfFile(Env::Real(), leader->checkpoints[0].path() + "/model.safetensors"));
    const auto [stopped, also] = RunTwo(spec, "trainer.nan_gradient=error@12x9");
    EXPECT_EQ(stopped->exits[0].reason(), v1::EXIT_REASON_NUMERICAL);
    EXPECT_EQ(also.reason(), v1::EXIT_REASON_NUMERICAL);
  }
}

TEST_P(GuardRunTest, TwoRanks_NanThatTravelsInFp8_IsSeen) {
  for (const std::string& shard : AllShards()) {
    SCOPED_TRACE(shard);
    v1::JobSpec spec = Job();
    spec.mutable_parallel()->set_shard(shard);
    spec.mutable_gradients()->set_reduce_dtype("fp8");
    const auto leader = FinishTwo(spec, "trainer.nan_gradient=error@12");
    EXPECT_THAT(Decisions(*leader), ElementsAre(std::string("12 redo ") + GetParam() + ">bf16"));
    EXPECT_EQ(leader->steps[11].decisions(0).cause(), "non_finite");
    EXPECT_GE(leader->steps[11].decisions(0).nonfinite_gradients(), 1);
  }
}

// A pause asked for with a step that is refused is not lost.
TEST_P(GuardRunTest, PauseWithARefusedStep_PausesOnceItIsDone) {
  ASSERT_TRUE(fault::Configure("trainer.nan_gradient=error@12").ok());
  FakeLink link(MakeTask(Job(), dir_.path() + "/paused"), store_);
  link.AskAt(12, v1::CONTROL_BIT_PAUSE);
  EXPECT_EQ(RunTo(link).reason(), v1::EXIT_REASON_PAUSED);
  EXPECT_EQ(link.exits[0].step(), 12);
  EXPECT_EQ(link.steps.back().recipe(), "bf16");
}

TEST_P(GuardRunTest, Stats_SayWhatTheFormatsDoAndChangeNothing) {
  v1::JobSpec spec = Job();
  const auto without = Run(spec, "");
  spec.mutable_precision()->set_stats_every(10);
  const auto with = Run(spec, "");
  ASSERT_EQ(with->exits[0].reason(), v1::EXIT_REASON_FINISHED) << with->exits[0].message();
  EXPECT_EQ(Digest(with->checkpoints.back().path()), Digest(without->checkpoints.back().path()));
  for (const v1::StepReport& step : with->steps) {
    if (step.step() % 10 != 0) {
      EXPECT_EQ(step.tensors_size(), 0);
      continue;
    }
    ASSERT_EQ(step.tensors_size(), 2 * 4 * 3);
    std::map<std::string, double> underflow;
    for (const v1::TensorStats& row : step.tensors()) {
      EXPECT_GT(row.amax(), 0) << row.parameter() << row.role();
      EXPECT_LT(row.saturation_ratio(), 0.5) << row.parameter() << row.role();
      EXPECT_LT(row.underflow_ratio(), 0.9) << row.parameter() << row.role();
      underflow[row.role()] = std::max(underflow[row.role()], row.underflow_ratio());
    }
    EXPECT_EQ(underflow.size(), 3U);
    EXPECT_GT(underflow["dy"] + underflow["x"], 0);
    EXPECT_GE(step.worst_tensors_size(), 3);
    EXPECT_LE(step.worst_tensors_size(), 9);
    if (spec::FindRecipe(GetParam())->fprop.a.scaling == spec::Scaling::kTensorCurrent) {
      // Scaled by its own maximum every tensor has an element at the top.
      EXPECT_GT(step.worst_tensors(0).saturation_ratio(), 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Recipes, GuardRunTest, testing::ValuesIn(TensorScaledRecipes()));

// Runs of recipes with block scales: extents that are multiples of what their products need.
class BlockJobTest : public GuardRunTest {
 protected:
  v1::JobSpec BlockJob(const std::string& recipe = GetParam()) {
    v1::JobSpec spec = Job(recipe);
    SetExtentsOf128(spec);
    spec.mutable_model()->set_heads(4);
    spec.mutable_model()->set_kv_heads(2);
    v1::PrecisionSpec& precision = *spec.mutable_precision();
    precision.set_warmup_steps(3);
    precision.mutable_high_precision_layers()->set_last(0);
    // Keeping in 8 bits is no part of a recipe.
    precision.set_narrow_activations(false);
    if (recipe != "fp8") {
      precision.clear_fallback();
      precision.add_fallback("fp8");
      precision.add_fallback("bf16");
    }
    spec.mutable_train()->set_steps(12);
    return spec;
  }
};

// Recipes whose refused steps are done again in fp8.
class Fp8FallbackTest : public BlockJobTest {};

// The same magnitudes lead to the same scales, and these to the same bits.
TEST_P(Fp8FallbackTest, RedoneStep_IsTheStepOfAnFp8Job) {
  for (const char* recompute : {"none", "block"}) {
    SCOPED_TRACE(recompute);
    v1::JobSpec spec = BlockJob();
    spec.set_recompute(recompute);
    const auto spoiled = Run(spec, "trainer.nan_gradient=error@4");
    ASSERT_EQ(spoiled->exits[0].reason(), v1::EXIT_REASON_FINISHED) << spoiled->exits[0].message();
    EXPECT_THAT(Decisions(*spoiled), ElementsAre(std::string("4 redo ") + GetParam() + ">fp8"));
    const auto fp8 = Run(BlockJob("fp8"), "");
    ASSERT_EQ(fp8->exits[0].reason(), v1::EXIT_REASON_FINISHED) << fp8->exits[0].message();
    EXPECT_EQ(spoiled->steps[2].recipe(), "bf16");
    EXPECT_EQ(spoiled->steps[3].recipe(), "fp8");
    EXPECT_EQ(spoiled->steps[4].recipe(), GetParam());
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(spoiled->steps[i].loss(), fp8->steps[i].loss()) << i + 1;
      EXPECT_EQ(spoiled->steps[i].grad_norm(), fp8->steps[i].grad_norm()) << i + 1;
    }
    EXPECT_NE(spoiled->steps[4].grad_norm(), fp8->steps[4].grad_norm());
  }
}

TEST_P(Fp8FallbackTest, RefusedInFp8Too_IsDoneInBf16) {
  const auto run = Run(BlockJob(), "trainer.nan_gradient=error@6x2");
  ASSERT_EQ(run->exits[0].reason(), v1::EXIT_REASON_FINISHED) << run->exits[0].message();
  EXPECT_THAT(Decisions(*run),
              ElementsAre(std::string("6 redo ") + GetParam() + ">fp8", "6 redo fp8>bf16"));
  EXPECT_EQ(run->steps[5].recipe(), "bf16");
  EXPECT_EQ(run->steps[5].skipped_steps(), 2);
}

// A remedy that moves a named layer to fp8, then a time in fp8; cut in each.
TEST_P(Fp8FallbackTest, LayersThenAllInFp8_ResumedAnywhere_EqualsNeverStopped) {
  v1::JobSpec spec = BlockJob();
  v1::PrecisionSpec& precision = *spec.mutable_precision();
  precision.set_fallback_after(1);
  precision.set_fallback_steps(3);
  precision.set_warmup_steps(1);
  v1::PrecisionRemedy& remedy = *precision.add_remedies();
  remedy.mutable_high_precision_layers()->add_layers(1);
  remedy.set_layers_recipe("fp8");
  remedy.set_steps(3);
  spec.mutable_checkpoint()->set_every_steps(1);
  spec.mutable_checkpoint()->set_keep_last(1000);
  const std::string faults = "trainer.nan_gradient=error@3";
  const std::string both = "trainer.nan_gradient=error@3-4";
  const auto one = Run(spec, faults);
  const auto whole = Run(spec, both);
  ASSERT_EQ(whole->exits[0].reason(), v1::EXIT_REASON_FINISHED) << whole->exits[0].message();
  const std::string own = GetParam();
  const std::vector<std::string> decisions = Decisions(*whole);
  ASSERT_GE(decisions.size(), 3U);
  EXPECT_EQ(decisions[0], "3 remedy " + own + ">layers 1 in fp8");
  EXPECT_EQ(decisions[1], "3 redo " + own + ">fp8");
  EXPECT_EQ(decisions[2], "4 fallback " + own + ">fp8");
  // The same step redone, but no remedy after it: step 4 has the same weights, and no layer in fp8.
  v1::JobSpec without = spec;
  without.mutable_precision()->set_fallback_after(100);
  const auto redone = Run(without, faults);
  EXPECT_EQ(one->steps[3].recipe(), own);
  EXPECT_EQ(one->steps[2].loss(), redone->steps[2].loss());
  EXPECT_EQ(one->steps[2].grad_norm(), redone->steps[2].grad_norm());
  EXPECT_NE(one->steps[3].loss(), redone->steps[3].loss()) << "the remedy changes nothing";
  for (const int cut : {2, 3, 4, 5, 8}) {
    SCOPED_TRACE(cut);
    const auto resumed = Resume(spec, *whole, cut, both);
    EXPECT_EQ(Digest(resumed->checkpoints.back().path()), Digest(whole->checkpoints.back().path()));
  }
}

TEST_P(Fp8FallbackTest, TwoRanks_ShardedOrNot_GoOnAsOne) {
  const std::string faults = "trainer.nan_gradient=error@6";
  const auto solo = Run(BlockJob(), faults);
  std::vector<double> whole;
  for (const char* shard : {"off", "optimizer"}) {
    SCOPED_TRACE(shard);
    v1::JobSpec spec = BlockJob();
    spec.mutable_parallel()->set_shard(shard);
    const auto leader = FinishTwo(spec, faults);
    EXPECT_THAT(Decisions(*leader), ElementsAre(std::string("6 redo ") + GetParam() + ">fp8"));
    EXPECT_EQ(leader->steps[5].recipe(), "fp8");
    std::vector<double> losses;
    for (size_t i = 0; i < solo->steps.size(); ++i) {
      losses.push_back(leader->steps[i].loss());
      EXPECT_NEAR(losses[i] / solo->steps[i].loss(), 1.0, 0.1) << i + 1;
    }
    EXPECT_TRUE(whole.empty() || losses == whole) << "each rank quantises the weights of all";
    whole = losses;
  }
}

INSTANTIATE_TEST_SUITE_P(Recipes, Fp8FallbackTest, testing::ValuesIn(RecipesBefore("fp8")));

// All recipes with block scales, each with the fallback of its row.
class BlockGuardTest : public BlockJobTest {};

TEST_P(BlockGuardTest, NanAndSpike_EndAsTheCleanRunAndTheSameBitsAgain) {
  v1::JobSpec spec = BlockJob();
  v1::PrecisionSpec& precision = *spec.mutable_precision();
  precision.clear_fallback();
  for (const std::string_view name : spec::FindRecipe(GetParam())->fallback) {
    precision.add_fallback(std::string(name));
  }
  precision.set_warmup_steps(1);
  spec.mutable_train()->set_steps(24);
  const auto clean = Run(spec, "");
  ASSERT_EQ(clean->exits[0].reason(), v1::EXIT_REASON_FINISHED) << clean->exits[0].message();
  EXPECT_THAT(Decisions(*clean), IsEmpty());
  const std::string faults = "trainer.nan_gradient=error@10,trainer.loss_spike=error@18";
  const auto spoiled = Run(spec, faults);
  ASSERT_EQ(spoiled->exits[0].reason(), v1::EXIT_REASON_FINISHED) << spoiled->exits[0].message();
  const std::string redo = std::string(" redo ") + GetParam() + ">" + precision.fallback(0);
  EXPECT_THAT(Decisions(*spoiled), ElementsAre("10" + redo, "18" + redo));
  EXPECT_EQ(spoiled->steps[17].decisions(0).cause(), "spike");
  EXPECT_EQ(spoiled->steps[18].recipe(), GetParam());
  EXPECT_NEAR(spoiled->steps.back().loss() / clean->steps.back().loss(), 1.0, 0.05);
  const auto again = Run(spec, faults);
  EXPECT_EQ(Digest(again->checkpoints.back().path()), Digest(spoiled->checkpoints.back().path()));
  EXPECT_NE(Digest(clean->checkpoints.back().path()), Digest(spoiled->checkpoints.back().path()));
}

INSTANTIATE_TEST_SUITE_P(Recipes, BlockGuardTest, testing::ValuesIn(BlockScaledRecipes()));

}  // namespace
}  // namespace hearth::trainer
