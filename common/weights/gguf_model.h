// What llama.cpp calls a model's architecture, sizes and tensors. Facts: convert_hf_to_gguf.py and
// src/llama-model.cpp of llama.cpp. What it does with the scale of an NVFP4 tensor:
// src/llama-model.cpp (reads "scale" beside the weights of any layer), build_qkv, build_attn and
// build_ffn of src/llama-graph.cpp (multiply a product by it), and src/models/ at commits 069be0ae
// (llama, qwen3: pass all of them), 0215468f (qwen2) and 82234e08 (gpt2: those of the feed-forward
// block are left out).
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
// multiple of its block; vectors and learned positions stay f32. In a format with a scale of the
// tensor each such matrix has a tensor of one element beside it, "<name>.scale", and matrices
// outside the layers stay bf16. A tied output projection is left out. kUnimplemented: llama.cpp has
// no architecture that computes this model, or not in this format; says why.
absl::StatusOr<GgufModel> DescribeGguf(const spec::ModelShape& shape,
                                       const std::vector<spec::Parameter>& table,
                                       const formats::StoredFormat& format);

}  // namespace hearth::weights
