// GGUF version 3: metadata, tensor infos, and the tensors' bytes at multiples of 32. Facts:
// ggml/docs/gguf.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/formats/stored_formats.h"
#include "common/io/env.h"
#include "common/weights/safetensors.h"

namespace hearth::weights {

using GgufValue = std::variant<uint32_t,
                               float,
                               bool,
                               std::string,
                               std::vector<std::string>,
                               std::vector<float>,
                               std::vector<int32_t>,
                               std::vector<uint8_t>>;
// In the order of the file; each key once.
using GgufMetadata = std::vector<std::pair<std::string, GgufValue>>;

struct GgufTensor {
  std::string name;
  std::vector<int64_t> shape;  // rows first, at most 4; the file names the dimensions backwards
  const formats::StoredFormat* format = &formats::kStoredF32;

  int64_t columns() const { return shape.back(); }
  int64_t rows() const;
  // columns() is a multiple of the format's block.
  int64_t bytes() const { return rows() * format->Bytes(columns()); }
};

// Fills `out` with rows [first, first + rows) of tensor `index` as fp32. Called from several
// threads at a time.
using FillRows = std::function<absl::Status(size_t index, int64_t first, int64_t rows, float* out)>;

// Fills `out` with the bytes of a row of tensor `index` in the tensor's own format, from `begin`
// on. False: `fill` has it, as all rows of that tensor. Called from several threads at a time.
using EncodedRow =
    std::function<bool(size_t index, int64_t row, int64_t begin, absl::Span<uint8_t> out)>;

// Writes the file with `threads` threads (>= 1), on which its bytes do not depend, and some
// megabytes of memory for each. kInvalidArgument: two tensors of one name; a value that a format
// with blocks cannot hold, also one that is not finite (tensor and row are named). Errors: those of
// `fill` and Env.
absl::StatusOr<FileFacts> WriteGguf(Env& env,
                                    const std::string& path,
                                    const GgufMetadata& metadata,
                                    absl::Span<const GgufTensor> tensors,
                                    const FillRows& fill,
                                    int threads,
                                    const EncodedRow& encoded = {});

}  // namespace hearth::weights
