// Weights to and from a Hugging Face model folder, through the parameter table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <variant>
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

// What WriteHfModel writes.
struct HfModel {
  const spec::ModelShape& shape;
  int64_t max_position;  // tokens; max_position_embeddings of a rope model
  const std::vector<spec::Parameter>& table;
  // [i] holds parameter i of `table`, parameter.elements() values, padding included: in fp32 or, as
  // uint16_t, in bf16.
  std::variant<absl::Span<const float* const>, absl::Span<const uint16_t* const>> weights;
  TensorDType dtype;  // of the file: kF32, kBF16 or kF16, rounded to nearest even
};

// Writes config.json, and model.safetensors without padding, split and transposed as the table's HF
// tensors say. Creates `dir`. Returns the facts of model.safetensors.
absl::StatusOr<FileFacts> WriteHfModel(Env& env,
                                       const std::string& dir,
                                       const HfModel& model,
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
