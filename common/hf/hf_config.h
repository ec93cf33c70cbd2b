// config.json of a Hugging Face model folder to ModelSpec, and a shape to config.json.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/io/env.h"
#include "common/spec/model/model_shape.h"
#include "hearth/v1/job.pb.h"

namespace hearth::hf {

// Understands model_type llama, mistral, phi3, qwen2, qwen3, gpt2 and hearth. Sets every shape
// field of ModelSpec. kInvalidArgument: not JSON, missing or impossible field (named);
// kUnimplemented: another model_type or an option that changes the mathematics (named), such as a
// sliding window shorter than the context.
absl::StatusOr<v1::ModelSpec> ModelSpecFromHfConfig(std::string_view json,
                                                    std::string_view file_name);

// Text of config.json in the class that spec::DetectHfClass names. `max_position`:
// max_position_embeddings of a rope model (tokens). `dtype`: float32 | bfloat16 | float16.
std::string HfConfig(const spec::ModelShape& shape, int64_t max_position, std::string_view dtype);

// ModelSpecFromHfConfig of `dir`/config.json. kNotFound names the file.
absl::StatusOr<v1::ModelSpec> ReadHfConfig(const std::string& dir, Env& env = Env::Real());

}  // namespace hearth::hf
