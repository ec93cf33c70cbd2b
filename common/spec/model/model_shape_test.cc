#include "common/spec/model/model_shape.h"

#include "gtest/gtest.h"

namespace hearth::spec {
namespace {

v1::ModelSpec SmallModel(const char* rope_scaling) {
  v1::ModelSpec model;
  model.set_layers(1);
  model.set_hidden(32);
  model.set_heads(2);
  model.set_kv_heads(2);
  model.set_head_dim(16);
  model.set_ffn_hidden(64);
  model.set_vocab(37);
  model.mutable_rope_scaling()->set_type(rope_scaling);
  return model;
}

// Those that the job file's rows name (proto/hearth/v1/job_spec.proto).
TEST(ResolveModelShapeTest, RopeScaling_WithoutNumbers_HasTheRowsDefaults) {
  const absl::StatusOr<ModelShape> shape = ResolveModelShape(SmallModel("llama3"), 64);
  ASSERT_TRUE(shape.ok()) << shape.status();
  EXPECT_EQ(shape->rope_scaling.type, RopeScalingType::kLlama3);
  EXPECT_EQ(shape->rope_scaling.factor, 1.0);
  EXPECT_EQ(shape->rope_scaling.low_freq_factor, 1.0);
  EXPECT_EQ(shape->rope_scaling.high_freq_factor, 4.0);
  EXPECT_EQ(shape->rope_scaling.original_max_position, 8192);
}

TEST(ResolveModelShapeTest, RopeScaling_Given_IsTaken) {
  v1::ModelSpec model = SmallModel("llama3");
  model.mutable_rope_scaling()->set_factor(8);
  model.mutable_rope_scaling()->set_low_freq_factor(2);
  model.mutable_rope_scaling()->set_high_freq_factor(16);
  model.mutable_rope_scaling()->set_original_max_position(4096);
  const absl::StatusOr<ModelShape> shape = ResolveModelShape(model, 64);
  ASSERT_TRUE(shape.ok()) << shape.status();
  EXPECT_EQ(shape->rope_scaling.factor, 8.0);
  EXPECT_EQ(shape->rope_scaling.low_freq_factor, 2.0);
  EXPECT_EQ(shape->rope_scaling.high_freq_factor, 16.0);
  EXPECT_EQ(shape->rope_scaling.original_max_position, 4096);
}

}  // namespace
}  // namespace hearth::spec
