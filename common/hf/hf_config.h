// config.json of a Hugging Face model folder to ModelSpec and back. Pure but for ReadHfConfig.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/io/env.h"
#include "hearth/v1/job.pb.h"

namespace hearth::hf {

// Value of "model_type" that this shape is written as: llama | qwen2 | qwen3 | gpt2, or "hearth" when no class has the shape.
std::string HfModelType(const v1::ModelSpec& model);

// Understands llama, mistral without sliding window, qwen2, qwen3, gpt2 and hearth. Sets every shape field of ModelSpec.
// kInvalidArgument: not JSON, missing or impossible field (named); kUnimplemented: another model_type or option.
absl::StatusOr<v1::ModelSpec> ModelSpecFromHfConfig(std::string_view json, std::string_view file_name);

// `model` must be resolved. `dtype`: float32 | bfloat16 | float16.
std::string HfConfigFromModelSpec(const v1::ModelSpec& model, std::string_view dtype);

// Of `dir`/config.json. kNotFound names the file.
absl::StatusOr<v1::ModelSpec> ReadHfConfig(const std::string& dir, Env& env = Env::Real());

}  // namespace hearth::hf
