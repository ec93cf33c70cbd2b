// Byte-level BPE from tokenizer.json: the same tokens as Hugging Face's tokenizers library.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/tokenizer/added_tokens.h"
#include "common/tokenizer/bpe_model.h"
#include "common/tokenizer/pretokenizer.h"
#include "common/tokenizer/tokenizer_file.h"

namespace hearth::tokenizer {

// Thread-safe: calls of several threads run side by side, each with buffers of its own.
class BpeTokenizer {
 public:
  enum class SpecialTokens { kNone, kAdd };  // what the file's template puts around a text

  // `text`: a tokenizer.json. Errors as of ParseTokenizerFile and Regex::Compile, with `file_name`.
  static absl::StatusOr<std::unique_ptr<BpeTokenizer>> Parse(std::string_view text,
                                                             std::string_view file_name);
  ~BpeTokenizer();

  // kInvalidArgument: not UTF-8, with the byte; kResourceExhausted as of Regex::Find.
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text, SpecialTokens special) const;

  // The bytes of the tokens, added ones as they are written. Decode(Encode(text)) is `text` if the
  // file has no normaliser, no prefix space and no added token that takes white space.
  // kInvalidArgument: a number that is not a token.
  absl::StatusOr<std::string> Decode(absl::Span<const int32_t> tokens) const;

  int32_t vocab() const { return file_.vocab(); }  // all tokens are below
  // -1: no such token.
  int32_t IdOf(std::string_view added_token) const;
  // Whether texts get tokens before or behind them with SpecialTokens::kAdd.
  bool has_template() const { return !file_.prefix.empty() || !file_.suffix.empty(); }

 private:
  struct Buffers {
    BpeModel::Scratch model;
    RegexScratch regex;
  };
  // The buffers that no call uses: as many as calls ran side by side.
  class Pool;

  explicit BpeTokenizer(TokenizerFile file);
  absl::Status Build();
  absl::Status EncodePart(std::string_view text, Buffers* buffers, BpeModel::Output* out) const;

  TokenizerFile file_;  // without merges
  std::unique_ptr<BpeModel> model_;
  PreTokenizer pre_tokenizer_;
  AddedTokens raw_;         // looked for before normalisation
  AddedTokens normalized_;  // and behind it
  std::unique_ptr<Pool> pool_;
};

}  // namespace hearth::tokenizer
