#include "common/spec/feasibility/feasibility.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "common/formats/reduce_formats.h"
#include "common/spec/feasibility/accuracy.h"
#include "common/spec/feasibility/feasibility_text.h"
#include "common/spec/feasibility/memory/state_choice.h"
#include "common/spec/feasibility/memory/varied_plans.h"
#include "common/spec/feasibility/speed/calibration.h"
#include "common/spec/feasibility/speed/work.h"
#include "common/spec/gpus/gpus.h"
#include "common/spec/model/presets.h"
#include "common/spec/plan/plan_inputs.h"
#include "common/spec/plan/shard_levels.h"
#include "common/spec/plan/weight_units.h"
#include "common/spec/resolve/resolve.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/common/assessed_job.h"
#include "tests/support/common/planned_job.h"

namespace hearth::spec {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(MemoryPartsTest, AddUpToTheArenaExactly_ForEveryPresetRecipeAndLevel) {
  int plans_made = 0;
  for (const Preset& preset : Presets()) {
    for (const std::string_view recipe : RecipeNames()) {
      std::vector<FieldViolation> refusals;
      const v1::JobSpec job =
          PlannedJob(std::string(preset.name), std::string(recipe), 2, 256, &refusals);
      if (!refusals.empty()) {  // layers kept in BF16 that the model does not have
        continue;
      }
      VariedPlans plans(job, 1);
      for (const std::string_view level : RecomputeNames()) {
        Variation variation = plans.AsIs();
        variation.recompute = std::string(level);
        const auto plan = plans.Get(variation);
        if (!plan.ok()) {  // sizes that the recipe's products cannot take
          EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument) << plan.status();
          continue;
        }
        ++plans_made;
        int64_t sum = 0;
        for (const MemoryPart& part : MemoryParts((*plan)->plan, (*plan)->job->options)) {
          EXPECT_GT(part.bytes, 0) << part.name;
          sum += part.bytes;
        }
        EXPECT_EQ(sum, (*plan)->plan.arena_bytes() + kProcessOverheadBytes)
            << preset.name << " " << recipe << " " << level;
      }
    }
  }
  EXPECT_GT(plans_made, 200);
}

// docs/plan.md: what jobs of the presets took of an H100.
TEST(MemoryPartsTest, Total_IsWhatWasMeasured) {
  struct Row {
    const char* preset;
    const char* recipe;
    int micro_batch;
    int sequence;
    double gigabytes;
  };
  for (const Row& row : {
           Row{"hearth-112m", "bf16", 18, 2048, 13.75},
           Row{"hearth-112m", "fp8", 18, 2048, 10.92},
           Row{"qwen2.5-0.5b", "bf16", 32, 1024, 42.88},
           // 29.53, and what products with SwiGLU have taken since.
           Row{"qwen2.5-0.5b", "fp8", 32, 1024, 29.57},
           Row{"hearth-774m", "bf16", 8, 2048, 40.04},
           Row{"hearth-774m", "fp8", 8, 2048, 31.97},
           Row{"qwen2.5-1.5b", "bf16", 16, 1024, 63.48},
           Row{"qwen2.5-1.5b", "fp8", 16, 1024, 50.77},
       }) {
    const Feasibility f =
        Assess(PlannedJob(row.preset, row.recipe, row.micro_batch, row.sequence), "H100 SXM");
    EXPECT_NEAR(static_cast<double>(f.total_bytes) * 1e-9 / row.gigabytes, 1, 0.001)
        << row.preset << " " << row.recipe;
  }
}

TEST(StateChoiceTest, SmallestGradients_AreThoseOfTheFewestBits) {
  EXPECT_EQ(SmallestGradients(), "bf16");
}

TEST(MemoryPartsTest, AddUpToTheTotalExactly_ForEveryOptimizerAndFormat) {
  const v1::JobSpec job = PlannedJob("hearth-112m", "bf16", 2, 256);
  int judged = 0;
  for (const StateChoice& choice : AllowedChoices(job, /*gradients=*/true)) {
    for (const int gpus : {1, 2}) {
      FeasibilityQuery query;
      query.gpus = gpus;
      const Feasibility f = Assess(WithChoice(job, choice), "H200", query);
      int64_t sum = 0;
      for (const MemoryPart& part : f.memory) {
        sum += part.bytes;
      }
      EXPECT_EQ(sum, f.total_bytes) << ChoiceText(choice) << ", " << gpus << " GPUs";
      ++judged;
    }
  }
  EXPECT_GE(judged, 36);
}

TEST(MemoryPartsTest, PersistentParts_AreTheTableTimesTheirFormats) {
  const Feasibility f = Assess(PlannedJob("hearth-112m", "bf16"), "H200");
  int64_t weights = 0;
  int64_t optimizer = 0;
  for (const MemoryPart& part : f.memory) {
    weights += part.name == "weights" ? part.bytes : 0;
    optimizer += part.name == "optimizer" ? part.bytes : 0;
  }
  EXPECT_NEAR(static_cast<double>(weights) / (2.0 * f.parameters), 1, 1e-3);
  EXPECT_NEAR(static_cast<double>(optimizer) / (8.0 * f.parameters), 1, 1e-3);
}

// Llama-7B: 32 layers of 4096 and 11008, no grouped queries.
v1::JobSpec Llama7B() {
  v1::JobSpec job = PlannedJob("llama-3.2-1b", "bf16", 1, 2048);
  v1::ModelSpec& model = *job.mutable_model();
  model.clear_preset();
  model.set_layers(32);
  model.set_hidden(4096);
  model.set_heads(32);
  model.set_kv_heads(32);
  model.set_head_dim(128);
  model.set_ffn_hidden(11008);
  model.set_vocab(32000);
  return job;
}

TEST(ActivationsTest, Llama7BTakesWhatIsPublishedForEachLevel) {
  const struct {
    const char* recompute;
    double megabytes;  // a token
  } cases[] = {{"none", 4.2}, {"norm_act", 3.0}, {"block", 0.39}};
  VariedPlans plans(Llama7B(), 1);
  for (const auto& expected : cases) {
    Variation variation = plans.AsIs();
    variation.recompute = expected.recompute;
    const auto plan = plans.Get(variation);
    ASSERT_TRUE(plan.ok()) << plan.status();
    const double bytes = ActivationBytesPerToken((*plan)->plan, (*plan)->job->options);
    EXPECT_NEAR(bytes * 1e-6 / expected.megabytes, 1, 0.05) << expected.recompute;
  }
}

TEST(VariedPlansTest, TheLargestMicroBatch_IsTheLastThatFits) {
  VariedPlans plans(PlannedJob("hearth-112m", "bf16", 4, 2048), 1);
  const int64_t bytes = PlannableBytes("cuda", GpuNamed("RTX 5090").memory_bytes(), 1);
  for (const std::string_view level : RecomputeNames()) {
    Variation variation = plans.AsIs();
    variation.recompute = std::string(level);
    const auto largest = plans.Largest(variation, bytes);
    ASSERT_TRUE(largest.ok()) << largest.status();
    ASSERT_GT(*largest, 0);
    variation.micro_batch = *largest;
    EXPECT_LE((*plans.Get(variation))->plan.arena_bytes(), bytes) << level;
    ++variation.micro_batch;
    EXPECT_GT((*plans.Get(variation))->plan.arena_bytes(), bytes) << level;
  }
}

TEST(FeasibilityTest, AJobThatFits_IsAYesWithoutChanges) {
  const Feasibility f = Assess(PlannedJob("hearth-112m", "bf16"), "RTX 5090");
  EXPECT_EQ(f.verdict, Verdict::kYes);
  EXPECT_TRUE(f.changes.empty());
  EXPECT_LE(f.total_bytes, f.device_bytes);
  EXPECT_EQ(f.confidence, "nothing measured on this GPU: from the data sheet");
  EXPECT_GT(f.mfu, 0.1);
  EXPECT_LT(f.mfu, 1.0);
}

TEST(FeasibilityTest, AJobThatIsTooLarge_GetsChangesThatMakeItFit) {
  const v1::JobSpec job = PlannedJob("hearth-1.5b", "bf16", 8, 2048);
  const Feasibility f = Assess(job, "RTX 5090");
  ASSERT_EQ(f.verdict, Verdict::kYesWithChanges) << FeasibilityText(f, {}, false);
  EXPECT_LE(f.total_bytes, f.device_bytes);
  const Feasibility changed = Assess(Changed(job, f.changes), "RTX 5090");
  EXPECT_EQ(changed.verdict, Verdict::kYes);
  EXPECT_EQ(changed.total_bytes, f.total_bytes);
}

// A model of so many layers of 2,560.
v1::JobSpec Deep(int layers) {
  v1::JobSpec job = PlannedJob("llama-3.2-1b", "bf16", 4, 1024);
  v1::ModelSpec& model = *job.mutable_model();
  model.clear_preset();
  model.set_layers(layers);
  model.set_hidden(2560);
  model.set_heads(20);
  model.set_kv_heads(4);
  model.set_head_dim(128);
  model.set_ffn_hidden(7680);
  model.set_vocab(32000);
  return job;
}

// The smallest change that helps, by loss: recomputation alone, then formats, each tried with all
// levels; and what comes out trains under the rules.
TEST(FeasibilityTest, LargerModels_NeedNarrowerFormats_InTheOrderOfTheirLoss) {
  std::vector<size_t> places;
  std::vector<StateChoice> chosen;
  for (int layers = 21; layers < 100; layers += 3) {
    const v1::JobSpec job = Deep(layers);
    const Feasibility f = Assess(job, "RTX 5090");
    if (f.verdict == Verdict::kNo) {
      break;
    }
    const v1::JobSpec changed = Changed(job, f.changes);
    const Feasibility again = Assess(changed, "RTX 5090");
    EXPECT_EQ(again.verdict, Verdict::kYes) << layers;
    EXPECT_EQ(again.total_bytes, f.total_bytes) << layers;
    const std::vector<StateChoice> choices = ChoicesByLoss(job);
    const auto at = std::find(choices.begin(), choices.end(), ChoiceOf(changed));
    ASSERT_NE(at, choices.end()) << layers;
    places.push_back(static_cast<size_t>(at - choices.begin()));
    if (chosen.empty() || chosen.back() != *at) {
      chosen.push_back(*at);
    }
  }
  EXPECT_TRUE(std::is_sorted(places.begin(), places.end()));
  const std::vector<StateChoice> expected = {
      {"adamw", "fp32", "fp32", "fp32"}, {"adamw", "fp32", "fp32", "bf16"},
      {"adamw", "int8", "fp32", "fp32"}, {"adamw", "int8", "fp32", "bf16"},
      {"adamw", "int8", "none", "fp32"}, {"adamw", "int8", "none", "bf16"},
      {"adamw", "int4", "none", "bf16"}, {"muon", "int8", "none", "bf16"},
      {"muon", "int4", "none", "bf16"}};
  EXPECT_EQ(chosen, expected);
}

// Neither what a plan proposes nor the rows to choose from are refused by the rules.
TEST(FeasibilityTest, AMuonJobThatIsTooLarge_GetsNothingThatTheRulesRefuse) {
  v1::JobSpec job = Deep(40);
  job.mutable_optimizer()->set_name("muon");
  std::vector<FieldViolation> violations;
  Resolve(job, violations);
  ASSERT_TRUE(violations.empty()) << ViolationsToStatus(violations);
  const Feasibility f = Assess(job, "RTX 5090");
  ASSERT_EQ(f.verdict, Verdict::kYesWithChanges) << FeasibilityText(f, {}, false);
  const Feasibility again = Assess(Changed(job, f.changes), "RTX 5090");
  EXPECT_EQ(again.verdict, Verdict::kYes);
  EXPECT_EQ(again.total_bytes, f.total_bytes);
  std::vector<std::string> names;
  const std::map<std::string, std::string> losses = {
      {"optimizer.state: bf16", std::string(LossOf("optimizer.state", "bf16", "muon"))},
      {"optimizer.state: int8", std::string(LossOf("optimizer.state", "int8", "muon"))},
      {"optimizer.state: int4", std::string(LossOf("optimizer.state", "int4", "muon"))},
      {"optimizer.master: none", std::string(LossOf("optimizer.master", "none", "muon"))}};
  for (const Saving& saving : f.savings) {
    names.push_back(saving.change);
    const auto loss = losses.find(saving.change);
    if (loss != losses.end()) {
      EXPECT_EQ(saving.loss, loss->second) << saving.change << ": Muon's figure, not AdamW's";
      EXPECT_GT(saving.saved_bytes, 0) << saving.change;
    }
    if (saving.change.starts_with("optimizer.")) {
      const size_t colon = saving.change.find(": ");
      Changed(job, {{saving.change.substr(0, colon), saving.change.substr(colon + 2)}});
    }
  }
  for (const char* name :
       {"optimizer.state: bf16", "optimizer.state: int8", "optimizer.master: none"}) {
    EXPECT_THAT(names, Contains(name));
  }
}

// What a change saves is what the plan of the changed job takes less. Returns the changes.
std::vector<std::string> CheckSavings(const v1::JobSpec& job) {
  const Feasibility before = Assess(job, "H200");
  std::vector<std::string> names;
  for (const Saving& saving : before.savings) {
    EXPECT_GT(saving.saved_bytes, 0) << saving.change;
    const size_t colon = saving.change.find(": ");
    if (saving.change.starts_with("precision.")) {
      continue;
    }
    names.push_back(saving.change);
    const Change change = {saving.change.substr(0, colon), saving.change.substr(colon + 2)};
    const Feasibility after = Assess(Changed(job, {change}), "H200");
    EXPECT_EQ(before.total_bytes - after.total_bytes, saving.saved_bytes) << saving.change;
    EXPECT_NEAR(after.time.seconds / before.time.seconds, saving.time_ratio, 1e-9);
  }
  return names;
}

TEST(FeasibilityTest, Savings_AreWhatTheChangedPlanSays) {
  const std::vector<std::string> names = CheckSavings(PlannedJob("hearth-774m", "bf16", 8, 1024));
  for (const char* name :
       {"gradients.dtype: bf16", "weights.store: int8", "weights.store: q4_0",
        "weights.store: nvfp4", "optimizer.state: bf16", "optimizer.state: int8",
        "optimizer.state: int4", "optimizer.master: none", "optimizer.name: muon",
        "offload.optimizer: true", "offload.masters: true", "offload.activations: true"}) {
    EXPECT_THAT(names, Contains(name));
  }
}

// Only then may gradients wait in FP8 or updates be made in backward.
TEST(FeasibilityTest, Savings_OfOneMicroBatchAStep) {
  const char* const of_one[] = {"gradients.store: fp8", "optimizer.fused: true"};
  v1::JobSpec job = PlannedJob("hearth-774m", "bf16", 8, 1024);
  const std::vector<std::string> several = CheckSavings(job);
  job.mutable_batch()->set_global_batch_tokens(int64_t{8} * 1024);
  const std::vector<std::string> one = CheckSavings(job);
  for (const char* const name : of_one) {
    EXPECT_THAT(several, Not(Contains(name)));
    EXPECT_THAT(one, Contains(name));
  }
  EXPECT_THAT(one, Not(Contains("weights.store: iq3_xxs")));
  FeasibilityQuery query;
  query.gpus = 2;
  job.mutable_parallel()->set_shard("off");
  job.mutable_batch()->set_global_batch_tokens(int64_t{16} * 1024);
  std::vector<std::string> two;
  for (const Saving& saving : Assess(job, "H200", query).savings) {
    two.push_back(saving.change);
  }
  EXPECT_THAT(two, Contains("weights.store: q4_0"));
  EXPECT_THAT(two, Contains("optimizer.fused: true"));
}

// The rules refuse what changes nothing.
TEST(FeasibilityTest, Savings_OfFp32_HaveNoWeightsInBlocks) {
  for (const Saving& saving : Assess(PlannedJob("hearth-112m", "fp32"), "H200").savings) {
    EXPECT_FALSE(saving.change.starts_with("weights.store")) << saving.change;
  }
}

TEST(FeasibilityTest, AJobThatNothingHelps_IsANoWithItsBytes) {
  FeasibilityQuery query;
  query.memory_bytes = int64_t{4} << 30;
  const Feasibility f = Assess(PlannedJob("hearth-1.5b", "bf16", 8, 2048), "RTX 3060", query);
  EXPECT_EQ(f.verdict, Verdict::kNo);
  EXPECT_THAT(f.reasons, Contains(HasSubstr("it still takes")));
  EXPECT_GT(f.total_bytes, f.device_bytes);
}

TEST(FeasibilityTest, Recipes_FollowTheGpusCapability) {
  const v1::JobSpec fp8 = PlannedJob("hearth-112m", "fp8");
  EXPECT_EQ(Assess(fp8, "H200").execution, "native");
  const Feasibility ampere = Assess(fp8, "RTX 3090");
  EXPECT_EQ(ampere.verdict, Verdict::kYesWithChanges);
  ASSERT_EQ(ampere.changes.size(), 1U);
  EXPECT_EQ(ampere.changes[0].field, "precision.recipe");
  EXPECT_EQ(ampere.changes[0].value, "bf16");
  const v1::JobSpec nvfp4 = PlannedJob("hearth-112m", "nvfp4");
  EXPECT_EQ(Assess(nvfp4, "RTX 5090").execution, "native");
  EXPECT_EQ(Assess(nvfp4, "H200").execution, "emulated");
  EXPECT_THAT(Assess(PlannedJob("hearth-112m", "bf16"), "MI300X").reasons,
              Contains(HasSubstr("plan only")));
}

// Hours of so many tokens at such speeds, without what checkpoints and failures cost.
TEST(FeasibilityTest, Time_IsTokensOverSpeedOverGoodput) {
  FeasibilityQuery query;
  query.tokens = 3e9;
  query.mtbf_hours = 0;
  query.checkpoint_seconds = 0;
  v1::JobSpec job = PlannedJob("hearth-112m", "bf16");
  const Feasibility f = Assess(job, "H200", query);
  EXPECT_EQ(f.goodput, 1);
  EXPECT_NEAR(f.seconds, 3e9 / f.tok_s, 1e-6 * f.seconds);
  query.tokens = 0;
  query.tokens_per_parameter = 20;
  const Feasibility chinchilla = Assess(job, "H200", query);
  EXPECT_DOUBLE_EQ(chinchilla.tokens, 20.0 * static_cast<double>(chinchilla.parameters));
  query.mtbf_hours = 100;
  query.checkpoint_seconds = 1;
  EXPECT_LT(Assess(job, "H200", query).goodput, 1);
  query.gpus = 4;
  EXPECT_LT(Assess(job, "H200", query).goodput, 1);
}

// 185k and 196k tok/s: 32.05 minutes, 5.34 and 10.47 hours.
TEST(TrainingSecondsTest, TokensOverSpeed) {
  EXPECT_NEAR(TrainingSeconds(355.755e6, 185e3, 1) / 60, 32.05, 0.005);
  EXPECT_NEAR(TrainingSeconds(3.5564e9, 185e3, 1) / 3600, 5.34, 0.005);
  EXPECT_NEAR(TrainingSeconds(7.3876e9, 196e3, 1) / 3600, 10.47, 0.005);
  EXPECT_DOUBLE_EQ(TrainingSeconds(1000, 10, 0.5), 200);
}

TEST(FeasibilityTest, Cost_IsByPowerByTheHourAndByPurchase) {
  FeasibilityQuery query;
  query.tokens = 1e9;
  query.prices.per_kwh = 0.10;
  query.prices.per_gpu_hour = 0.50;
  query.card_price = 2000;
  query.lifetime_hours = 20000;
  const Feasibility f = Assess(PlannedJob("hearth-112m", "bf16"), "RTX 5090", query);
  ASSERT_TRUE(f.joules.has_value() && f.power_cost.has_value() && f.rent_cost.has_value());
  EXPECT_NEAR(*f.joules, f.time.watts * f.seconds, 1);
  EXPECT_NEAR(*f.power_cost, *f.joules / 3.6e6 * 0.10, 1e-9);
  EXPECT_NEAR(*f.rent_cost, f.seconds / 3600 * 0.50, 1e-9);
  ASSERT_TRUE(f.purchase_cost.has_value() && f.break_even_hours.has_value());
  EXPECT_NEAR(*f.purchase_cost, f.seconds / 3600 * 0.10 + *f.power_cost, 1e-9);
  EXPECT_NEAR(*f.break_even_hours, 2000 / (0.50 - f.time.watts / 1000 * 0.10), 1e-6);
  // A billion tokens at 196k tok/s.
  EXPECT_NEAR(CostPerBillionTokens(196e3, 0, 1, {.per_gpu_hour = 0.50}), 0.709, 5e-4);
  EXPECT_NEAR(CostPerBillionTokens(196e3, 575, 1, {.per_kwh = 0.10}), 0.0815, 5e-4);
}

TEST(FeasibilityTest, AWishAboveTheChipsPeak_IsImpossibleWithTheArithmetic) {
  FeasibilityQuery query;
  query.wanted_tok_s = 5e6;
  const Feasibility f = Assess(PlannedJob("hearth-112m", "bf16"), "H200", query);
  EXPECT_EQ(f.verdict, Verdict::kNo);
  EXPECT_THAT(f.reasons, Contains(HasSubstr("impossible: 1 x H200 gives at most")));
  query.wanted_tok_s = f.tok_s * 1.1;
  const Feasibility slow = Assess(PlannedJob("hearth-112m", "bf16"), "H200", query);
  EXPECT_EQ(slow.verdict, Verdict::kNo);
  EXPECT_THAT(slow.reasons, Contains(HasSubstr("times too slow")));
  query.wanted_tok_s = f.tok_s * 0.9;
  EXPECT_EQ(Assess(PlannedJob("hearth-112m", "bf16"), "H200", query).verdict, Verdict::kYes);
}

TEST(FeasibilityTest, SeveralGpus_ShareTheWorkAndExchangeGradients) {
  const v1::JobSpec job = PlannedJob("hearth-112m", "bf16", 8, 2048);
  FeasibilityQuery query;
  query.gpus = 4;
  const Feasibility one = Assess(job, "H200");
  const Feasibility four = Assess(job, "H200", query);
  EXPECT_GT(four.time.exchange_seconds, 0);
  EXPECT_GT(four.time.lockstep_seconds, 0);
  EXPECT_GT(four.tok_s, 3 * one.tok_s);
  EXPECT_LT(four.tok_s, 4 * one.tok_s);
  EXPECT_GT(four.total_bytes, one.total_bytes) << "NCCL";
  EXPECT_LT(Assess(job, "RTX 4090", query).tok_s / Assess(job, "RTX 4090").tok_s,
            four.tok_s / one.tok_s)
      << "a slower link";
}

TEST(FeasibilityTest, FormatsOnTheWay_CountTheBytesOfPartsAndOfWhatIsHandedRound) {
  v1::JobSpec job = PlannedJob("hearth-112m", "bf16", 8, 2048);
  FeasibilityQuery query;
  query.gpus = 4;
  for (const ShardRow& shard : ShardRows()) {
    SCOPED_TRACE(shard.name);
    job.mutable_parallel()->set_shard(std::string(shard.name));
    double before = std::numeric_limits<double>::infinity();
    for (const formats::ReduceFormatRow& format : formats::kReduceFormats) {  // each is smaller
      job.mutable_gradients()->set_reduce_dtype(std::string(format.name));
      const auto inputs = MakePlanInputs(job, 8, 1, /*training=*/true, 4, shard.level);
      ASSERT_TRUE(inputs.ok()) << inputs.status();
      double elements = 0;
      for (const Parameter& parameter : (*inputs)->table) {
        elements += static_cast<double>(parameter.elements());
      }
      const StepWork work = WorkOf((*inputs)->options, MatrixFormat::kBf16);
      EXPECT_DOUBLE_EQ(work.gradient_bytes, elements * format.PartBytes());
      const double sums = shard.optimizer ? 2 : format.SumBytes();  // else the BF16 weights
      EXPECT_DOUBLE_EQ(work.handed_round_bytes, shard.weights ? 0 : elements * sums);
      // Forward gathers all of them, backward all layers but the last two, which are still there.
      const Gathered gathered = GatheredInPass(PlanWeightUnits((*inputs)->options));
      EXPECT_DOUBLE_EQ(work.forward_weight_bytes, 2 * static_cast<double>(gathered.forward));
      EXPECT_DOUBLE_EQ(work.backward_weight_bytes, 2 * static_cast<double>(gathered.backward));
      EXPECT_EQ(gathered.forward >= static_cast<int64_t>(elements), shard.weights);
      const Feasibility f = Assess(job, "RTX 4090", query);
      EXPECT_LT(f.time.exchange_seconds, before) << format.name;
      before = f.time.exchange_seconds;
    }
  }
}

v1::JobSpec WithOptimizer(const char* name, const char* state, const char* master) {
  const v1::JobSpec job = PlannedJob("hearth-112m", "bf16", 18, 2048);
  return WithChoice(job, {name, state, master, ""});
}

// Milliseconds that the optimizer takes in a step of hearth-112m on an H100 (docs/memory.md,
// docs/optimizers.md). Nothing was fitted to them.
TEST(OptimizerTimeTest, IsNearWhatAnH100Takes) {
  const struct {
    const char* name;
    const char* state;
    const char* master;
    double ms;
    double band;
  } rows[] = {
      {"adamw", "fp32", "fp32", 1.33, 0.02}, {"adamw", "bf16", "fp32", 1.01, 0.05},
      {"adamw", "int8", "fp32", 1.13, 0.12}, {"adamw", "int4", "fp32", 1.14, 0.12},
      {"adamw", "fp32", "none", 1.09, 0.05}, {"adamw", "int8", "none", 0.97, 0.1},
  };
  for (const auto& row : rows) {
    const Feasibility f = Assess(WithOptimizer(row.name, row.state, row.master), "H100 SXM");
    EXPECT_NEAR(f.time.update_seconds * 1e3 / row.ms, 1, row.band)
        << row.name << " " << row.state << " " << row.master << ": " << f.time.update_seconds * 1e3;
    EXPECT_GT(f.tok_s, 0);
    EXPECT_GT(f.time.watts, 600);
  }
}

// Gradients that wait in FP8 are read and coded, and decoded again: a code and its part of a scale
// each way. Each block is updated by itself.
TEST(OptimizerTimeTest, CodedGradients_MoveThemselvesAndTheirCodesOnceMore) {
  v1::JobSpec job = PlannedJob("hearth-112m", "bf16", 8, 1024);
  job.mutable_batch()->set_global_batch_tokens(int64_t{8} * 1024);
  double elements = 0;
  const auto work = [&](const char* store, bool fused) {
    job.mutable_gradients()->set_store(store);
    job.mutable_optimizer()->set_fused(fused);
    const auto inputs = MakePlanInputs(job, 8, 1, /*training=*/true);
    EXPECT_TRUE(inputs.ok()) << inputs.status();
    elements = 0;
    for (const Parameter& parameter : (*inputs)->table) {
      elements += static_cast<double>(parameter.elements());
    }
    return WorkOf((*inputs)->options, MatrixFormat::kBf16);
  };
  const StepWork plain = work("dtype", false);
  const StepWork coded = work("fp8", false);
  const StepWork fused = work("dtype", true);
  EXPECT_NEAR((coded.update_bytes - plain.update_bytes) / elements, 2 * 4 + 2 * (1 + 1.0 / 128),
              1e-6);
  EXPECT_EQ(fused.update_bytes, plain.update_bytes);
  EXPECT_GT(fused.update_launches, plain.update_launches);
  EXPECT_GT(coded.update_launches, fused.update_launches);
}

// The matrices of a model through Newton-Schulz: all operations, and the time of the square ones,
// whose iteration was measured on an H100 as it is planned (docs/optimizers.md). Products alone,
// without the copies around them.
TEST(OptimizerTimeTest, NewtonSchulzProducts_AreThoseOfTheShapes) {
  const auto plain = [](double m) { return 5 * 6 * m * m * m; };
  const auto gram = [](double m, double n) { return 12 * m * m * n + 22 * m * m * m; };
  const struct {
    const char* preset;
    const char* squares;
    double ms;     // of the squares
    double flops;  // of all
  } rows[] = {
      {"hearth-112m", "768x768", 0.81,
       24 * plain(768) + 24 * gram(192, 768) + 36 * gram(768, 2048)},
      {"qwen2.5-1.5b", "1536x1536", 11.5,
       56 * plain(1536) + 56 * gram(256, 1536) + 84 * gram(1536, 8960)},
  };
  for (const auto& row : rows) {
    v1::JobSpec job = PlannedJob(row.preset, "bf16", 4, 1024);
    job = WithChoice(job, {"muon", "fp32", "fp32", ""});
    const Feasibility f = Assess(job, "H100 SXM");
    double flops = 0;
    double seconds = 0;
    double squares = 0;
    for (const ProductTime& product : f.time.products) {
      if (product.work.pass == "update") {
        flops += product.work.flops();
        seconds += product.seconds;
        squares += product.work.weight == row.squares ? product.seconds : 0;
      }
    }
    EXPECT_NEAR(flops / row.flops, 1, 1e-9) << row.preset;
    EXPECT_DOUBLE_EQ(seconds, f.time.update_product_seconds);
    EXPECT_GT(squares * 1e3, 0.65 * row.ms) << row.preset;
    EXPECT_LT(squares * 1e3, 1.0 * row.ms) << row.preset;
  }
}

// Ranks that divide the optimizer divide whole matrices, and exchange their gradients twice more.
TEST(OptimizerTimeTest, DividedMuon_SharesTheProductsAndExchangesMore) {
  v1::JobSpec job = WithOptimizer("muon", "fp32", "fp32");
  FeasibilityQuery query;
  query.gpus = 4;
  job.mutable_parallel()->set_shard("off");
  const Feasibility whole = Assess(job, "H200", query);
  job.mutable_parallel()->set_shard("optimizer");
  const Feasibility divided = Assess(job, "H200", query);
  EXPECT_NEAR(whole.time.update_product_seconds / divided.time.update_product_seconds, 4, 1e-9);
  EXPECT_GT(divided.time.exchange_seconds, whole.time.exchange_seconds);
  const v1::JobSpec adamw = WithOptimizer("adamw", "fp32", "fp32");
  EXPECT_EQ(Assess(adamw, "H200").time.update_product_seconds, 0);
}

TEST(FeasibilityTest, RecomputationNeedsLessMemoryAndMoreTime) {
  const Feasibility f = Assess(PlannedJob("hearth-355m", "bf16", 8, 2048), "H200");
  ASSERT_EQ(f.levels.size(), static_cast<size_t>(kRecomputeCount));
  for (size_t i = 1; i < f.levels.size(); ++i) {
    EXPECT_LE(f.levels[i].total_bytes, f.levels[i - 1].total_bytes);
    EXPECT_GE(f.levels[i].step_seconds, f.levels[i - 1].step_seconds);
    EXPECT_LE(f.levels[i].activation_bytes, f.levels[i - 1].activation_bytes);
  }
  EXPECT_GT(f.levels.back().step_seconds, 1.1 * f.levels.front().step_seconds);
}

TEST(FeasibilityTest, Questions_AreChecked) {
  FeasibilityQuery query;
  query.prices.per_kwh = -0.1;
  EXPECT_THAT(std::string(CheckQuery(query).message()), HasSubstr("--price-kwh: -0.1"));
  query = {};
  query.wanted_tok_s = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(std::string(CheckQuery(query).message()), HasSubstr("--tok-s: nan"));
  query = {};
  query.mtbf_hours = std::numeric_limits<double>::infinity();
  EXPECT_EQ(CheckQuery(query).code(), absl::StatusCode::kInvalidArgument);
  query = {};
  query.gpus = -1;
  EXPECT_EQ(CheckQuery(query).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(CheckQuery({}).ok());
}

TEST(GpuByNameTest, PeoplesNames_AreUnderstoodAndOthersGetTheNearest) {
  EXPECT_EQ((*GpuByName("rtx5090"))->name, "RTX 5090");
  EXPECT_EQ((*GpuByName("5090"))->name, "RTX 5090");
  EXPECT_EQ((*GpuByName("NVIDIA GeForce RTX 4090"))->name, "RTX 4090");
  EXPECT_EQ((*GpuByName("NVIDIA A100-SXM4-40GB"))->name, "A100 40GB");
  EXPECT_EQ((*GpuByName("NVIDIA A100-SXM4-80GB"))->name, "A100 80GB");
  EXPECT_THAT(std::string(GpuByName("RTX 5091").status().message()), HasSubstr("RTX 5090"));
  // Parts of words are no names: "x" is not MI300X.
  for (const char* no_name : {"", "x", "e", "s", "090", "RTX 5070 Ti"}) {
    EXPECT_FALSE(GpuByName(no_name).ok()) << no_name;
  }
}

TEST(FeasibilityLineTest, SaysMemoryTimeCostAndConfidence) {
  FeasibilityQuery query;
  query.prices.per_gpu_hour = 2;
  const std::string line = FeasibilityLine(Assess(PlannedJob("hearth-112m", "bf16"), "H200", query),
                                           query.prices.currency);
  EXPECT_THAT(line, HasSubstr("YES: "));
  EXPECT_THAT(line, HasSubstr(" of 150.8 GB; "));
  EXPECT_THAT(line, HasSubstr("; $"));
  EXPECT_THAT(line, HasSubstr("confidence: measured on this GPU"));
}

}  // namespace
}  // namespace hearth::spec
