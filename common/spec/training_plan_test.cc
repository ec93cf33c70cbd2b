#include "common/spec/training_plan.h"

#include <string>

#include "gtest/gtest.h"

namespace hearth::spec {
namespace {

class TrainingPlanTest : public testing::Test {
 protected:
  TrainingPlanTest() {
    v1::ModelSpec model;
    model.set_layers(6);
    model.set_hidden(64);
    model.set_heads(4);
    model.set_kv_heads(2);
    model.set_head_dim(16);
    model.set_ffn_hidden(160);
    model.set_vocab(1000);
    model.set_norm("rmsnorm");
    model.set_norm_eps(1e-5);
    model.set_position("rope");
    model.set_rope_theta(10000);
    model.set_activation("swiglu");
    model.set_attention_bias("none");
    model.set_tied(true);
    model.set_init_std(0.02);
    options_.shape = *ResolveModelShape(model, 64);
    options_.recipe = FindRecipe("bf16");
    options_.optimizer = FindOptimizer("adamw");
    table_ = BuildParameterTable(options_.shape, options_.recipe->parameters);
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

TEST_F(TrainingPlanTest, TensorOffsets_EachTensor_StartsAligned) {
  const std::vector<int64_t> offsets = TensorOffsets(table_);
  ASSERT_EQ(offsets.size(), table_.size() + 1);
  for (size_t i = 0; i < table_.size(); ++i) {
    EXPECT_EQ(offsets[i] % kTensorAlignElements, 0);
    EXPECT_GE(offsets[i + 1], offsets[i] + table_[i].elements());
  }
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
