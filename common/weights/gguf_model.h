// What llama.cpp calls a model's architecture, sizes and tensors. Facts: convert_hf_to_gguf.py and
// src/llama-model.cpp of llama.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/formats/stored_formats.h"
#include "common/spec/model/model_shape.h"
#include "common/spec/model/parameter.h"
#include "common/weights/gguf_file.h"

namespace hearth::weights {

// Where a tensor's rows come from.
struct GgufSource {
  GgufTensor tensor;
  int parameter = -1;      // index into the table; -1: `values`
  int64_t row_offset = 0;  // of the parameter's rows
  // > 0: the rows are heads whose dimensions i and i + half are neighbours in the file, because
  // llama.cpp's llama rotates neighbours where Hugging Face rotates halves. Row h D + 2 i + j of
  // the file is row h D + j D / 2 + i here.
  int64_t head_dim = 0;
  std::vector<float> values;

  // The parameter's row that is row `row` of the tensor.
  int64_t RowOf(int64_t row) const;
};

struct GgufModel {
  GgufMetadata metadata;  // sizes and constants, without general.name and tokenizer
  std::vector<GgufSource> tensors;
  std::vector<std::string> notes;  // for people
};

// `table`: of the shape. Matrices get `format`, or f16 (with a note) where their rows are no
// multiple of its block; vectors and learned positions stay f32. A tied output projection is left
// out. kUnimplemented: llama.cpp has no architecture that computes this model; says why.
absl::StatusOr<GgufModel> DescribeGguf(const spec::ModelShape& shape,
                                       const std::vector<spec::Parameter>& table,
                                       const formats::StoredFormat& format);

}  // namespace hearth::weights
