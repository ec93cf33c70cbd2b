// How many tokens a model has positions for.
#pragma once

#include <cstdint>
#include <optional>

#include "hearth/v1/job.pb.h"

namespace hearth::spec {

// Whether the model has a row of a table for each position.
bool LearnsPositions(const v1::ModelSpec& model);

// The tokens that a sample or text of the model may have at most; nothing: any number, or the spec
// does not say.
std::optional<int64_t> PositionLimit(const v1::ModelSpec& model);
// `tokens`, or the model's limit where that is less.
int64_t WithinPositions(const v1::ModelSpec& model, int64_t tokens);

}  // namespace hearth::spec
