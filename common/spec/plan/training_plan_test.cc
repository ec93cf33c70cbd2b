#include "common/spec/plan/training_plan.h"

#include <string>
#include <utility>
#include <vector>

#include "common/base/table_rows.h"
#include "common/base/units.h"
#include "common/spec/plan/blocks/block.h"
#include "common/spec/plan/blocks/block_plan.h"
#include "common/spec/plan/gradient_buckets.h"
#include "common/spec/plan/offload.h"
#include "common/spec/plan/parameter_table.h"
#include "common/spec/plan/plan_inputs.h"
#include "common/spec/plan/weight_units.h"
#include "common/spec/resolve/resolve.h"
#include "gtest/gtest.h"
#include "tests/support/common/small_llama.h"

namespace hearth::spec {
namespace {

constexpr ShardLevel kOff = ShardLevel::kOff;
constexpr ShardLevel kOptimizer = ShardLevel::kOptimizer;
constexpr ShardLevel kGradients = ShardLevel::kGradients;
constexpr ShardLevel kWeights = ShardLevel::kWeights;

class TrainingPlanTest : public testing::Test {
 protected:
  TrainingPlanTest() {
    options_.shape = *ResolveModelShape(SmallLlama(6, "none", true), 64);
    options_.recipe = FindRecipe("bf16");
    table_ =
        BuildParameterTable(options_.shape, options_.recipe->parameters, FindOptimizer("adamw"));
    options_.table = &table_;
    options_.micro_batch = 4;
    options_.sequence_length = 64;
  }
  MemoryPlan Plan() { return *PlanTraining(options_); }

  std::vector<Parameter> table_;
  TrainingPlanOptions options_;
};

TEST_F(TrainingPlanTest, PlanTraining_PersistentBuffers_HaveTheSizesOfTheTable) {
  const MemoryPlan plan = Plan();
  const int64_t elements = TensorOffsets(table_).back();
  EXPECT_EQ((*plan.Find("parameters"))->bytes, 4 * elements);
  EXPECT_EQ((*plan.Find("masters"))->bytes, 4 * elements);
  EXPECT_EQ((*plan.Find("gradients"))->bytes, 4 * elements);
  EXPECT_EQ(plan.ClassBytes(BufferClass::kOptimizer), 8 * elements);
  options_.wide_bytes = 0;
  EXPECT_EQ((*Plan().Find("parameters"))->bytes, 2 * elements) << "real bf16 storage";
}

TEST_F(TrainingPlanTest, PlanTraining_HigherLevels_NeedNoMoreMemory) {
  int64_t before = Plan().arena_bytes();
  for (int level = 1; level < kRecomputeCount; ++level) {
    options_.recompute = static_cast<Recompute>(level);
    const int64_t bytes = Plan().arena_bytes();
    EXPECT_LT(bytes, before) << RecomputeName(options_.recompute);
    before = bytes;
  }
  options_.training = false;
  EXPECT_LT(Plan().arena_bytes(), before / 2);
}

TEST_F(TrainingPlanTest, PlanTraining_GradientBuffers_ShareBytesWithDeadActivations) {
  const MemoryPlan plan = Plan();
  int64_t sum = 0;
  for (const PlannedBuffer& buffer : plan.buffers()) {
    sum += buffer.bytes;
  }
  EXPECT_LT(plan.arena_bytes(), sum);
}

TEST_F(TrainingPlanTest, PlanTraining_Handles_AreOfTheBuffersOfTheirLayer) {
  const TrainingPlan plan = *PlanTraining(options_);
  ASSERT_EQ(plan.ids.layers.size(), 6U);
  const LayerBuffers& layer = plan.ids.layers[3];
  EXPECT_EQ(plan.At(layer.ffn.projected).name, "layers.3.ffn.projected");
  EXPECT_EQ(plan.At(layer.ffn.projected).shape, (std::vector<int64_t>{256, 320}));
  EXPECT_EQ(plan.At(layer.attention.lse).shape, (std::vector<int64_t>{4, 4, 64}));
  EXPECT_FALSE(layer.attention.rotated.exists()) << "no QK-norm";
  EXPECT_FALSE(plan.ids.gradients.delta.exists()) << "no dropout";
  EXPECT_TRUE(plan.ids.staging.empty()) << "the CPU";
}

TEST_F(TrainingPlanTest, PlanTraining_WhatBackwardMakesAgain_IsSharedOrLiesInItsGradient) {
  options_.recompute = Recompute::kNormAct;
  const TrainingPlan plan = *PlanTraining(options_);
  for (const LayerBuffers& layer : plan.ids.layers) {
    EXPECT_EQ(plan.At(layer.attention.norm).name, "shared.mixer.norm");
    EXPECT_EQ(layer.ffn.norm.index, plan.ids.gradients.norm.index);
    EXPECT_EQ(layer.ffn.activated.index, plan.ids.gradients.ffn.activated.index);
  }
}

TEST_F(TrainingPlanTest, TensorOffsets_EachTensor_StartsAligned) {
  const std::vector<int64_t> offsets = TensorOffsets(table_);
  ASSERT_EQ(offsets.size(), table_.size() + 1);
  for (size_t i = 0; i < table_.size(); ++i) {
    EXPECT_EQ(offsets[i] % kTensorAlignElements, 0);
    EXPECT_GE(offsets[i + 1], offsets[i] + table_[i].elements());
  }
}

TEST_F(TrainingPlanTest, PlanTraining_Sharded_MastersAndStateTakeTheirPart) {
  options_.world_size = options_.shards = 4;
  const int64_t elements = TensorOffsets(table_, 4).back();
  MemoryPlan plan = Plan();
  EXPECT_EQ((*plan.Find("parameters"))->bytes, 4 * elements);
  EXPECT_EQ((*plan.Find("gradients"))->bytes, 4 * elements);
  EXPECT_EQ((*plan.Find("masters"))->bytes, elements);
  EXPECT_EQ(plan.ClassBytes(BufferClass::kOptimizer), 2 * elements);
  options_.shards = 2;
  EXPECT_EQ(PlanTraining(options_).status().code(), absl::StatusCode::kInvalidArgument);
}

// A rank has its part of the sums, and slots as large as the largest of their buckets.
TEST_F(TrainingPlanTest, PlanTraining_DividedGradients_TakeTheirPartAndAFewSlots) {
  options_.world_size = options_.shards = 4;
  options_.divide_gradients = true;
  const TrainingPlan plan = *PlanTraining(options_);
  EXPECT_EQ((*plan.Find("gradients"))->bytes, TensorOffsets(table_, 4).back());
  const std::vector<GradientBucket> buckets = PlanBuckets(options_);
  ASSERT_EQ(buckets.size(), 14U) << "each block by itself";
  // The tied embedding's, which is written from the head on, and two for the blocks.
  const std::vector<GradientSlot> slots = SlotsOf(buckets);
  ASSERT_EQ(slots.size(), 3U);
  int64_t bytes = (*plan.Find("gradients"))->bytes;
  for (size_t s = 0; s < slots.size(); ++s) {
    const PlannedBuffer& slot = **plan.Find("gradients.slot." + std::to_string(s));
    EXPECT_EQ(slot.bytes, 4 * slots[s].elements);
    EXPECT_EQ(slot.first_use, slots[s].begins);
    bytes += slot.bytes;
  }
  EXPECT_EQ(plan.ClassBytes(BufferClass::kGradients), bytes);
  EXPECT_LT(bytes, 4 * TensorOffsets(table_).back());
  // A size that is asked for is kept.
  options_.bucket_bytes = int64_t{1} << 30;
  EXPECT_EQ(PlanBuckets(options_).size(), 2U) << "the embedding is apart";
  options_.shards = 1;
  EXPECT_EQ(PlanTraining(options_).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(TrainingPlanTest, PlanTraining_CodedGradients_TakeAByteAndASlot) {
  options_.coded = true;
  const int64_t elements = TensorOffsets(table_).back();
  MemoryPlan plan = Plan();
  EXPECT_FALSE(plan.Find("gradients").ok());
  EXPECT_EQ((*plan.Find("gradients.codes"))->bytes, elements);
  EXPECT_EQ((*plan.Find("gradients.codes.scales"))->bytes, elements / formats::kReduceBlock);
  EXPECT_EQ(SlotsOf(PlanBuckets(options_)).size(), 2U);
  options_.world_size = options_.shards = 4;
  plan = Plan();
  EXPECT_EQ((*plan.Find("gradients.codes"))->bytes, TensorOffsets(table_, 4).back() / 4);
  options_.fused = true;
  EXPECT_EQ(PlanTraining(options_).status().code(), absl::StatusCode::kInvalidArgument);
}

// Nothing keeps gradients: alone a rank has one slot, and one for a tied embedding.
TEST_F(TrainingPlanTest, PlanTraining_FusedUpdates_HaveSlotsAlone) {
  options_.fused = true;
  options_.bucket_bytes = int64_t{25} << 20;  // of the exchange, which a single rank lacks
  const TrainingPlan plan = *PlanTraining(options_);
  EXPECT_FALSE(plan.Find("gradients").ok());
  EXPECT_TRUE(plan.ids.store.gradients.empty());
  const std::vector<GradientBucket> buckets = PlanBuckets(options_);
  ASSERT_EQ(buckets.size(), 14U) << "each block by itself";
  const std::vector<GradientSlot> slots = SlotsOf(buckets);
  ASSERT_EQ(slots.size(), 2U);
  int64_t bytes = 0;
  for (size_t s = 0; s < slots.size(); ++s) {
    bytes += (*plan.Find("gradients.slot." + std::to_string(s)))->bytes;
  }
  EXPECT_EQ(plan.ClassBytes(BufferClass::kGradients), bytes);
  // With peers another one, as the bucket before may still be summed.
  options_.bucket_bytes = 0;
  options_.world_size = 4;
  for (const int shards : {1, 4}) {
    options_.shards = shards;
    EXPECT_EQ(SlotsOf(PlanBuckets(options_)).size(), 3U);
    EXPECT_FALSE(Plan().Find("gradients").ok());
  }
  // Divided gradients have sums that nobody needs here.
  options_.divide_gradients = true;
  EXPECT_FALSE(Plan().Find("gradients").ok());
  options_.training = false;
  EXPECT_EQ(PlanTraining(options_).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(TrainingPlanTest, PlanTraining_DividedWeights_TakeTheirPartAndASlotForEachNeighbour) {
  options_.world_size = options_.shards = 4;
  options_.divide_gradients = options_.divide_weights = true;
  const TrainingPlan plan = *PlanTraining(options_);
  EXPECT_EQ((*plan.Find("parameters"))->bytes, TensorOffsets(table_, 4).back());
  const WeightUnits units = PlanWeightUnits(options_);
  ASSERT_EQ(units.slots.size(), 3U);
  int64_t bytes = (*plan.Find("parameters"))->bytes;
  for (size_t s = 0; s < units.slots.size(); ++s) {
    const PlannedBuffer& slot = **plan.Find("parameters.slot." + std::to_string(s));
    EXPECT_EQ(slot.bytes, 4 * units.slots[s].elements);
    EXPECT_EQ(slot.first_use, units.slots[s].begins);
    EXPECT_EQ(slot.last_use, units.slots[s].ends);
    bytes += slot.bytes;
  }
  EXPECT_EQ(plan.ClassBytes(BufferClass::kParameters), bytes);
  options_.divide_gradients = false;
  EXPECT_EQ(PlanTraining(options_).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(TrainingPlanTest, PlanTraining_OtherFormatOnTheWay_StagesTheLargestBucket) {
  options_.wide_bytes = 0;
  options_.world_size = 2;
  options_.bucket_bytes = 1 << 16;
  EXPECT_FALSE(Plan().Find("comm.staging").ok()) << "reduced as they accumulate";
  options_.reduce = &formats::kReduceFormats[1];
  int64_t largest = 0;
  for (const GradientBucket& bucket : PlanBuckets(options_)) {
    largest = std::max(largest, bucket.elements());
  }
  EXPECT_GT(PlanBuckets(options_).size(), 2U);
  EXPECT_EQ((*Plan().Find("comm.staging"))->bytes, 2 * largest);
  options_.wide_bytes = 4;
  EXPECT_FALSE(Plan().Find("comm.staging").ok()) << "rounded in place on the CPU";
  options_.wide_bytes = 0;
  options_.world_size = 1;
  EXPECT_FALSE(Plan().Find("comm.staging").ok());
}

TEST_F(TrainingPlanTest, PlanTraining_InBlocks_HoldsPartsAsSentAndReceivedAndTheSums) {
  options_.reduce = FindRow(formats::kReduceFormats, &formats::ReduceFormatRow::name, "fp8");
  ASSERT_NE(options_.reduce, nullptr);
  options_.world_size = 3;
  options_.bucket_bytes = 1 << 16;
  for (const int wide : {4, 0}) {
    options_.wide_bytes = wide;
    for (const int shards : {1, 3}) {
      options_.shards = shards;
      const MemoryPlan plan = Plan();
      int64_t largest = 0;
      for (const GradientBucket& bucket : PlanBuckets(options_)) {
        largest = std::max(largest, bucket.elements());
      }
      // Three parts of whole blocks; divided ones are so already.
      const int64_t parts = (largest + 383) / 384 * 384;
      EXPECT_TRUE(parts == largest || shards == 1);
      for (const char* name : {"comm.sent", "comm.received"}) {
        EXPECT_EQ((*plan.Find(name))->bytes, parts);
        EXPECT_EQ((*plan.Find(std::string(name) + ".scales"))->bytes, parts / 128);
      }
      if (shards == 1) {
        EXPECT_EQ((*plan.Find("comm.staging"))->bytes, (wide > 0 ? 4 : 2) * parts);
      } else {
        EXPECT_FALSE(plan.Find("comm.staging").ok()) << "each rank keeps its own sums";
      }
    }
  }
  options_.world_size = options_.shards = 1;
  EXPECT_FALSE(Plan().Find("comm.sent").ok());
}

TEST_F(TrainingPlanTest, PlanTraining_SeveralFormats_HaveABufferEach) {
  const auto matrix = [](const Parameter& p) { return p.group == ParameterGroup::kMatrix; };
  int64_t matrices = 0;
  for (Parameter& p : table_) {
    p.gradient = matrix(p) ? DType::kBF16 : DType::kF32;
    p.states = {{"exp_avg", matrix(p) ? DType::kBF16 : DType::kF32}, {"exp_avg_sq", DType::kF32}};
    matrices += matrix(p) ? p.elements() : 0;
  }
  const int64_t others = TensorOffsets(table_).back() - matrices;
  ASSERT_EQ(matrices % kTensorAlignElements, 0) << "no gaps between matrices";
  for (const int wide : {4, 0}) {
    options_.wide_bytes = wide;
    const TrainingPlan plan = *PlanTraining(options_);
    EXPECT_EQ((*plan.Find("gradients"))->bytes, 4 * others);
    EXPECT_EQ((*plan.Find("gradients.bf16"))->bytes, (wide > 0 ? 4 : 2) * matrices);
    EXPECT_EQ((*plan.Find("optimizer.exp_avg"))->bytes, 4 * others);
    EXPECT_EQ((*plan.Find("optimizer.exp_avg.bf16"))->bytes, 2 * matrices) << "on a CPU too";
    EXPECT_EQ((*plan.Find("optimizer.exp_avg_sq"))->bytes, 4 * (others + matrices));
    EXPECT_EQ(plan.ids.store.gradients.size(), 2U);
    EXPECT_EQ(plan.ids.store.states.size(), 3U);
  }
  // What is accumulated in the format of the way needs no room there.
  options_.world_size = 2;
  options_.bucket_bytes = 1 << 16;
  options_.reduce = &formats::kReduceFormats[1];
  int64_t largest = 0;
  for (const GradientBucket& bucket : PlanBuckets(options_)) {
    largest = std::max(largest, bucket.format == DType::kF32 ? bucket.elements() : 0);
  }
  EXPECT_EQ((*Plan().Find("comm.staging"))->bytes, 2 * largest);
}

// What is said of each level that the job could name, on four ranks with `memory` bytes.
void ExpectLevels(v1::JobSpec job, int64_t memory) {
  const auto bytes = [&job](const ShardRow& row) {
    const auto inputs = MakePlanInputs(job, 4, 1, true, 4, row.level);
    return FormatBytes(PlanTraining((*inputs)->options)->arena_bytes());
  };
  for (const ShardRow& row : ShardRows()) {
    const std::string name(row.name);
    const std::string text = *DescribeSharding(job, 4, 1, 4, row.level);
    EXPECT_EQ(text.find("parallel.shard: " + name + " (" + std::string(row.divides) +
                        "): " + bytes(row) + " on each of 4 ranks; "),
              0U)
        << text;
    for (const ShardRow& other : ShardRows()) {
      const std::string its = " " + std::string(other.name) + " " + bytes(other);
      EXPECT_EQ(text.find(its) != std::string::npos, &other != &row) << text;
    }
    job.mutable_parallel()->set_shard(name);
    EXPECT_EQ(*ResolveShardLevel(job, 4, 1, memory, 4), row.level);
    EXPECT_EQ(*ResolveShardLevel(job, 1, 1, memory, 4), kOff);
  }
}

// What jobs of a preset need on a GPU, in MiB: of masters and optimizer state, whole and divided.
// Operands of other widths than a byte: a fallback and an output projection in two bytes.
TEST_F(TrainingPlanTest, FormsOfAnyWidth_FitIntoTheirBuffers) {
  Recipe wide = *FindRecipe("fp8");
  for (Gemm* gemm : {&wide.fprop, &wide.dgrad, &wide.wgrad}) {
    gemm->a.dtype = gemm->b.dtype = DType::kBF16;
  }
  const Parameter& weight =
      table_[static_cast<size_t>(FindParameter(table_, Slot::kFfnDown, 0))];  // [64, 160]
  options_.precision.fallback = FindRecipe("fp8");
  const FallbackLayout narrow = LayoutFallback(options_, weight);
  EXPECT_EQ(narrow.b, 256 * 160) << "a multiple of 256";
  EXPECT_EQ(narrow.bytes, narrow.b + int64_t{256} * 160);
  options_.precision.fallback = &wide;
  EXPECT_EQ(LayoutFallback(options_, weight).b, 2 * narrow.b);
  EXPECT_EQ(LayoutFallback(options_, weight).bytes, 2 * narrow.bytes);

  options_.precision = PrecisionPlan();
  options_.precision.layers.assign(6, true);
  options_.precision.head = true;
  const std::pair<const Recipe*, int> rows[] = {{FindRecipe("fp8"), 1}, {&wide, 2}};
  for (const auto& [recipe, bytes] : rows) {
    options_.precision.recipe = recipe;
    const MemoryPlan plan = Plan();
    EXPECT_EQ((*plan.Find("head.rows"))->bytes, bytes * 256 * 64);
    EXPECT_EQ((*plan.Find("head.columns"))->bytes, bytes * 256 * 64);
  }
}

TEST_F(TrainingPlanTest, RecomputeNames_AreThoseOfTheLevels) {
  const std::vector<std::string_view> names = RecomputeNames();
  ASSERT_EQ(names.size(), static_cast<size_t>(kRecomputeCount));
  for (const std::string_view name : names) {
    Recompute level = Recompute::kNone;
    ASSERT_TRUE(ParseRecompute(name, level)) << name;
    EXPECT_EQ(RecomputeName(level), name);
  }
}

TEST(ShardedMemory, Presets_FourRanks_NeedAQuarterOfTheState) {
  struct Row {
    const char* preset;
    const char* recipe;
    int64_t whole_mib, sharded_mib;
  };
  const Row rows[] = {{"hearth-112m", "bf16", 1292, 323},
                      {"hearth-1.5b", "bf16", 17798, 4449},
                      {"hearth-1.5b", "fp8", 17798, 4449}};
  for (const Row& row : rows) {
    v1::JobSpec job;
    job.set_name("plan");
    job.mutable_model()->set_preset(row.preset);
    job.mutable_model()->set_vocab(50304);
    job.mutable_data()->add_train()->set_path("x");
    job.mutable_data()->set_sequence_length(2048);
    job.mutable_batch()->set_micro_batch_size(4);
    job.mutable_precision()->set_recipe(row.recipe);
    job.mutable_train()->set_steps(10);
    job.mutable_resources()->set_device("cuda");
    job.mutable_resources()->set_workers(4);
    std::vector<FieldViolation> violations;
    Resolve(job, violations);
    ASSERT_TRUE(violations.empty()) << ViolationsToStatus(violations);
    const auto state_mib = [&job](ShardLevel shard) {
      const auto inputs = MakePlanInputs(job, 4, 1, true, 4, shard);
      const MemoryPlan plan = *PlanTraining((*inputs)->options);
      return (plan.ClassBytes(BufferClass::kMasters) + plan.ClassBytes(BufferClass::kOptimizer)) >>
             20;
    };
    EXPECT_EQ(state_mib(kOff), row.whole_mib) << row.preset << " " << row.recipe;
    EXPECT_EQ(state_mib(kOptimizer), row.sharded_mib) << row.preset << " " << row.recipe;
    EXPECT_EQ(state_mib(kGradients), row.sharded_mib) << row.preset << " " << row.recipe;
    EXPECT_EQ(state_mib(kWeights), row.sharded_mib) << row.preset << " " << row.recipe;
    const auto bytes = [&job](ShardLevel shard, int64_t micro_batch = 4) {
      const auto inputs = MakePlanInputs(job, micro_batch, 1, true, 4, shard);
      return PlanTraining((*inputs)->options)->arena_bytes();
    };
    EXPECT_LT(bytes(kWeights), bytes(kGradients));
    EXPECT_LT(bytes(kGradients), bytes(kOptimizer));
    EXPECT_LT(bytes(kOptimizer), bytes(kOff));
    EXPECT_EQ(*ResolveShardLevel(job, 4, 1, bytes(kOff), 4), kOff) << "fits whole";
    EXPECT_EQ(*ResolveShardLevel(job, 4, 1, bytes(kOff) - 1, 4), kOptimizer);
    EXPECT_EQ(*ResolveShardLevel(job, 4, 1, bytes(kOptimizer), 4), kOptimizer);
    EXPECT_EQ(*ResolveShardLevel(job, 4, 1, bytes(kOptimizer) - 1, 4), kGradients);
    EXPECT_EQ(*ResolveShardLevel(job, 4, 1, bytes(kGradients), 4), kGradients);
    EXPECT_EQ(*ResolveShardLevel(job, 4, 1, bytes(kGradients) - 1, 4), kWeights);
    EXPECT_EQ(*ResolveShardLevel(job, 4, 1, bytes(kWeights), 4), kWeights);
    EXPECT_EQ(*ResolveShardLevel(job, 4, 1, bytes(kWeights) - 1, 4), kOff) << "fits in no way";
    EXPECT_EQ(*ResolveShardLevel(job, 1, 1, 1000, 4), kOff);
    EXPECT_EQ(*DescribeSharding(job, 1, 1, 4, kOff), "");
    ExpectLevels(job, bytes(kOptimizer));
    // With the micro-batch open, dividing is for a run that fits at no size.
    job.mutable_parallel()->set_shard("auto");
    job.mutable_batch()->set_micro_batch_size(0);
    EXPECT_EQ(*ResolveShardLevel(job, 4, 1, bytes(kOff, 1), 0), kOff);
    EXPECT_EQ(*ResolveShardLevel(job, 4, 1, bytes(kOff, 1) - 1, 0), kOptimizer);
    EXPECT_GE(*ResolveMicroBatch(job, 4, 1, bytes(kOptimizer), kOptimizer), 4);
  }
}

TEST(ResolveMicroBatch, RecipeNeedsSeveralSequences_TakesAsManyAndOnlyThose) {
  v1::JobSpec job;
  job.set_name("plan");
  job.mutable_model()->set_preset("hearth-nano");
  job.mutable_model()->set_vocab(256);
  job.mutable_data()->add_train()->set_path("x");
  job.mutable_data()->set_sequence_length(24);
  job.mutable_batch()->set_global_batch_tokens(int64_t{24} * 12);
  job.mutable_precision()->set_recipe("fp8");
  job.mutable_resources()->set_device("cpu");
  job.mutable_train()->set_steps(10);
  std::vector<FieldViolation> violations;
  Resolve(job, violations);
  ASSERT_TRUE(violations.empty()) << violations.front().description;
  ASSERT_EQ(FindRecipe("fp8")->extent_unit(), 16);
  ASSERT_FALSE(MakePlanInputs(job, 1, 1, true).ok());
  constexpr int64_t kPlenty = int64_t{1} << 40;
  EXPECT_EQ(*ResolveMicroBatch(job, 1, 1, kPlenty), 12);
  const int64_t two = PlanTraining((*MakePlanInputs(job, 2, 1, true))->options)->arena_bytes();
  EXPECT_EQ(*ResolveMicroBatch(job, 1, 1, two), 2);
  EXPECT_TRUE(absl::IsResourceExhausted(ResolveMicroBatch(job, 1, 1, two - 1).status()));
  // Sequences that no even number divides.
  job.mutable_batch()->set_global_batch_tokens(int64_t{24} * 3);
  EXPECT_NE(
      ResolveMicroBatch(job, 1, 1, kPlenty).status().message().find("a multiple of 16, not 24"),
      std::string::npos);
}

// What quantised jobs save on a GPU, though any step of them may have to run in BF16.
// Arena on a GPU, in micro-batches of `batch` sequences of 1024 tokens.
double QuantisedBytes(const char* preset, const char* recipe, int batch, bool narrow) {
  v1::JobSpec job;
  job.set_name("plan");
  job.mutable_model()->set_preset(preset);
  job.mutable_model()->set_vocab(50304);
  job.mutable_data()->add_train()->set_path("x");
  job.mutable_data()->set_sequence_length(1024);
  job.mutable_batch()->set_micro_batch_size(batch);
  job.mutable_precision()->set_recipe(recipe);
  job.mutable_precision()->set_narrow_activations(narrow);
  job.mutable_train()->set_steps(100);
  job.mutable_resources()->set_device("cuda");
  std::vector<FieldViolation> violations;
  Resolve(job, violations);
  EXPECT_TRUE(violations.empty()) << ViolationsToStatus(violations);
  const auto inputs = MakePlanInputs(job, batch, 1, true, 4);
  return static_cast<double>(PlanTraining((*inputs)->options)->arena_bytes());
}

// The smaller the share of activations, the less can be saved: 36 sequences fill a GPU,
// of 8 the weights and their state are the larger part.
TEST(QuantisedMemory, PresetsAt36And8SequencesOf1024_NeedLessThanInBf16) {
  struct Row {
    const char* preset;
    const char* recipe;
    int batch;
    double most;
  };
  for (const Row& row : {
           Row{"hearth-112m", "fp8", 36, 0.80},
           Row{"hearth-112m", "fp8_current", 36, 0.80},
           Row{"hearth-112m", "mxfp8", 36, 0.80},
           Row{"hearth-112m", "nvfp4", 36, 0.70},
           Row{"hearth-112m", "nvfp4_eden", 36, 0.70},
           Row{"gpt2-124m", "fp8", 36, 0.80},
           Row{"hearth-112m", "fp8", 8, 0.93},
           Row{"hearth-112m", "nvfp4", 8, 0.86},
       }) {
    SCOPED_TRACE(testing::Message() << row.preset << ", " << row.recipe << ", " << row.batch);
    const double plain = QuantisedBytes(row.preset, "bf16", row.batch, true);
    const double narrow = QuantisedBytes(row.preset, row.recipe, row.batch, true);
    EXPECT_LE(narrow / plain, row.most);
    EXPECT_LT(narrow, QuantisedBytes(row.preset, row.recipe, row.batch, false));
  }
}

// Bytes of scratch of hearth-112m on a GPU, in micro-batches of 36,864 tokens.
int64_t Scratch(const char* recipe,
                const char* head,
                int64_t vocab,
                bool training = true,
                const char* attention = "causal") {
  v1::JobSpec job;
  job.set_name("plan");
  job.mutable_model()->set_preset("hearth-112m");
  job.mutable_model()->set_vocab(static_cast<int32_t>(vocab));
  job.mutable_data()->add_train()->set_path("x");
  job.mutable_data()->set_sequence_length(2048);
  job.mutable_batch()->set_micro_batch_size(18);
  job.mutable_precision()->set_recipe(recipe);
  job.mutable_precision()->set_lm_head(head);
  job.mutable_data()->set_attention(attention);
  job.mutable_train()->set_steps(100);
  job.mutable_resources()->set_device("cuda");
  std::vector<FieldViolation> violations;
  Resolve(job, violations);
  EXPECT_TRUE(violations.empty()) << ViolationsToStatus(violations);
  const auto inputs = MakePlanInputs(job, 18, 1, training);
  const TrainingPlan plan = *PlanTraining((*inputs)->options);
  return plan.buffers()[static_cast<size_t>(plan.ids.workspace.index)].bytes;
}

// Four chunks of 9,216 tokens: losses in fp64, a scale, BF16 logits, the library's scratch; with an
// FP8 head the gradient of the logits by rows and by columns too.
TEST(OpScratch, OnAGpu_IsThatOfTheOutputProjection) {
  constexpr int64_t kTokens = 36864;
  constexpr int64_t kLogits = int64_t{9216} * 49152;
  constexpr int64_t kBf16 = kTokens * 8 + 256 + kLogits * 2 + (int64_t{32} << 20);
  EXPECT_EQ(Scratch("bf16", "bf16", 49152), kBf16);
  EXPECT_EQ(Scratch("nvfp4", "bf16", 49152), kBf16);
  EXPECT_EQ(Scratch("fp8", "fp8", 49152), kBf16 + 2 * kLogits);
  EXPECT_EQ(Scratch("fp8", "fp8", 49152, /*training=*/false), kBf16);
}

TEST(OpScratch, FewLogits_IsThatOfOtherOps) {
  constexpr int64_t kTokens = 36864;
  EXPECT_EQ(Scratch("bf16", "bf16", 256), kTokens * 768 * 12) << "attention";
  EXPECT_EQ(Scratch("bf16", "bf16", 256, true, "document"), kTokens * 768 * 24);
  // The gradient of the widest weight, 4,096 x 768, from operands that are widened.
  EXPECT_EQ(Scratch("nvfp4", "bf16", 256), (4096 + 768) * kTokens * 2 + 512 + (int64_t{32} << 20));
}

TEST_F(TrainingPlanTest, ChooseMicroBatch_TakesTheFirstThatFits) {
  options_.micro_batch = 8;
  const int64_t eight = Plan().arena_bytes();
  EXPECT_EQ(*ChooseMicroBatch(options_, eight, {32, 16, 8, 4}), 8);
  EXPECT_EQ(*ChooseMicroBatch(options_, eight - 1, {32, 16, 8, 4}), 4);
  EXPECT_EQ(ChooseMicroBatch(options_, 1000, {2, 1}).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ChooseMicroBatch(options_, eight, {}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(PowerOfTwoCandidates(kAutoMaxMicroBatchTokens / 4), (std::vector<int64_t>{4, 2, 1}));
  EXPECT_EQ(PowerOfTwoCandidates(10 * kAutoMaxMicroBatchTokens), (std::vector<int64_t>{1}));
}

TEST_F(TrainingPlanTest, ParseRecompute_KnowsEveryLevelByName) {
  for (int level = 0; level < kRecomputeCount; ++level) {
    Recompute parsed = Recompute::kNone;
    ASSERT_TRUE(ParseRecompute(RecomputeName(static_cast<Recompute>(level)), parsed));
    EXPECT_EQ(parsed, static_cast<Recompute>(level));
  }
  Recompute parsed = Recompute::kNone;
  EXPECT_FALSE(ParseRecompute("everything", parsed));
}

TEST_F(TrainingPlanTest, Offload_PutsMastersAndStatesOnTheHost_AndSlotsBetweenActivations) {
  options_.wide_bytes = 0;
  const TrainingPlan device = *PlanTraining(options_);
  EXPECT_FALSE(device.Find("offload.slot.0").ok());
  options_.offload.Add(BufferClass::kMasters);
  options_.offload.Add(BufferClass::kOptimizer);
  const TrainingPlan host = *PlanTraining(options_);
  const int64_t moved = device.ClassBytes(BufferClass::kMasters, MemoryTier::kDevice) +
                        device.ClassBytes(BufferClass::kOptimizer, MemoryTier::kDevice);
  EXPECT_EQ(host.ClassBytes(BufferClass::kMasters, MemoryTier::kDevice), 0);
  EXPECT_EQ(host.ClassBytes(BufferClass::kOptimizer, MemoryTier::kDevice), 0);
  EXPECT_EQ(host.arena_bytes(MemoryTier::kPinnedHost),
            device.arena_bytes(MemoryTier::kPinnedHost) + moved);
  EXPECT_EQ(host.arena_bytes(), device.arena_bytes() - moved)
      << "the slots lie where the step's activations were";
  for (const char* name : {"offload.slot.0", "offload.slot.1"}) {
    const PlannedBuffer& slot = **host.Find(name);
    EXPECT_EQ(slot.bytes, OffloadSlotBytes(moved));
    EXPECT_EQ(slot.first_use, TimelineOf(options_.shape).Update());
  }
  options_.training = false;
  EXPECT_FALSE(PlanTraining(options_)->Find("offload.slot.0").ok());
}

// The six layers take turns in two slots; the last two stay there, the others have a place on the
// host.
TEST_F(TrainingPlanTest, OffloadedActivations_LeaveTwoSlots) {
  options_.wide_bytes = 0;
  const int64_t staged = Plan().arena_bytes(MemoryTier::kPinnedHost);
  for (int level = 0; level < kRecomputeCount; ++level) {
    options_.recompute = static_cast<Recompute>(level);
    options_.offload = {};
    const TrainingPlan device = *PlanTraining(options_);
    EXPECT_EQ(AwayBytes(BlockScope(options_)), 0);
    options_.offload.Add(BufferClass::kActivations);
    const TrainingPlan host = *PlanTraining(options_);
    const int64_t moved = host.ClassBytes(BufferClass::kActivations, MemoryTier::kPinnedHost);
    EXPECT_GT(moved, 0);
    EXPECT_EQ(host.ClassBytes(BufferClass::kActivations),
              device.ClassBytes(BufferClass::kActivations));
    EXPECT_EQ(host.arena_bytes(MemoryTier::kPinnedHost), staged + moved);
    EXPECT_EQ(AwayBytes(BlockScope(options_)), moved) << "what plans of time count";
    EXPECT_LT(host.arena_bytes(), device.arena_bytes());
    int64_t away = 0;
    for (size_t l = 0; l < 6; ++l) {
      const LayerBuffers& layer = host.ids.layers[l];
      EXPECT_EQ(layer.away.empty(), l >= 4) << l;
      EXPECT_EQ(host.At(layer.attention.input).name,
                l % 2 == 0 ? "slot.0.mixer.input" : "slot.1.mixer.input");
      EXPECT_EQ(layer.input.index, layer.attention.input.index);
      for (const AwayBuffer& buffer : layer.away) {
        EXPECT_EQ(host.At(buffer.slot).bytes, host.At(buffer.host).bytes);
        EXPECT_EQ(host.At(buffer.slot).tier, MemoryTier::kDevice);
        EXPECT_EQ(host.At(buffer.host).tier, MemoryTier::kPinnedHost);
        away += host.At(buffer.host).bytes;
      }
    }
    EXPECT_EQ(away, moved);
  }
  options_.training = false;
  EXPECT_EQ(Plan().arena_bytes(MemoryTier::kPinnedHost),
            Plan().ClassBytes(BufferClass::kWorkspace, MemoryTier::kPinnedHost));
}

// A quantised layer's operands leave only where another layer takes their slot over.
TEST_F(TrainingPlanTest, OffloadedActivations_OfOneQuantisedLayer_StayInItsSlot) {
  v1::JobSpec job;
  v1::LayerSet& plain = *job.mutable_precision()->mutable_high_precision_layers();
  for (const int layer : {0, 1, 2, 3, 5}) {
    plain.add_layers(layer);
  }
  options_.recipe = FindRecipe("fp8");
  table_ = BuildParameterTable(options_.shape, options_.recipe->parameters, FindOptimizer("adamw"));
  options_.precision = ResolvePrecision(job, *options_.recipe, 6);
  options_.offload.Add(BufferClass::kActivations);
  const TrainingPlan plan = *PlanTraining(options_);
  EXPECT_EQ(plan.At(plan.ids.layers[4].ffn.norm_columns).name, "slot.0.ffn.norm_columns");
  EXPECT_FALSE(plan.ids.layers[2].ffn.norm_columns.exists());
  EXPECT_FALSE(plan.Find("layers.4.ffn.norm_columns").ok());
  EXPECT_TRUE(plan.Find("layers.2.mixer.input").ok());
}

TEST_F(TrainingPlanTest, ToTable_HasAColumnForEachTier) {
  options_.wide_bytes = 0;
  options_.offload.Add(BufferClass::kMasters);
  const std::string text = Plan().ToTable(false);
  EXPECT_EQ(text.substr(0, text.find('\n')), "CLASS                   MIB     HOST MIB");
  const size_t masters = text.find("masters ");
  const std::string line = text.substr(masters, text.find('\n', masters) - masters);
  EXPECT_EQ(line.substr(0, 27), "masters                0.00") << line;
  EXPECT_NE(line.substr(27), "         0.00") << line;
}

TEST_F(TrainingPlanTest, ToTable_Verbose_ListsEveryBuffer) {
  const MemoryPlan plan = Plan();
  const std::string text = plan.ToTable(true);
  for (const PlannedBuffer& buffer : plan.buffers()) {
    EXPECT_NE(text.find(buffer.name), std::string::npos);
  }
  EXPECT_EQ(plan.ToTable(false).find("layers.0"), std::string::npos);
}

}  // namespace
}  // namespace hearth::spec
