#include "worker/trainer/step/trainer.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "common/formats/reduce_formats.h"
#include "common/spec/optimizer/optimizer_table.h"
#include "gtest/gtest.h"
#include "tests/support/trainer/test_recipes.h"
#include "tests/support/trainer/test_run.h"
#include "tests/support/trainer/test_shards.h"

namespace hearth::trainer {
namespace {

struct Curve {
  std::vector<double> losses;
  std::vector<double> grad_norms;
  double validation = 0;
  std::vector<float> scales;    // of delayed scaling: all sites, activations and weights
  std::vector<double> counted;  // of steps that count: amax and both numbers of each site; rank 0
};

void AppendCounted(const QuantState& quant, std::vector<double>& counted) {
  const QuantState::Counts counts = quant.Counted();
  for (int64_t site = 0; site < 3 * quant.size(); ++site) {
    counted.insert(counted.end(), {static_cast<double>(counts.amax[site]),
                                   static_cast<double>(counts.counts[2 * site]),
                                   static_cast<double>(counts.counts[2 * site + 1])});
  }
}

std::vector<float> DelayedScales(const Engine& engine) {
  std::vector<float> scales;
  for (const QuantStateTensor& tensor : engine.quant().Tensors()) {
    if (engine.quant().ScalesAreOfEarlierSteps() && std::string(tensor.name) == "quant.scale") {
      const auto* values = static_cast<const float*>(tensor.data);
      scales.assign(values, values + tensor.bytes / static_cast<int64_t>(sizeof(float)));
    }
  }
  return scales;
}

// The curve of rank 0 of `world_size`; ranks run on threads of their own.
Curve Train(const v1::JobSpec& spec, int world_size) {
  std::vector<std::unique_ptr<Collective>> comms = NewThreadCollectives(world_size);
  std::vector<Curve> curves(static_cast<size_t>(world_size));
  std::vector<std::thread> threads;
  for (int r = 0; r < world_size; ++r) {
    threads.emplace_back([&, r] {
      const std::unique_ptr<TestRank> rank = MakeRank(spec, *comms[static_cast<size_t>(r)]);
      Curve& curve = curves[static_cast<size_t>(r)];
      for (int64_t i = 0; i < spec.train().steps(); ++i) {
        const absl::StatusOr<StepResult> result = rank->trainer->Step({});
        ASSERT_TRUE(result.ok()) << result.status().ToString();
        ASSERT_EQ(result->verdict, Verdict::kGood);
        curve.losses.push_back(result->facts.loss);
        curve.grad_norms.push_back(result->facts.grad_norm);
        if (result->counted) {
          AppendCounted(rank->engine->quant(), curve.counted);
        }
      }
      curve.validation = *rank->trainer->Evaluate();
      curve.scales = DelayedScales(*rank->engine);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const Curve& curve : curves) {
    EXPECT_EQ(curve.losses, curves[0].losses) << "all ranks see the same numbers";
    EXPECT_EQ(curve.validation, curves[0].validation);
    EXPECT_EQ(curve.scales, curves[0].scales) << "no rank quantises with another scale";
  }
  return curves[0];
}

void ExpectClose(const Curve& a, const Curve& b) {
  ASSERT_EQ(a.losses.size(), b.losses.size());
  for (size_t i = 0; i < a.losses.size(); ++i) {
    EXPECT_NEAR(a.losses[i] / b.losses[i], 1.0, 1e-5) << "step " << i + 1;
    EXPECT_NEAR(a.grad_norms[i] / b.grad_norms[i], 1.0, 1e-3) << "step " << i + 1;
  }
  EXPECT_NEAR(a.validation / b.validation, 1.0, 1e-5);
}

// The curve of one rank, which learns.
Curve LearningCurve(const v1::JobSpec& spec) {
  Curve one = Train(spec, 1);
  EXPECT_LT(one.losses.back(), 0.7 * one.losses.front());
  return one;
}

void ExpectOneCurve(const v1::JobSpec& spec, std::initializer_list<int> worlds, const Curve& one) {
  for (const int ranks : worlds) {
    SCOPED_TRACE(ranks);
    ExpectClose(Train(spec, ranks), one);
  }
}

void ExpectOneCurveOfMicroBatches(v1::JobSpec spec,
                                  std::initializer_list<int> sizes,
                                  const Curve& one) {
  for (const int micro_batch : sizes) {
    SCOPED_TRACE(micro_batch);
    spec.mutable_batch()->set_micro_batch_size(micro_batch);
    ExpectClose(Train(spec, 1), one);
  }
}

v1::JobSpec Fp8Job(const std::string& dir,
                   const std::string& recipe,
                   const char* family = "llama") {
  v1::JobSpec spec = SmallJob(dir, family);
  spec.mutable_model()->set_ffn_hidden(32);
  spec.mutable_precision()->set_recipe(recipe);
  spec.mutable_precision()->set_warmup_steps(spec::FindRecipe(recipe)->fprop.a.delayed() ? 2 : 0);
  return spec;
}

TEST(Trainer, Step_TwoThreeAndFourRanks_GiveTheCurveOfOne) {
  TempDir dir;
  const v1::JobSpec spec = SmallJob(dir.path());
  const Curve one = LearningCurve(spec);
  ExpectOneCurve(spec, {2, 3, 4}, one);
}

// Three ranks do not share the micro-batches evenly: where gradients are divided one of them takes
// part in the first round without one. Tied and untied embeddings, which backward completes apart.
TEST(Trainer, Step_EveryShardLevel_GivesTheCurveOfOne) {
  TempDir dir;
  for (const char* family : {"llama", "qwen2"}) {
    for (const int micro_batch : {1, 2}) {
      v1::JobSpec spec = SmallJob(dir.path(), family);
      spec.mutable_batch()->set_micro_batch_size(micro_batch);
      spec.mutable_train()->set_steps(20);
      const Curve one = Train(spec, 1);
      for (const std::string& shard : AllShards()) {
        SCOPED_TRACE(testing::Message() << family << " " << micro_batch << " " << shard);
        spec.mutable_parallel()->set_shard(shard);
        ExpectOneCurve(spec, {1, 2, 3, 4}, one);
      }
    }
  }
}

// With one micro-batch a rank, and the same buckets, nothing is summed in another order.
TEST(Trainer, Step_OneMicroBatchARank_DividedGradients_GiveTheBitsOfWholeOnes) {
  TempDir dir;
  for (const formats::ReduceFormatRow& format : formats::kReduceFormats) {
    SCOPED_TRACE(format.name);
    v1::JobSpec spec = SmallJob(dir.path());
    const std::string sum(formats::DTypeName(format.sum));
    spec.mutable_precision()->set_recipe(sum);
    spec.mutable_gradients()->set_dtype(sum);
    spec.mutable_gradients()->set_reduce_dtype(std::string(format.name));
    spec.mutable_batch()->set_micro_batch_size(4);
    spec.mutable_parallel()->set_bucket_mib(1);
    spec.mutable_parallel()->set_shard("optimizer");
    const Curve whole = Train(spec, 2);
    spec.mutable_parallel()->set_shard("gradients");
    const Curve divided = Train(spec, 2);
    EXPECT_EQ(divided.losses, whole.losses);
    EXPECT_EQ(divided.grad_norms, whole.grad_norms);
    EXPECT_EQ(divided.validation, whole.validation);
  }
}

// Without a size every block is a bucket at both levels, and nothing is summed in another order.
// Models of one and several layers, tied and not, with a rank that sits out the first round.
void ExpectBitsOfDividedGradients(v1::JobSpec spec, int ranks) {
  spec.mutable_parallel()->clear_bucket_mib();
  spec.mutable_parallel()->set_shard("gradients");
  const Curve gradients = Train(spec, ranks);
  spec.mutable_parallel()->set_shard("weights");
  const Curve weights = Train(spec, ranks);
  EXPECT_EQ(weights.losses, gradients.losses);
  EXPECT_EQ(weights.grad_norms, gradients.grad_norms);
  EXPECT_EQ(weights.validation, gradients.validation);
  EXPECT_EQ(weights.scales, gradients.scales);
  EXPECT_EQ(weights.counted, gradients.counted);
}

TEST(Trainer, Step_DividedWeights_GiveTheBitsOfDividedGradients) {
  TempDir dir;
  for (const char* family : {"llama", "gpt2"}) {
    for (const int layers : {1, 5}) {
      for (const char* master : {"fp32", "none"}) {
        SCOPED_TRACE(testing::Message() << family << " " << layers << " " << master);
        v1::JobSpec spec = SmallJob(dir.path(), family);
        spec.mutable_model()->set_layers(layers);
        spec.mutable_precision()->set_recipe("bf16");
        spec.mutable_optimizer()->set_master(master);
        spec.mutable_train()->set_steps(6);
        ExpectBitsOfDividedGradients(spec, 2);
        ExpectBitsOfDividedGradients(spec, 3);
      }
    }
  }
}

// Every recipe: weights that are quantised as they arrive have the bits of those that the update
// quantised, with each recomputation, and are counted alike.
TEST(Trainer, Step_DividedWeightsOfEveryRecipe_GiveTheBitsOfDividedGradients) {
  TempDir dir;
  for (const std::string& recipe :
       RecipesWhere([](const spec::Recipe& r) { return r.quantised(); })) {
    for (const auto& [family, recompute] :
         {std::pair("llama", "none"), std::pair("qwen3", "block")}) {
      SCOPED_TRACE(recipe + " " + family);
      const spec::Recipe& row = *spec::FindRecipe(recipe);
      v1::JobSpec spec = SmallJob(dir.path(), family);
      SetExtentsOf128(spec);
      spec.mutable_model()->set_layers(3);
      v1::PrecisionSpec& precision = *spec.mutable_precision();
      precision.set_recipe(recipe);
      precision.set_lm_head(row.tensor_scaled() ? "fp8" : "bf16");
      precision.set_warmup_steps(row.fprop.a.delayed() ? 2 : 0);
      precision.mutable_high_precision_layers()->set_first(0);
      precision.mutable_high_precision_layers()->set_last(0);
      precision.set_stats_every(2);
      spec.set_recompute(recompute);
      spec.mutable_train()->set_steps(5);
      ExpectBitsOfDividedGradients(spec, 2);
    }
  }
}

// A guard against broken sums, not a measure of quality. One rank exchanges nothing.
TEST(Trainer, Step_Fp8Exchange_LearnsLikeFp32OnAnyNumberOfRanks) {
  TempDir dir;
  v1::JobSpec spec = SmallJob(dir.path());
  const Curve one = LearningCurve(spec);
  spec.mutable_gradients()->set_reduce_dtype("fp8");
  EXPECT_EQ(Train(spec, 1).losses, one.losses);
  for (const std::string& shard : AllShards()) {
    for (const int ranks : {2, 3, 4}) {
      SCOPED_TRACE(testing::Message() << shard << " " << ranks);
      spec.mutable_parallel()->set_shard(shard);
      const Curve curve = Train(spec, ranks);
      EXPECT_NE(curve.losses.back(), one.losses.back());
      EXPECT_NEAR(curve.losses.back() / one.losses.back(), 1.0, 0.02);
      EXPECT_NEAR(curve.validation / one.validation, 1.0, 0.02);
    }
  }
}

// Muon: whole matrices are computed by one rank each, or by every rank where nothing is divided.
TEST(Trainer, Step_EveryOptimizer_LearnsAndGivesTheCurveOfOne) {
  TempDir dir;
  for (const spec::OptimizerRow& row : spec::Optimizers()) {
    v1::JobSpec spec = WithOptimizer(SmallJob(dir.path(), "qwen2"), row.name);
    SCOPED_TRACE(spec.optimizer().name());
    const Curve one = LearningCurve(spec);
    ExpectClose(Train(spec, 2), one);
    for (const std::string& shard : DividingShards()) {
      SCOPED_TRACE(shard);
      spec.mutable_parallel()->set_shard(shard);
      ExpectOneCurve(spec, {2, 4}, one);
    }
  }
}

// The world changes what is summed in which order, not what is quantised with which scale.
TEST(Trainer, Step_Fp8ShardedOrNot_GivesTheCurveOfOne) {
  TempDir dir;
  for (const char* recipe : {"fp8", "bf16"}) {
    SCOPED_TRACE(recipe);
    v1::JobSpec spec = Fp8Job(dir.path(), recipe);
    spec.mutable_train()->set_steps(20);
    const Curve one = Train(spec, 1);
    const Curve whole = Train(spec, 2);
    EXPECT_EQ(whole.scales.empty(), std::string(recipe) != "fp8");
    EXPECT_NEAR(whole.losses.back() / one.losses.back(), 1.0, 2e-2);
    for (const std::string& shard : DividingShards()) {
      spec.mutable_parallel()->set_shard(shard);
      const Curve sharded = Train(spec, 2);
      for (size_t i = 0; i < sharded.losses.size(); ++i) {
        EXPECT_NEAR(sharded.losses[i] / whole.losses[i], 1.0, 2e-3) << shard << ", step " << i + 1;
      }
    }
  }
}

TEST(Trainer, Step_MicroBatchSizes_GiveOneCurve) {
  TempDir dir;
  v1::JobSpec spec = SmallJob(dir.path(), "gpt2");
  const Curve two = Train(spec, 1);
  ExpectOneCurveOfMicroBatches(spec, {1, 4, 8}, two);
}

// SmallJob on two datasets; `weight` samples of the first to one of the second.
v1::JobSpec MixtureJob(const std::string& dir, double weight) {
  v1::JobSpec spec = SmallJob(dir);
  v1::DataSpec& data = *spec.mutable_data();
  data.mutable_train(0)->set_weight(weight);
  v1::DataSource& other = *data.add_train();
  other.set_path(WriteDocuments(dir, "other", 60));
  other.set_weight(1);
  return spec;
}

// The loss of each of the first `samples` samples alone, summed by source.
std::vector<LossSums> LossesBySource(TestRank& rank, int64_t samples) {
  std::vector<LossSums> sums(static_cast<size_t>(rank.train->sources()));
  Engine& engine = *rank.engine;
  const int64_t length = rank.train->sequence_length();
  const BatchBuffers batch = engine.StagedBatch(0);
  for (int64_t sample = 0; sample < samples; ++sample) {
    EXPECT_TRUE(rank.train->Fill(sample, engine.model_rows() / length, batch).ok());
    // The other samples of the micro-batch do not count.
    std::fill(batch.loss_weight + length, batch.loss_weight + engine.model_rows(), 0.0F);
    const auto source = static_cast<size_t>(rank.train->Locate(sample).source);
    EXPECT_TRUE(engine.model().ForwardLoss(engine.exec(), sums[source]).ok());
  }
  return sums;
}

void ExpectLossesBySource(const v1::JobSpec& spec, Collective& comm) {
  const std::unique_ptr<TestRank> rank = MakeRank(spec, comm);
  const std::vector<LossSums> want = LossesBySource(*rank, rank->batch.global_sequences());
  const absl::StatusOr<StepResult> result = rank->trainer->Step({});
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  ASSERT_EQ(result->report.sources_size(), 2);
  double loss = 0;
  double weight = 0;
  for (int i = 0; i < 2; ++i) {
    const v1::SourceReport& source = result->report.sources(i);
    const LossSums& sums = want[static_cast<size_t>(i)];
    EXPECT_EQ(source.source(), spec.data().train(i).path());
    EXPECT_NEAR(source.loss() / (sums.loss / sums.weight), 1.0, 1e-5) << i;
    EXPECT_EQ(source.passes(), rank->train->PassesOf(i, rank->batch.global_sequences()));
    loss += source.loss() * sums.weight;
    weight += sums.weight;
  }
  EXPECT_NEAR(result->facts.loss / (loss / weight), 1.0, 1e-6) << "the mean of all targets";
  EXPECT_GT(std::fabs(result->report.sources(0).loss() - result->report.sources(1).loss()), 1e-4)
      << "sources that the test could not tell apart";
}

// Three ranks do not share the micro-batches evenly: where gradients are divided one of them takes
// part in the first round without one.
TEST(Trainer, Step_SeveralSources_LossOfEachIsThatOfItsSamples) {
  TempDir dir;
  v1::JobSpec spec = MixtureJob(dir.path(), 3);
  for (const char* shard : {"off", "gradients"}) {
    spec.mutable_parallel()->set_shard(shard);
    for (const int world : {1, 2, 3}) {
      SCOPED_TRACE(testing::Message() << shard << " " << world);
      const std::vector<std::unique_ptr<Collective>> comms = NewThreadCollectives(world);
      std::vector<std::thread> threads;
      threads.reserve(comms.size());
      for (const std::unique_ptr<Collective>& comm : comms) {
        threads.emplace_back([&spec, &comm] { ExpectLossesBySource(spec, *comm); });
      }
      for (std::thread& thread : threads) {
        thread.join();
      }
    }
  }
}

TEST(Trainer, Step_NoSampleOfASource_SaysNothingAboutItsLoss) {
  TempDir dir;
  const v1::JobSpec spec = MixtureJob(dir.path(), 15);
  const std::unique_ptr<Collective> comm = NewSoloCollective();
  const std::unique_ptr<TestRank> rank = MakeRank(spec, *comm);
  int with = 0;
  for (int64_t step = 0; step < 8; ++step) {
    bool drawn = false;
    for (int64_t sample = 8 * step; sample < 8 * (step + 1); ++sample) {
      drawn = drawn || rank->train->Locate(sample).source == 1;
    }
    const absl::StatusOr<StepResult> result = rank->trainer->Step({});
    ASSERT_TRUE(result.ok()) << result.status().ToString();
    const v1::SourceReport& rare = result->report.sources(1);
    EXPECT_EQ(rare.has_loss(), drawn) << step;
    EXPECT_EQ(rare.passes(), rank->train->PassesOf(1, 8 * (step + 1)));
    EXPECT_TRUE(result->report.sources(0).has_loss());
    with += drawn ? 1 : 0;
  }
  EXPECT_NEAR(with, 4, 1) << "64 samples have about 4 of it, spread evenly";
}

TEST(Trainer, Step_OneSource_IsNotListed) {
  TempDir dir;
  const std::unique_ptr<Collective> comm = NewSoloCollective();
  const std::unique_ptr<TestRank> rank = MakeRank(SmallJob(dir.path()), *comm);
  const absl::StatusOr<StepResult> result = rank->trainer->Step({});
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_TRUE(result->report.sources().empty());
}

// Micro-batches differ in how many of their targets count; the mean is over those of the whole
// global batch all the same.
TEST(Trainer, Step_PackedDocuments_RanksAndMicroBatchesGiveOneCurve) {
  TempDir dir;
  v1::JobSpec spec = DocumentJob(dir.path());
  const Curve one = LearningCurve(spec);
  ExpectOneCurve(spec, {2, 3, 4}, one);
  ExpectOneCurveOfMicroBatches(spec, {1, 8}, one);
}

TEST(Trainer, Step_Chats_RanksAndMicroBatchesGiveOneCurve) {
  TempDir dir;
  v1::JobSpec spec = ChatJob(dir.path());
  const Curve one = LearningCurve(spec);
  ExpectOneCurve(spec, {3}, one);
  ExpectOneCurveOfMicroBatches(spec, {8}, one);
  spec.set_task("pretrain");
  EXPECT_NE(Train(spec, 1).losses[0], one.losses[0]) << "all tokens count";
}

// The weights after some steps.
std::vector<float> TrainedWeights(const v1::JobSpec& spec) {
  const std::unique_ptr<Collective> comm = NewSoloCollective();
  const std::unique_ptr<TestRank> rank = MakeRank(spec, *comm);
  for (int i = 0; i < 6; ++i) {
    EXPECT_TRUE(rank->trainer->Step({}).ok());
  }
  return rank->Weights();
}

TEST(Trainer, Step_TokensThatNoAnswerFollows_ChangeNoBit) {
  TempDir one;
  TempDir two;
  v1::JobSpec spec = ChatJob(one.path(), "qwen3", 0);
  v1::JobSpec other = ChatJob(two.path(), "qwen3", 11);
  for (const char* recipe : {"fp32", "bf16"}) {
    spec.set_task("sft");
    other.set_task("sft");
    spec.mutable_precision()->set_recipe(recipe);
    other.mutable_precision()->set_recipe(recipe);
    EXPECT_EQ(TrainedWeights(spec), TrainedWeights(other)) << recipe;
    spec.set_task("pretrain");
    other.set_task("pretrain");
    EXPECT_NE(TrainedWeights(spec), TrainedWeights(other)) << recipe;
  }
}

// A sample has a document less than it may have, so that slots stay empty, but one.
TEST(StageRandomBatch, Documents_KeepWithinTheirBound) {
  TempDir dir;
  const std::unique_ptr<Collective> comm = NewSoloCollective();
  const std::unique_ptr<TestRank> rank = MakeRank(DocumentJob(dir.path()), *comm);
  const Engine& engine = *rank->engine;
  const int64_t sequence = engine.model_rows() / engine.options().micro_batch;
  for (const auto& [each, want] : {std::pair<int64_t, int64_t>{1, 1}, {2, 1}, {4, 3}}) {
    StageRandomBatch(engine, each * engine.options().micro_batch);
    const BatchBuffers batch = engine.StagedBatch(0);
    int64_t documents = 0;
    for (int64_t row = 0; row < engine.model_rows(); ++row) {
      documents += batch.start[row] == row % sequence ? 1 : 0;
      EXPECT_EQ(batch.start[row] + batch.position[row], row % sequence);
    }
    EXPECT_EQ(documents, want * engine.options().micro_batch) << each;
  }
}

TEST(Trainer, Step_PackingAndAttention_EachChangesTheCurve) {
  TempDir dir;
  v1::JobSpec spec = DocumentJob(dir.path(), "gpt2");
  spec.mutable_train()->set_steps(3);
  std::set<double> losses;
  for (const char* packing : {"concat", "best_fit"}) {
    for (const char* attention : {"causal", "document"}) {
      spec.mutable_data()->set_packing(packing);
      spec.mutable_data()->set_attention(attention);
      losses.insert(Train(spec, 1).losses.back());
    }
  }
  EXPECT_EQ(losses.size(), 4U);
}

TEST(Trainer, Step_SameJobTwice_GivesTheSameBits) {
  TempDir dir;
  v1::JobSpec spec = SmallJob(dir.path(), "qwen3");
  spec.mutable_model()->set_dropout(0.1);
  spec.mutable_train()->set_steps(10);
  EXPECT_EQ(Train(spec, 2).losses, Train(spec, 2).losses);
}

TEST(Trainer, Step_Bf16_LearnsLikeFp32) {
  TempDir dir;
  v1::JobSpec spec = SmallJob(dir.path(), "qwen2");
  const Curve fp32 = Train(spec, 1);
  spec.mutable_precision()->set_recipe("bf16");
  const Curve bf16 = Train(spec, 1);
  EXPECT_NE(fp32.losses[0], bf16.losses[0]);
  EXPECT_NEAR(fp32.losses[0] / bf16.losses[0], 1.0, 1e-2);
  EXPECT_NEAR(fp32.losses.back() / bf16.losses.back(), 1.0, 0.1);
  spec.mutable_gradients()->set_dtype("bf16");
  spec.mutable_gradients()->set_reduce_dtype("bf16");
  const Curve gradients = Train(spec, 2);
  EXPECT_NE(gradients.losses.back(), bf16.losses.back());
  EXPECT_NEAR(gradients.losses.back() / bf16.losses.back(), 1.0, 0.1);
}

class Fp8Test : public testing::TestWithParam<std::tuple<std::string, std::string>> {};

TEST_P(Fp8Test, Step_LearnsLikeBf16_AndQuantisesWeightsOnceAStep) {
  const auto& [recipe, head] = GetParam();
  TempDir dir;
  v1::JobSpec bf16 = Fp8Job(dir.path(), "bf16");
  v1::JobSpec fp8 = Fp8Job(dir.path(), recipe);
  fp8.mutable_precision()->set_lm_head(head);
  bf16.mutable_train()->set_steps(40);
  const std::vector<double> want = Train(bf16, 1).losses;
  const std::unique_ptr<Collective> comm = NewSoloCollective();
  const std::unique_ptr<TestRank> rank = MakeRank(fp8, *comm);
  double loss = 0;
  uint64_t counted = 0;
  int64_t quantised_steps = 0;
  for (int i = 0; i < 40; ++i) {
    const absl::StatusOr<StepResult> result = rank->trainer->Step({});
    ASSERT_TRUE(result.ok()) << result.status().ToString();
    ASSERT_EQ(result->verdict, Verdict::kGood);
    EXPECT_EQ(result->format.own(), i >= fp8.precision().warmup_steps());
    quantised_steps += rank->trainer->Format(result->step + 1).own() ? 1 : 0;
    loss = result->facts.loss;
    counted = result->report.weight_quantizations();
  }
  EXPECT_LT(want.back(), 0.7 * want.front()) << "the job learns nothing";
  EXPECT_NEAR(loss, want.back(), 0.05 * want.back());
  // Four micro-batches a step: once a tensor and step all the same.
  ASSERT_EQ(rank->batch.CountForRank(0), 4);
  const int64_t tensors = 2 * 4 + (head == "fp8" ? 1 : 0);
  EXPECT_EQ(counted, static_cast<uint64_t>(quantised_steps * tensors));
}

TEST_P(Fp8Test, Step_TwoRanks_GiveTheCurveOfOne) {
  const auto& [recipe, head] = GetParam();
  TempDir dir;
  v1::JobSpec spec = Fp8Job(dir.path(), recipe);
  spec.mutable_precision()->set_lm_head(head);
  spec.mutable_train()->set_steps(12);
  const std::vector<double> one = Train(spec, 1).losses;
  const std::vector<double> two = Train(spec, 2).losses;
  ASSERT_EQ(one.size(), two.size());
  for (size_t i = 0; i < one.size(); ++i) {
    // The order of the gradient's sums differs, and rounding to FP8 widens that.
    EXPECT_NEAR(two[i], one[i], 2e-2 * one[i]) << i;
  }
}

// The curve of the job, which is the same at every recomputation level.
Curve ExpectSameAtEveryLevel(v1::JobSpec spec) {
  const Curve want = Train(spec, 1);
  for (const char* level : {"norm_act", "ffn", "attention", "block"}) {
    spec.set_recompute(level);
    const Curve got = Train(spec, 1);
    EXPECT_EQ(got.losses, want.losses) << level;
    EXPECT_EQ(got.grad_norms, want.grad_norms) << level;
    EXPECT_EQ(got.validation, want.validation) << level;
  }
  return want;
}

TEST_P(Fp8Test, Step_EveryRecomputationLevel_GivesTheSameBits) {
  const auto& [recipe, head] = GetParam();
  TempDir dir;
  v1::JobSpec spec = Fp8Job(dir.path(), recipe);
  spec.mutable_precision()->set_lm_head(head);
  spec.mutable_train()->set_steps(6);
  ExpectSameAtEveryLevel(spec);
}

// One layer of three is quantised, the others keep what BF16 needs; of two kinds of models.
TEST_P(Fp8Test, Step_NarrowActivationsOrNot_EveryLevelGivesTheSameBits) {
  const auto& [recipe, head] = GetParam();
  TempDir dir;
  for (const char* family : {"llama", "gpt2"}) {
    std::vector<double> narrow_norms;
    for (const bool narrow : {true, false}) {
      SCOPED_TRACE(std::string(family) + (narrow ? " narrow" : " wide"));
      v1::JobSpec spec = Fp8Job(dir.path(), recipe, family);
      spec.mutable_model()->set_layers(3);
      v1::PrecisionSpec& precision = *spec.mutable_precision();
      precision.set_lm_head(head);
      precision.mutable_high_precision_layers()->set_first(1);
      precision.mutable_high_precision_layers()->set_last(1);
      precision.set_narrow_activations(narrow);
      spec.mutable_train()->set_steps(6);
      const Curve want = ExpectSameAtEveryLevel(spec);
      EXPECT_NE(want.grad_norms, narrow_norms) << "the switch changes nothing";
      narrow_norms = want.grad_norms;
    }
  }
}

TEST_P(Fp8Test, Step_TailAndHighPrecisionLayers_QuantiseWhatIsLeft) {
  const auto& [recipe, head] = GetParam();
  TempDir dir;
  v1::JobSpec spec = Fp8Job(dir.path(), recipe);
  spec.mutable_precision()->set_lm_head(head);
  spec.mutable_precision()->set_bf16_tail(0.4);
  spec.mutable_precision()->mutable_high_precision_layers()->set_last(1);
  spec.mutable_train()->set_steps(10);
  const std::unique_ptr<Collective> comm = NewSoloCollective();
  const std::unique_ptr<TestRank> rank = MakeRank(spec, *comm);
  const int64_t tensors = 4 + (head == "fp8" ? 1 : 0);  // of one layer, and the head
  uint64_t want = 0;
  for (int step = 1; step <= 10; ++step) {
    const absl::StatusOr<StepResult> result = rank->trainer->Step({});
    ASSERT_TRUE(result.ok()) << result.status().ToString();
    EXPECT_EQ(result->format.own(), step > spec.precision().warmup_steps() && step <= 6) << step;
    want += rank->trainer->Format(step + 1).own() ? static_cast<uint64_t>(tensors) : 0;
    EXPECT_EQ(result->report.weight_quantizations(), want) << step;
    const absl::StatusOr<double> validation = rank->trainer->Evaluate();
    ASSERT_TRUE(validation.ok()) << validation.status().ToString();
    EXPECT_TRUE(std::isfinite(*validation));
  }
}

INSTANTIATE_TEST_SUITE_P(Recipes,
                         Fp8Test,
                         testing::Combine(testing::ValuesIn(TensorScaledRecipes()),
                                          testing::Values("bf16", "fp8")));

TEST(Trainer, Step_LearningRate_FollowsTheSchedule) {
  TempDir dir;
  v1::JobSpec spec = SmallJob(dir.path());
  spec.mutable_optimizer()->set_lr(3e-4);
  spec.mutable_schedule()->set_warmup_steps(20);
  const std::unique_ptr<Collective> comm = NewSoloCollective();
  const std::unique_ptr<TestRank> rank = MakeRank(spec, *comm);
  for (int step = 1; step <= 12; ++step) {
    const absl::StatusOr<StepResult> result = rank->trainer->Step({});
    ASSERT_TRUE(result.ok());
    EXPECT_DOUBLE_EQ(result->report.learning_rate(), 3e-4 * step / 20);
    EXPECT_EQ(result->step, step);
    EXPECT_EQ(result->report.tokens(), step * 128);
  }
}

TEST(Trainer, Step_NonFiniteWeight_LeavesWeightsAndStepAlone) {
  TempDir dir;
  const v1::JobSpec spec = SmallJob(dir.path());
  const std::unique_ptr<Collective> comm = NewSoloCollective();
  const std::unique_ptr<TestRank> rank = MakeRank(spec, *comm);
  ASSERT_TRUE(rank->trainer->Step({}).ok());
  rank->engine->parameters().weight(3).as<float>()[1] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> before = rank->Weights();
  const absl::StatusOr<StepResult> result = rank->trainer->Step({});
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->verdict, Verdict::kNonFinite);
  EXPECT_EQ(rank->trainer->step(), 1);
  const std::vector<float> after = rank->Weights();
  EXPECT_EQ(std::memcmp(before.data(), after.data(), before.size() * sizeof(float)), 0);
}

TEST(Trainer, Step_OneRankAsksToStop_AllRanksHear) {
  TempDir dir;
  const v1::JobSpec spec = SmallJob(dir.path());
  std::vector<std::unique_ptr<Collective>> comms = NewThreadCollectives(2);
  std::vector<StepResult> results(2);
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      const std::unique_ptr<TestRank> rank = MakeRank(spec, *comms[static_cast<size_t>(r)]);
      ControlRequests asked;
      asked.stop = r == 1;
      asked.save = r == 0;
      results[static_cast<size_t>(r)] = *rank->trainer->Step(asked);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const StepResult& result : results) {
    EXPECT_TRUE(result.control.stop);
    EXPECT_TRUE(result.control.save);
    EXPECT_FALSE(result.control.pause);
  }
}

TEST(Engine, ResolveMicroBatch_Auto_TakesTheLargestThatFitsAndDivides) {
  TempDir dir;
  v1::JobSpec spec = SmallJob(dir.path());
  spec.mutable_batch()->set_micro_batch_size(0);
  EXPECT_EQ(*spec::ResolveMicroBatch(spec, 1, 1, int64_t{1} << 30), 8);
  EXPECT_EQ(*spec::ResolveMicroBatch(spec, 2, 1, int64_t{1} << 30), 4);
  const auto inputs = spec::MakePlanInputs(spec, 2, 1, true);
  ASSERT_TRUE(inputs.ok());
  const int64_t two = spec::PlanTraining((*inputs)->options)->arena_bytes();
  EXPECT_EQ(*spec::ResolveMicroBatch(spec, 1, 1, two), 2);
  const absl::Status none = spec::ResolveMicroBatch(spec, 1, 1, 1000).status();
  EXPECT_EQ(none.code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace hearth::trainer
