#include "common/spec/model/position_limit.h"

#include <algorithm>

#include "common/spec/model/model_shape.h"

namespace hearth::spec {

bool LearnsPositions(const v1::ModelSpec& model) {
  return model.position() == PositionNames()[static_cast<size_t>(Position::kLearned)];
}

std::optional<int64_t> PositionLimit(const v1::ModelSpec& model) {
  return LearnsPositions(model) && model.max_position() >= 1
             ? std::optional<int64_t>(model.max_position())
             : std::nullopt;
}

int64_t WithinPositions(const v1::ModelSpec& model, int64_t tokens) {
  return std::min(tokens, PositionLimit(model).value_or(tokens));
}

}  // namespace hearth::spec
