// What weights in blocks (weights.store) go with.
#include <algorithm>
#include <string>
#include <vector>

#include "common/spec/plan/offload.h"
#include "common/spec/plan/plan_inputs.h"
#include "common/spec/plan/shard_levels.h"
#include "common/spec/plan/training_plan.h"
#include "common/spec/plan/weight_units.h"
#include "common/spec/resolve/resolve.h"
#include "common/spec/weights/weight_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hearth::spec {
namespace {

using ::testing::HasSubstr;

v1::JobSpec JobWith(const std::string& store) {
  v1::JobSpec job;
  job.set_name("stored");
  job.mutable_model()->set_preset("hearth-112m");
  job.mutable_data()->add_train()->set_path("/data");
  job.mutable_data()->set_sequence_length(1024);
  job.mutable_precision()->set_recipe("bf16");
  job.mutable_batch()->set_micro_batch_size(1);
  job.mutable_train()->set_steps(1000);
  job.mutable_resources()->set_device("cuda");
  job.mutable_weights()->set_store(store);
  return job;
}

// What is wrong with the field; empty: nothing.
std::string Wrong(v1::JobSpec job, const std::string& field) {
  std::vector<FieldViolation> violations;
  Resolve(job, violations);
  const auto found =
      std::find_if(violations.begin(), violations.end(),
                   [&field](const FieldViolation& violation) { return violation.field == field; });
  return found == violations.end() ? "" : found->description;
}

TEST(WeightsRuleTest, Rows_AreTrained_OrRefusedWithTheWayOut) {
  for (const WeightStoreRow& row : WeightStoreRows()) {
    const std::string wrong = Wrong(JobWith(std::string(row.name)), "weights.store");
    if (row.refusal.empty()) {
      EXPECT_EQ(wrong, "") << row.name;
    } else {
      EXPECT_THAT(wrong, HasSubstr("cannot be trained")) << row.name;
    }
  }
  EXPECT_THAT(Wrong(JobWith("iq3_xxs"), "weights.store"), HasSubstr("llama-quantize"));
  EXPECT_THAT(Wrong(JobWith("iq3_xxs"), "weights.store"), HasSubstr("docs/low-bit-limits.md"));
  EXPECT_NE(Wrong(JobWith("q5_0"), "weights.store"), "");
}

TEST(WeightsRuleTest, Rows_GoWithEachLevelOfDivision_AndWithOffload) {
  for (const WeightStoreRow& row : WeightStoreRows()) {
    if (!row.refusal.empty()) {
      continue;
    }
    v1::JobSpec job = JobWith(std::string(row.name));
    job.mutable_resources()->set_workers(2);
    job.mutable_batch()->set_global_batch_tokens(2048);
    for (const std::string_view level : ShardChoices()) {
      job.mutable_parallel()->set_shard(std::string(level));
      EXPECT_EQ(Wrong(job, "parallel.shard"), "") << row.name << ", " << level;
    }
    for (const OffloadRow& away : OffloadRows()) {
      v1::JobSpec offloaded = JobWith(std::string(row.name));
      (offloaded.mutable_offload()->*away.set)(true);
      EXPECT_EQ(Wrong(offloaded, "offload." + std::string(away.name)), "") << row.name;
    }
  }
}

TEST(WeightStoreTest, Plan_CountsBlocks_OneLayer_AndAPartOfTheUpdate) {
  v1::JobSpec job = JobWith("q4_0");
  std::vector<FieldViolation> violations;
  Resolve(job, violations);
  ASSERT_TRUE(violations.empty());
  const auto inputs = MakePlanInputs(job, 1, 1, /*training=*/true);
  ASSERT_TRUE(inputs.ok()) << inputs.status();
  const std::vector<Parameter>& table = (*inputs)->table;
  const auto plan = PlanTraining((*inputs)->options);
  ASSERT_TRUE(plan.ok()) << plan.status();
  int64_t blocks = 0;
  for (const Parameter& parameter : table) {
    EXPECT_EQ(parameter.stored(), parameter.group == ParameterGroup::kMatrix) << parameter.name;
    EXPECT_FALSE(parameter.stored() && parameter.has_master());
    blocks += parameter.stored() ? parameter.elements() / 32 * 18 : 0;
  }
  EXPECT_EQ((*plan->Find("parameters.blocks"))->bytes, blocks) << "all of whole 256 bytes";
  EXPECT_EQ((*plan->Find("parameters"))->bytes, 2 * PlainElements(table, TensorOffsets(table)));
  const WeightUnits units = PlanWeightUnits((*inputs)->options);
  EXPECT_FALSE(units.ahead);
  EXPECT_EQ((*plan->Find("parameters.slot.1"))->bytes, 2 * units.slots[1].elements);
  // A pass back finds the last layer in its place.
  const Gathered gathered = GatheredInPass(units);
  EXPECT_EQ(gathered.forward - gathered.backward, units.slots[1].elements);
  // What only reads the model has it in the recipe's format.
  const auto forward = MakePlanInputs(job, 1, 1, /*training=*/false);
  ASSERT_TRUE(forward.ok());
  EXPECT_EQ(DecodedElements((*forward)->table), 0);
}

// What four ranks have of a job at each level: all blocks, or their part of them, a layer as it
// arrives, and one that is decoded.
TEST(WeightStoreTest, Plan_OfFourRanks_DividesBlocksWithTheWeights) {
  for (const WeightStoreRow& row : WeightStoreRows()) {
    if (!row.in_blocks()) {
      continue;
    }
    v1::JobSpec job = JobWith(std::string(row.name));
    std::vector<FieldViolation> violations;
    Resolve(job, violations);
    for (const ShardRow& shard : ShardRows()) {
      SCOPED_TRACE(testing::Message() << row.name << ", " << shard.name);
      const auto inputs = MakePlanInputs(job, 1, 1, /*training=*/true, 4, shard.level);
      ASSERT_TRUE(inputs.ok()) << inputs.status();
      const std::vector<Parameter>& table = (*inputs)->table;
      const auto plan = PlanTraining((*inputs)->options);
      ASSERT_TRUE(plan.ok()) << plan.status();
      const std::vector<int64_t> offsets = TensorOffsets(table, shard.optimizer ? 4 : 1);
      const int64_t plain = PlainElements(table, offsets);
      const int64_t parts = shard.weights ? 4 : 1;
      const int64_t blocks = StoredRow(table).Bytes(offsets.back() - plain);
      EXPECT_EQ((*plan->Find("parameters"))->bytes, 2 * plain / parts);
      EXPECT_EQ((*plan->Find("parameters.blocks"))->bytes, blocks / parts);
      // Masters are of the others alone.
      EXPECT_EQ((*plan->Find("masters"))->bytes, 4 * plain / (shard.optimizer ? 4 : 1));
      const int64_t layers = (*inputs)->options.shape.layers;
      const auto arrival = plan->Find("parameters.slot.2.blocks");
      ASSERT_EQ(arrival.ok(), shard.weights);
      if (arrival.ok()) {
        EXPECT_EQ((*arrival)->bytes, blocks / layers);
      }
    }
  }
}

}  // namespace
}  // namespace hearth::spec
