// A folder's tokenizer as llama.cpp reads it from tokenizer.ggml.* of a GGUF file. Facts:
// convert_hf_to_gguf.py and src/llama-vocab.cpp of llama.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/io/env.h"
#include "common/weights/gguf_file.h"

namespace hearth::weights {

struct GgufTokenizer {
  GgufMetadata metadata;
  std::vector<std::string> notes;  // for people
};

// Describes the tokenizer of a dataset or checkpoint (hearth_tokenizer.json), else tokenizer.model,
// else tokenizer.json. Bytes and byte-level BPE are "gpt2" there (bytes have no merges),
// sentencepiece is "llama" or, for unigram models, "t5". Tokens up to `vocab`, that of the model,
// which the tokenizer lacks are unused ones named [PADn].
//   kNotFound: the folder has no tokenizer. kUnimplemented: llama.cpp cannot do what it does; says
//   what. kInvalidArgument, kDataLoss: a damaged file, or more tokens than the model has.
absl::StatusOr<GgufTokenizer> DescribeTokenizer(Env& env, const std::string& dir, int64_t vocab);

// The same for a sentencepiece model's bytes (`file_name` in errors), with the tokens that it has.
absl::StatusOr<GgufTokenizer> DescribeSentencePiece(const std::string& bytes,
                                                    const std::string& file_name);

// Metadata of a file that has no tokenizer.
GgufMetadata NoTokenizer();

}  // namespace hearth::weights
