// What a tokenizer.json of a byte-level BPE says, checked.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tokenizer/bpe_model.h"

namespace hearth::tokenizer {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool single_word = false;  // only between characters that are no part of a word
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // and after it
  bool normalized = false;   // looked for in the normalised text
  bool special = false;
};

struct PreTokenizerStep {
  enum class Kind { kPattern, kLiteral, kDigits, kDigitRuns };
  Kind kind = Kind::kPattern;
  std::string pattern;  // of kPattern and kLiteral
};

struct TokenizerFile {
  bool nfc = false;
  std::vector<PreTokenizerStep> steps;
  bool prefix_space = false;  // text that does not begin with a space gets one
  // Bytes of each token by id; empty where no token has that id.
  std::vector<std::string> tokens;
  std::array<int32_t, 256> byte_tokens = {};
  std::vector<Merge> merges;
  bool ignore_merges = false;
  std::vector<int32_t> nameable;  // ids of the model whose names are bytes: what a piece may equal
  std::vector<AddedToken> added;
  // Around a text that is encoded with special tokens (TemplateProcessing).
  std::vector<int32_t> prefix;
  std::vector<int32_t> suffix;

  int32_t vocab() const { return static_cast<int32_t>(tokens.size()); }
};

// Errors begin with `file_name` and the place in it. kInvalidArgument: not JSON (with the byte),
// nested too deep, a value of the wrong type, a merge whose parts or result are not in the
// vocabulary, an id twice, a missing byte; kUnimplemented: a part that Hearth does not have.
absl::StatusOr<TokenizerFile> ParseTokenizerFile(std::string_view text, std::string_view file_name);

// The token that `key` (such as eos_token) names in the text of a tokenizer_config.json: a string
// or an object with `content`. Empty: none. kInvalidArgument as above.
absl::StatusOr<std::string> ConfigToken(std::string_view text,
                                        std::string_view key,
                                        std::string_view file_name);

}  // namespace hearth::tokenizer
