// The blocks' descriptions against the parameter table and the plan that are made of them.
#include "common/spec/plan/blocks/block_table.h"

#include <map>
#include <set>
#include <string>
#include <utility>

#include "common/spec/model/presets.h"
#include "common/spec/plan/parameter_table.h"
#include "common/spec/plan/plan_inputs.h"
#include "common/spec/resolve/resolve.h"
#include "gtest/gtest.h"

namespace hearth::spec {
namespace {

std::unique_ptr<PlanInputs> PlanOf(std::string_view preset,
                                   std::string_view recipe,
                                   bool training) {
  v1::JobSpec job;
  job.set_name("plan");
  job.mutable_model()->set_preset(std::string(preset));
  job.mutable_model()->set_layers(3);
  job.mutable_model()->set_vocab(500);
  job.mutable_data()->add_train()->set_path("x");
  job.mutable_data()->set_sequence_length(64);
  job.mutable_batch()->set_micro_batch_size(2);
  job.mutable_precision()->set_recipe(std::string(recipe));
  job.mutable_train()->set_steps(100);
  job.mutable_resources()->set_device("cuda");
  std::vector<FieldViolation> violations;
  Resolve(job, violations);
  EXPECT_TRUE(violations.empty()) << ViolationsToStatus(violations);
  return *MakePlanInputs(job, 2, 1, training);
}

TEST(BlocksTest, BlocksOfAModel_AreNumberedAsTheTimelineCounts) {
  const auto inputs = PlanOf("hearth-nano", "bf16", true);
  const ModelShape& shape = inputs->options.shape;
  const std::vector<PlacedBlock> blocks = BlocksOf(shape);
  const StepTimeline time = TimelineOf(shape);
  ASSERT_EQ(static_cast<size_t>(time.blocks), blocks.size());
  for (size_t i = 0; i < blocks.size(); ++i) {
    EXPECT_EQ(blocks[i].number, static_cast<int>(i));
    const bool outside = i == 0 || i + 1 == blocks.size();
    EXPECT_EQ(blocks[i].layer < 0, outside) << i;
    EXPECT_EQ(blocks[i].first, !outside && blocks[i].layer != blocks[i - 1].layer) << i;
  }
  EXPECT_EQ(blocks.back().number, time.Head());
  EXPECT_EQ(time.Backward(time.Head()), time.Head())
      << "the head's backward belongs to its forward";
  EXPECT_EQ(time.LayersBackward(), time.Backward(blocks.back().number - 1));
}

// The second layer has no feed-forward block: nothing of one is numbered, stored or planned there.
TEST(BlocksTest, ALayersRow_SaysWhichBlocksItHas) {
  static constexpr BlockKind kAttentionAlone[] = {BlockKind::kAttention};
  const auto inputs = PlanOf("hearth-nano", "bf16", true);
  TrainingPlanOptions& options = inputs->options;
  const StepTimeline alike = TimelineOf(options.shape);
  options.shape.rows[1] = kAttentionAlone;
  EXPECT_EQ(TimelineOf(options.shape).blocks, alike.blocks - 1);
  EXPECT_EQ(BlocksOf(options.shape).size(), static_cast<size_t>(alike.blocks - 1));
  inputs->table = BuildParameterTable(options.shape, options.recipe->parameters, inputs->optimizer);
  for (int layer = 0; layer < 3; ++layer) {
    EXPECT_GE(FindParameter(inputs->table, Slot::kQkv, layer), 0) << layer;
    EXPECT_EQ(FindParameter(inputs->table, Slot::kFfnIn, layer) >= 0, layer != 1) << layer;
  }
  const TrainingPlan plan = *PlanTraining(options);
  int planned = 0;
  for (const PlannedBuffer& buffer : plan.buffers()) {
    planned += buffer.name.starts_with("layers.0.ffn.") ? 1 : 0;
    EXPECT_FALSE(buffer.name.starts_with("layers.1.ffn.")) << buffer.name;
  }
  EXPECT_GT(planned, 0);
}

TEST(BlocksTest, EachBlockOfALayer_HasOneInput) {
  for (const Preset& preset : Presets()) {
    for (const bool training : {true, false}) {
      SCOPED_TRACE(testing::Message() << preset.name << (training ? "" : ", evaluation"));
      const auto inputs = PlanOf(preset.name, "bf16", training);
      const BlockScope scope(inputs->options);
      TrainingPlan plan = *PlanTraining(inputs->options);
      int tested = 0;
      for (const PlacedBlock& placed : BlocksOf(scope.shape)) {
        if (placed.layer < 0) {
          continue;
        }
        ++tested;
        int input_rows = 0;
        for (const ActivationRow& row : placed.block->activations(scope)) {
          if (row.input) {
            ++input_rows;
            EXPECT_TRUE(row.id(plan.ids, placed.layer).exists()) << placed.block->place;
          }
        }
        EXPECT_EQ(input_rows, 1) << placed.block->place;
      }
      EXPECT_GT(tested, 0);
      ASSERT_EQ(plan.ids.layers.size(), static_cast<size_t>(scope.shape.layers));
      for (size_t l = 0; l < plan.ids.layers.size(); ++l) {
        EXPECT_TRUE(plan.ids.layers[l].input.exists()) << l;
      }
    }
  }
}

// Slots, and so parameters and handles, are found by their layer alone.
TEST(BlocksTest, EachLayer_HasABlockOnce) {
  const auto inputs = PlanOf("hearth-nano", "bf16", true);
  std::set<std::pair<int, const Block*>> seen;
  for (const PlacedBlock& placed : BlocksOf(inputs->options.shape)) {
    EXPECT_TRUE(seen.emplace(placed.layer, placed.block).second) << placed.block->place;
  }
}

TEST(BlocksTest, Rows_BelongToOneBlockAlone) {
  std::set<std::string_view> places;
  for (const Preset& preset : Presets()) {
    const auto inputs = PlanOf(preset.name, "bf16", true);
    std::map<Slot, const Block*> owners;
    const std::vector<PlacedBlock> blocks = BlocksOf(inputs->options.shape);
    for (const PlacedBlock& placed : blocks) {
      for (const WeightRow& row : placed.block->weights(inputs->options.shape)) {
        const auto [owner, added] = owners.emplace(row.slot, placed.block);
        EXPECT_TRUE(added || owner->second == placed.block) << row.name;
      }
    }
    for (const Parameter& parameter : inputs->table) {
      ASSERT_EQ(owners.count(parameter.slot), 1U) << parameter.name;
      const PlacedBlock& placed = blocks[static_cast<size_t>(parameter.block)];
      EXPECT_EQ(placed.block, owners[parameter.slot]) << parameter.name;
      EXPECT_EQ(placed.layer, parameter.layer) << parameter.name;
    }
  }
  for (const Block* block : Blocks()) {
    EXPECT_TRUE(places.insert(block->place).second) << block->place;
  }
}

// Every weight that a GEMM reads has its sites once, with operands of its own extents; the engine
// binds linear layers by them.
TEST(BlocksTest, PlannedSites_HaveTheExtentsOfTheirWeights) {
  for (const Preset& preset : Presets()) {
    for (const bool training : {true, false}) {
      const auto inputs = PlanOf(preset.name, "bf16", training);
      const TrainingPlan plan = *PlanTraining(inputs->options);
      size_t weights = 0;
      for (const Parameter& p : inputs->table) {
        if (!p.roles.fprop_w) {
          continue;
        }
        ++weights;
        const SiteBuffers& site = plan.ids.Site(p.slot, p.layer);
        ASSERT_TRUE(site.x.exists()) << p.name;
        EXPECT_EQ(plan.At(site.x).shape, (std::vector<int64_t>{128, p.shape[1]})) << p.name;
        EXPECT_EQ(site.dy.exists(), !p.roles.head && (training || p.slot == Slot::kFfnIn))
            << p.name;
        if (site.dy.exists()) {
          EXPECT_EQ(plan.At(site.dy).shape, (std::vector<int64_t>{128, p.shape[0]})) << p.name;
        }
        EXPECT_FALSE(site.x_columns.exists() || site.dy_waits) << p.name;
      }
      EXPECT_EQ(plan.ids.sites.size(), weights);
    }
  }
}

TEST(BlocksTest, QuantisedSites_SayWhatBackwardMakesAndWhatWaits) {
  struct Row {
    const char* preset;
    const char* recipe;
    bool attention_again;
    bool activated_again;
    // SwiGLU's backward quantises its output before down's wgrad, and forward's product may write
    // the rows of that output while it reads its own.
    bool waits;
  };
  for (const Row& row : {Row{"hearth-112m", "fp8", false, true, true},
                         Row{"hearth-112m", "fp8_current", false, true, false},
                         Row{"hearth-112m", "nvfp4", true, true, false},
                         Row{"gpt2-124m", "fp8", false, true, false}}) {
    SCOPED_TRACE(testing::Message() << row.preset << " " << row.recipe);
    const auto inputs = PlanOf(row.preset, row.recipe, true);
    const TrainingPlan plan = *PlanTraining(inputs->options);
    const SiteBuffers& out = plan.ids.Site(Slot::kAttnOut, 1);
    const SiteBuffers& down = plan.ids.Site(Slot::kFfnDown, 1);
    EXPECT_TRUE(down.x_columns.exists());
    EXPECT_EQ(out.backward_makes_columns, row.attention_again);
    EXPECT_EQ(down.backward_makes_columns, row.activated_again);
    EXPECT_EQ(down.dy_waits, row.waits);
    const FormsLayout& layout = plan.ids.quant.layout;
    EXPECT_EQ(layout.waiting_dy_rows != layout.dy_rows, row.waits);
    EXPECT_EQ(layout.waiting_dy_columns != layout.dy_columns, row.waits);
    EXPECT_EQ(layout.rows_apart != layout.rows, row.waits);
    EXPECT_EQ(layout.bytes, plan.At(plan.ids.quant.forms).bytes);
    for (const SiteBuffers& site : plan.ids.sites) {
      EXPECT_TRUE(!site.dy_waits || site.weight == Slot::kFfnDown);
      EXPECT_EQ(site.x_rows_apart, row.waits && site.weight == Slot::kFfnIn);
    }
  }
}

}  // namespace
}  // namespace hearth::spec
