#include "worker/trainer/model/activation_lane.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/spec/plan/parameter_table.h"
#include "gtest/gtest.h"
#include "tests/support/trainer/test_model.h"

namespace hearth::trainer {
namespace {

class ActivationLaneTest : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    v1::ModelSpec model = TinyModel("qwen3");
    model.set_layers(GetParam());
    spec::TrainingPlanOptions options;
    options.shape = *spec::ResolveModelShape(model, 8);
    options.recipe = spec::FindRecipe("bf16");
    table_ = spec::BuildParameterTable(options.shape, options.recipe->parameters,
                                       spec::FindOptimizer("adamw"));
    options.table = &table_;
    options.sequence_length = 8;
    options.offload.Add(spec::BufferClass::kActivations);
    arena_ = *Arena::Allocate(*spec::PlanTraining(options), kernels::DType::kF32);
    lane_ = *ActivationLane::New(exec_);
    lane_->SetLayers(*arena_);
  }
  size_t layers() const { return arena_->ids().layers.size(); }
  // What the layer keeps of the two blocks, where it computes.
  std::vector<spec::BufferId> Kept(size_t layer) const {
    const spec::LayerBuffers& ids = arena_->ids().layers[layer];
    return {ids.attention.input, ids.attention.lse, ids.ffn.input, ids.ffn.projected};
  }
  void Fill(size_t layer, uint8_t value) {
    for (const spec::BufferId id : Kept(layer)) {
      std::fill_n(arena_->Bytes(id), arena_->BytesOf(id), value);
    }
  }
  bool Has(size_t layer, uint8_t value) const {
    const std::vector<spec::BufferId> kept = Kept(layer);
    return std::all_of(kept.begin(), kept.end(), [&](spec::BufferId id) {
      const uint8_t* const bytes = arena_->Bytes(id);
      return std::all_of(bytes, bytes + arena_->BytesOf(id),
                         [value](uint8_t byte) { return byte == value; });
    });
  }
  static uint8_t ValueOf(size_t layer, int pass) {
    return static_cast<uint8_t>(16 * pass + static_cast<int>(layer));
  }
  void Forward(bool backward, int pass) {
    lane_->Begin(backward);
    for (size_t l = 0; l < layers(); ++l) {
      ASSERT_TRUE(lane_->BeforeForward(exec_, l).ok());
      Fill(l, ValueOf(l, pass));
      ASSERT_TRUE(lane_->AfterForward(exec_, l).ok());
    }
  }
  std::vector<uint8_t> OnHost() const {
    std::vector<uint8_t> all;
    for (const spec::LayerBuffers& layer : arena_->ids().layers) {
      for (const spec::AwayBuffer& away : layer.away) {
        const uint8_t* const bytes = arena_->Bytes(away.host);
        all.insert(all.end(), bytes, bytes + arena_->BytesOf(away.host));
      }
    }
    return all;
  }

  std::vector<spec::Parameter> table_;
  std::unique_ptr<Arena> arena_;
  kernels::Exec exec_;
  std::unique_ptr<ActivationLane> lane_;
};
INSTANTIATE_TEST_SUITE_P(Layers, ActivationLaneTest, testing::Values(1, 2, 3, 4, 7));

TEST_P(ActivationLaneTest, EachLayer_FindsInBackwardWhatItKept) {
  for (int pass = 1; pass <= 2; ++pass) {
    Forward(/*backward=*/true, pass);
    for (size_t l = layers(); l-- > 0;) {
      ASSERT_TRUE(lane_->BeforeBackward(exec_, l).ok());
      EXPECT_TRUE(Has(l, ValueOf(l, pass))) << "layer " << l << ", pass " << pass;
      Fill(l, 0xEE);  // gradients are written over some of it
      ASSERT_TRUE(lane_->AfterBackward(exec_, l).ok());
    }
  }
}

TEST_P(ActivationLaneTest, OnlyLayersWhoseSlotIsTakenOver_AreOnTheHost) {
  for (size_t l = 0; l < layers(); ++l) {
    EXPECT_EQ(arena_->ids().layers[l].away.empty(), l + spec::kKeptSlots >= layers()) << l;
    for (size_t other = 0; other < l; ++other) {
      EXPECT_EQ(arena_->ids().layers[l].input.index == arena_->ids().layers[other].input.index,
                (l - other) % spec::kKeptSlots == 0);
    }
  }
}

TEST_P(ActivationLaneTest, APassWithoutBackward_CopiesNothing) {
  Forward(/*backward=*/true, 1);
  const std::vector<uint8_t> before = OnHost();
  Forward(/*backward=*/false, 2);
  EXPECT_TRUE(OnHost() == before);
}

}  // namespace
}  // namespace hearth::trainer
