// Weights to and from a Hugging Face model folder, through the parameter table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/io/env.h"
#include "common/spec/model/model_shape.h"
#include "common/spec/model/parameter.h"
#include "common/weights/model_files.h"
#include "worker/trainer/checkpoint/tensor_files.h"

namespace hearth::trainer {

using weights::kHfWeightsFile;

// How WriteHfModel comes by the weights.
struct HfSource {
  int threads = 1;  // >= 1
  // Copies bytes that `weights` points to into host memory, from several threads at a time. Empty:
  // they are in host memory.
  std::function<absl::Status(void* to, const void* from, size_t bytes)> read = nullptr;
};

// `weights[i]` holds parameter i of `table` in fp32, parameter.elements() values, padding included.
// Writes config.json, model.safetensors in `dtype` (kF32, kBF16 or kF16; round to nearest even)
// without padding, split and transposed as the table's HF tensors say. Creates `dir`.
// `max_position` (tokens) becomes max_position_embeddings of a rope model. Returns the facts of
// model.safetensors.
absl::StatusOr<FileFacts> WriteHfModel(Env& env,
                                       const std::string& dir,
                                       const spec::ModelShape& shape,
                                       int64_t max_position,
                                       const std::vector<spec::Parameter>& table,
                                       absl::Span<const float* const> weights,
                                       TensorDType dtype,
                                       const HfSource& source = {});
// The same from weights that are held as bf16.
absl::StatusOr<FileFacts> WriteHfModel(Env& env,
                                       const std::string& dir,
                                       const spec::ModelShape& shape,
                                       int64_t max_position,
                                       const std::vector<spec::Parameter>& table,
                                       absl::Span<const uint16_t* const> weights,
                                       TensorDType dtype,
                                       const HfSource& source = {});

// The inverse: reads model.safetensors, or the files of model.safetensors.index.json, of F32, BF16
// or F16 into fp32; of a checkpoint also the average. Padding becomes zero. kNotFound: no such
// file; kInvalidArgument: a tensor is missing or has another shape (named, with both shapes);
// kDataLoss: damaged. For kEma also those of weights::StateAverage.
absl::Status LoadHfWeights(Env& env,
                           const std::string& dir,
                           const std::vector<spec::Parameter>& table,
                           absl::Span<float* const> weights,
                           weights::WeightChoice choice = weights::WeightChoice::kStep);

}  // namespace hearth::trainer
