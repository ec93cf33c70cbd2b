// THE parameter table: every parameter of a model, in the one order that checkpoints, sharding,
// reduction and the memory plan share. Hugging Face I/O, plan, optimizers and quantisation read it
// and nothing else. It is made of what the model's blocks describe (common/spec/plan/blocks).
//
// Order: that of the blocks, embedding, the blocks of each layer, head; in each as it lists them, a
// weight before its bias.
#pragma once

#include <cstdint>
#include <vector>

#include "common/spec/model/model_shape.h"
#include "common/spec/model/parameter.h"
#include "common/spec/optimizer/optimizer_table.h"
#include "common/spec/recipe/recipe.h"

namespace hearth::spec {

// `formats` are the recipe's (GradientSpec.dtype put in by the caller). Names of Hugging Face
// tensors follow DetectHfClass. Without an optimizer parameters have no states;
// without a format of states these are in fp32.
std::vector<Parameter> BuildParameterTable(const ModelShape& shape,
                                           const ParameterFormats& formats = {},
                                           const OptimizerRow* optimizer = nullptr,
                                           const StateFormatRow* state_format = nullptr);

// Parameters without vocabulary padding; a tied output projection is counted once.
int64_t CountParameters(const ModelShape& shape);

// Floating point operations to train on one token: 6 (N - tables that are only looked up) +
// 6 L Hq D T, causal attention counted once. Looked up are an untied input embedding and a learned
// position table.
double FlopsPerToken(const ModelShape& shape, int64_t sequence_length);

}  // namespace hearth::spec
