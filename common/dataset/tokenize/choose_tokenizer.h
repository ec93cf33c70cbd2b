// The tokenizer that `--tokenizer` names, and that of a folder.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/dataset/tokenize/tokenizer.h"
#include "common/io/env.h"

namespace hearth::dataset {

// bytes | sentencepiece:VOCAB | bpe:VOCAB | FILE.model | FILE.json | a folder with tokenizer.json
struct TokenizerChoice {
  enum class Kind { kBytes, kTrainSentencePiece, kTrainBpe, kModelFile, kJsonFile };
  Kind kind = Kind::kBytes;
  int32_t vocab = 0;  // of a training
  std::string file;   // of a given one
};

// kInvalidArgument: none of the forms, or a vocabulary out of range.
absl::StatusOr<TokenizerChoice> ParseTokenizerChoice(std::string_view text, Env& env);

struct ChosenTokenizer {
  std::unique_ptr<Tokenizer> tokenizer;
  std::map<std::string, std::string> files;  // that travel with it: name and bytes
};

// Texts to learn from, up to about `bytes` in all: calls `work` for each, several at a time, and
// `commit` in a fixed order, one at a time.
struct TrainingTexts {
  using Take = std::function<void(std::string_view)>;
  std::function<absl::Status(int64_t bytes, const Take& work, const Take& commit)> for_each;
};

// Reads or trains it. `end_token` names the token that ends a document in a FILE.json; empty: what
// the eos_token of the tokenizer_config.json beside it says. kInvalidArgument: no such token.
absl::StatusOr<ChosenTokenizer> ChooseTokenizer(const TokenizerChoice& choice,
                                                std::string_view end_token,
                                                const TrainingTexts& texts,
                                                Env& env);

// The tokenizer of a dataset, checkpoint or Hugging Face folder: what is recorded there
// (RecordedTokenizer), else tokenizer.json, else tokenizer.model. The end token of a tokenizer.json
// is the eos_token of the tokenizer_config.json beside it; -1 without one. Errors:
// kFailedPrecondition (none of these, or kind "none"); those of BpeTokenizer::Parse and
// TokenizerProcess::Start.
absl::StatusOr<std::unique_ptr<Tokenizer>> OpenTokenizerIn(const std::string& dir,
                                                           Env& env = Env::Real());

}  // namespace hearth::dataset
