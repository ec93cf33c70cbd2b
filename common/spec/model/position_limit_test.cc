#include "common/spec/model/position_limit.h"

#include "gtest/gtest.h"

namespace hearth::spec {
namespace {

TEST(PositionLimitTest, LearnedPositions_HaveTheRowsOfTheirTable) {
  v1::ModelSpec model;
  model.set_position("learned");
  EXPECT_TRUE(LearnsPositions(model));
  EXPECT_EQ(PositionLimit(model), std::nullopt) << "the spec does not say";
  model.set_max_position(1024);
  EXPECT_EQ(PositionLimit(model), 1024);
  EXPECT_EQ(WithinPositions(model, 1024), 1024);
  EXPECT_EQ(WithinPositions(model, 1025), 1024);
}

TEST(PositionLimitTest, OtherPositions_HaveNone) {
  v1::ModelSpec model;
  model.set_max_position(1024);
  for (const char* position : {"", "rope"}) {
    model.set_position(position);
    EXPECT_FALSE(LearnsPositions(model)) << position;
    EXPECT_EQ(PositionLimit(model), std::nullopt) << position;
    EXPECT_EQ(WithinPositions(model, 4096), 4096) << position;
  }
}

}  // namespace
}  // namespace hearth::spec
