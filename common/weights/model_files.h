// The weights of a Hugging Face model folder, read through the parameter table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/io/env.h"
#include "common/spec/model/parameter.h"
#include "common/weights/safetensors.h"
#include "common/weights/state_average.h"

namespace hearth::weights {

inline constexpr std::string_view kHfWeightsFile = "model.safetensors";
inline constexpr std::string_view kHfIndexFile = "model.safetensors.index.json";
inline constexpr std::string_view kHfConfigFile = "config.json";

// Elements of a row: 1 of a vector.
int64_t Columns(const spec::Parameter& parameter);
// The shape that a parameter's tensor has in the files.
std::vector<int64_t> HfShape(const spec::Parameter& parameter, const spec::HfTensor& tensor);

// Whether values of the format can be read: F32, BF16 or F16.
bool IsFloat(TensorDType dtype);
// Elements from `begin` on as fp32. `tensor` is of such a format.
void ReadElements(const TensorView& tensor, int64_t begin, absl::Span<float> out);

// All safetensors files of a folder: model.safetensors, or those that its index names. Immutable,
// thread-safe.
class ModelFiles {
 public:
  // kNotFound: no such file. kDataLoss names a damaged one.
  static absl::StatusOr<ModelFiles> Open(Env& env, const std::string& dir);

  // nullptr when there is none. Some published checkpoints lack the leading "model." or
  // "transformer.".
  const TensorView* Find(std::string_view name) const;

  // All, file by file, by offset.
  std::vector<const TensorView*> Tensors() const;

  const std::string& dir() const { return dir_; }

 private:
  std::string dir_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
};

// Which weights of a checkpoint: those of its step, or their running average (train.ema).
enum class WeightChoice : uint8_t { kStep, kEma };

// A folder's weights as parameters. Immutable, thread-safe.
class WeightReader {
 public:
  // Checks that every tensor of the table is there. `table` outlives the object. kInvalidArgument:
  // a tensor is missing, has another shape (both are named) or format; otherwise as ModelFiles, and
  // for kEma as StateAverage.
  static absl::StatusOr<WeightReader> Open(Env& env,
                                           const std::string& dir,
                                           const std::vector<spec::Parameter>& table,
                                           WeightChoice choice = WeightChoice::kStep);

  // Rows [first, first + rows) of parameter `k`, without padding, as fp32: rows * Columns values,
  // laid out as in memory, not as in the file.
  void ReadRows(size_t k, int64_t first, int64_t rows, float* out) const;
  // Elements from `begin` on of a tensor of files(), laid out as there, as fp32.
  void ReadTensor(const TensorView& tensor, int64_t begin, absl::Span<float> out) const;

  // The weights of the step; names and shapes are those of the average, too.
  const ModelFiles& files() const { return files_; }

 private:
  WeightReader(ModelFiles files, const std::vector<spec::Parameter>& table)
      : files_(std::move(files)), table_(&table) {}

  // Elements from `begin` on of the average of a tensor of the file.
  void ReadAverage(size_t k,
                   const spec::HfTensor& tensor,
                   int64_t begin,
                   absl::Span<float> out) const;

  ModelFiles files_;
  const std::vector<spec::Parameter>* table_;
  std::optional<StateAverage> average_;                  // kEma
  std::vector<std::vector<const TensorView*>> tensors_;  // of each parameter, as its `hf`
};

}  // namespace hearth::weights
