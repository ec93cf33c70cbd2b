#include "common/spec/plan/weight_units.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "common/spec/optimizer/optimizer_table.h"
#include "common/spec/plan/parameter_table.h"
#include "common/spec/weights/weight_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/common/small_llama.h"

namespace hearth::spec {
namespace {

using ::testing::ElementsAre;

// A plan that divides weights among three ranks.
class WeightUnitsTest : public testing::Test {
 protected:
  void Make(int layers, bool tied) {
    options_.shape = *ResolveModelShape(SmallLlama(layers, "all", tied), 64);
    options_.recipe = FindRecipe("bf16");
    table_ =
        BuildParameterTable(options_.shape, options_.recipe->parameters, FindOptimizer("adamw"));
    // Gradients in two formats lie in two groups: a unit has buckets in both.
    for (Parameter& p : table_) {
      p.gradient = p.group == ParameterGroup::kMatrix ? DType::kBF16 : DType::kF32;
    }
    options_.table = &table_;
    options_.world_size = options_.shards = 3;
    options_.divide_gradients = options_.divide_weights = true;
  }

  std::vector<Parameter> table_;
  // The blocks of all tensors in the bucket are those of the unit.
  void ExpectTensorsOfUnit(const WeightUnits& units, const GradientBucket& bucket, int unit) {
    const std::vector<int64_t> offsets = TensorOffsets(table_, options_.shards);
    for (size_t i = 0; i < table_.size(); ++i) {
      if (bucket.begin <= offsets[i] && offsets[i] < bucket.end) {
        EXPECT_EQ(units.of_block[static_cast<size_t>(table_[i].block)], unit) << table_[i].name;
      }
    }
  }

  TrainingPlanOptions options_;
};

TEST_F(WeightUnitsTest, Visits_GoThroughTheLayersAndBack_ATiedHeadIsTheEmbedding) {
  Make(3, false);
  WeightUnits units = PlanWeightUnits(options_);
  EXPECT_THAT(units.of_block, ElementsAre(0, 1, 1, 2, 2, 3, 3, 4));
  EXPECT_THAT(units.Visits(false), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(units.Visits(true), ElementsAre(0, 1, 2, 3, 4, 3, 2, 1));
  Make(1, true);
  units = PlanWeightUnits(options_);
  EXPECT_THAT(units.of_block, ElementsAre(0, 1, 1, 0));
  EXPECT_THAT(units.Visits(true), ElementsAre(0, 1, 0, 1));
  options_.divide_weights = false;
  EXPECT_TRUE(PlanWeightUnits(options_).empty());
}

TEST_F(WeightUnitsTest, Units_HaveEveryBucketOnce_WithAllTensorsOfTheirBlocks) {
  for (const bool tied : {false, true}) {
    for (const int64_t bucket_bytes : {int64_t{0}, int64_t{1} << 16, int64_t{1} << 40}) {
      SCOPED_TRACE(testing::Message() << tied << " " << bucket_bytes);
      Make(5, tied);
      options_.bucket_bytes = bucket_bytes;
      const WeightUnits units = PlanWeightUnits(options_);
      const std::vector<GradientBucket> buckets = PlanBuckets(options_);
      const std::vector<int64_t> offsets = TensorOffsets(table_, options_.shards);
      std::set<size_t> seen;
      int64_t elements = 0;
      for (size_t u = 0; u < units.units.size(); ++u) {
        const WeightUnit& unit = units.units[u];
        int64_t end = 0;
        for (size_t k = 0; k < unit.buckets.size(); ++k) {
          const GradientBucket& bucket = buckets[unit.buckets[k]];
          EXPECT_TRUE(seen.insert(unit.buckets[k]).second);
          EXPECT_EQ(unit.offsets[k], end);
          end += bucket.elements();
          ExpectTensorsOfUnit(units, bucket, static_cast<int>(u));
        }
        EXPECT_EQ(unit.elements, end);
        EXPECT_GE(units.slots[static_cast<size_t>(unit.slot)].elements, end);
        elements += end;
      }
      EXPECT_EQ(seen.size(), buckets.size());
      EXPECT_EQ(elements, offsets.back());
    }
  }
}

TEST_F(WeightUnitsTest, Neighbours_AreInDifferentSlots_ThatHoldThemWhileTheyAreRead) {
  for (const int layers : {1, 2, 5, 6}) {
    for (const bool tied : {false, true}) {
      SCOPED_TRACE(testing::Message() << layers << " " << tied);
      Make(layers, tied);
      const WeightUnits units = PlanWeightUnits(options_);
      EXPECT_EQ(units.slots.size(), layers == 1 ? 2U : 3U);
      const std::vector<int> visits = units.Visits(true);
      for (size_t i = 1; i < visits.size(); ++i) {
        EXPECT_NE(units.units[static_cast<size_t>(visits[i])].slot,
                  units.units[static_cast<size_t>(visits[i - 1])].slot)
            << i;
      }
      const StepTimeline time = TimelineOf(options_.shape);
      for (int block = 0; block < time.blocks; ++block) {
        const int unit = units.of_block[static_cast<size_t>(block)];
        const WeightSlot& slot =
            units.slots[static_cast<size_t>(units.units[static_cast<size_t>(unit)].slot)];
        EXPECT_LE(slot.begins, time.Forward(block));
        const bool outer = block == time.Embedding() || block == time.Head();
        EXPECT_GE(slot.ends, outer ? time.Head() : time.Backward(block));
      }
    }
  }
}

TEST_F(WeightUnitsTest, GatheredInPass_IsWhatTheSlotsDoNotHaveYet) {
  for (const int layers : {1, 2, 5}) {
    for (const bool tied : {false, true}) {
      SCOPED_TRACE(testing::Message() << layers << " " << tied);
      Make(layers, tied);
      const Gathered gathered = GatheredInPass(PlanWeightUnits(options_));
      const WeightUnits units = PlanWeightUnits(options_);
      EXPECT_EQ(gathered.forward, TensorOffsets(table_, options_.shards).back());
      // Backward begins with the last two layers in their slots.
      EXPECT_EQ(gathered.backward, std::max(0, layers - 2) * units.units[1].elements);
    }
  }
  options_.divide_weights = false;
  EXPECT_EQ(GatheredInPass(PlanWeightUnits(options_)).forward, 0);
}

// Layers in blocks arrive where no pass reads them, and share the slot in which they are unpacked.
TEST_F(WeightUnitsTest, LayersInBlocks_ArriveInASlot_AndShareAnother) {
  for (const int layers : {1, 2, 5}) {
    for (const bool tied : {false, true}) {
      SCOPED_TRACE(testing::Message() << layers << " " << tied);
      Make(layers, tied);
      SetWeightStore(*FindWeightStore("q4_0"), table_);
      const WeightUnits units = PlanWeightUnits(options_);
      ASSERT_EQ(units.slots.size(), 3U);
      EXPECT_TRUE(units.ahead);
      EXPECT_TRUE(units.divided());
      const std::vector<GradientBucket> buckets = PlanBuckets(options_);
      for (size_t u = 0; u < units.units.size(); ++u) {
        const WeightUnit& unit = units.units[u];
        const bool layer = u > 0 && u <= static_cast<size_t>(layers);
        EXPECT_EQ(unit.slot, layer ? 1 : 0);
        EXPECT_EQ(unit.arrival, layer ? 2 : 0);
        EXPECT_EQ(unit.unpacked(), layer);
        int64_t plain = 0;
        int64_t blocks = 0;
        for (size_t k = 0; k < unit.buckets.size(); ++k) {
          const GradientBucket& bucket = buckets[unit.buckets[k]];
          EXPECT_EQ(unit.arrivals[k], bucket.stored ? blocks : plain);
          (bucket.stored ? blocks : plain) +=
              bucket.stored ? bucket.elements() / 32 * 18 : bucket.elements();
        }
        EXPECT_EQ(unit.plain, plain);
        EXPECT_EQ(unit.block_bytes, blocks);
        EXPECT_EQ(blocks > 0, layer);
        EXPECT_EQ(units.slots[2].block_bytes, units.units[1].block_bytes);
        EXPECT_EQ(units.slots[2].elements, units.units[1].plain);
      }
      // Backward finds the last layer in its slot.
      const Gathered bytes = GatheredBytes(units, 2);
      EXPECT_EQ(bytes.backward,
                (layers - 1) * (2 * units.units[1].plain + units.units[1].block_bytes));
      const std::vector<int64_t> offsets = TensorOffsets(table_, options_.shards);
      const int64_t plain = PlainElements(table_, offsets);
      EXPECT_EQ(bytes.forward, 2 * plain + (offsets.back() - plain) / 32 * 18);
    }
  }
}

// At the other levels blocks are whole, though the optimizer is divided.
TEST_F(WeightUnitsTest, WholeLayersInBlocks_AreUnitsThatNothingGathers) {
  Make(3, false);
  SetWeightStore(*FindWeightStore("int8"), table_);
  options_.divide_weights = false;
  const WeightUnits units = PlanWeightUnits(options_);
  EXPECT_FALSE(units.empty());
  EXPECT_FALSE(units.divided());
  EXPECT_FALSE(units.ahead);
  EXPECT_EQ(GatheredBytes(units, 2).forward, 0);
}

TEST_F(WeightUnitsTest, QuantisedForms_OfUnitsInOneSlotShareBytes_OthersDoNot) {
  Make(4, false);
  PrecisionPlan precision;
  precision.recipe = FindRecipe("fp8");
  precision.layers.assign(4, true);
  precision.head = true;
  const std::vector<int> weights = QuantisedParameters(table_, precision);
  const WeightUnits units = PlanWeightUnits(options_);
  for (const bool transposed : {false, true}) {
    const std::vector<int64_t> offsets =
        QuantisedUnitOffsets(table_, weights, precision, units, transposed);
    ASSERT_EQ(offsets.size(), weights.size() + 1);
    std::map<int, std::pair<int64_t, int64_t>> slots;  // by slot: first and last byte of its forms
    for (size_t k = 0; k < weights.size(); ++k) {
      const Parameter& weight = table_[static_cast<size_t>(weights[k])];
      const int unit = units.of_block[static_cast<size_t>(weight.block)];
      const int64_t end = offsets[k] + weight.elements();
      EXPECT_EQ(offsets[k] % 256, 0);
      EXPECT_LE(end, offsets.back());
      const auto [at, first] = slots.try_emplace(units.units[static_cast<size_t>(unit)].slot,
                                                 std::pair(offsets[k], end));
      at->second = {std::min(at->second.first, offsets[k]), std::max(at->second.second, end)};
      // Behind the one before it in the same unit.
      if (k > 0 &&
          units.of_block[static_cast<size_t>(table_[static_cast<size_t>(weights[k - 1])].block)] ==
              unit) {
        EXPECT_GE(offsets[k],
                  offsets[k - 1] + table_[static_cast<size_t>(weights[k - 1])].elements());
      }
    }
    ASSERT_EQ(slots.size(), 3U);
    EXPECT_LE(slots[0].second, slots[1].first);
    EXPECT_LE(slots[1].second, slots[2].first);
    EXPECT_LT(offsets.back(), QuantisedOffsets(table_, weights, precision, transposed).back());
    EXPECT_EQ(QuantisedUnitOffsets(table_, weights, precision, WeightUnits(), transposed),
              QuantisedOffsets(table_, weights, precision, transposed));
  }
}

}  // namespace
}  // namespace hearth::spec
