// Weights to and from a Hugging Face model folder, through the parameter table.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/io/env.h"
#include "common/io/verified_files.h"
#include "common/spec/model/model.h"
#include "common/spec/model/parameter_table.h"
#include "worker/trainer/checkpoint/safetensors.h"

namespace hearth::trainer {

// `weights[i]` holds parameter i of `table` in fp32, parameter.elements() values, padding included.
// Writes config.json, model.safetensors in `dtype` (kF32, kBF16 or kF16; round to nearest even)
// without padding, split and transposed as the table's HF tensors say. Creates `dir`.
// `max_position` (tokens) becomes max_position_embeddings of a rope model.
absl::Status WriteHfModel(Env& env,
                          const std::string& dir,
                          const spec::ModelShape& shape,
                          int64_t max_position,
                          const std::vector<spec::Parameter>& table,
                          absl::Span<const float* const> weights,
                          TensorDType dtype);
// The same from weights that are held as bf16.
absl::Status WriteHfModel(Env& env,
                          const std::string& dir,
                          const spec::ModelShape& shape,
                          int64_t max_position,
                          const std::vector<spec::Parameter>& table,
                          absl::Span<const uint16_t* const> weights,
                          TensorDType dtype);

// The inverse: reads model.safetensors, or the files of model.safetensors.index.json, of F32, BF16
// or F16 into fp32; padding becomes zero. kNotFound: no such file; kInvalidArgument: a tensor is
// missing or has another shape (named, with both shapes); kDataLoss: damaged.
absl::Status LoadHfWeights(Env& env,
                           const std::string& dir,
                           const std::vector<spec::Parameter>& table,
                           absl::Span<float* const> weights);

// Files of a model folder that MANIFEST.json records a SHA-256 for, without the state that only a
// resume reads. Empty: it has no MANIFEST.json, as folders from elsewhere. kDataLoss: a damaged
// one.
absl::StatusOr<std::vector<RecordedFile>> RecordedModelFiles(Env& env, const std::string& dir);

}  // namespace hearth::trainer
