#include "common/tokenizer/bpe_tokenizer.h"
#include "common/tokenizer/tokenizer_file.h"
#include "tests/fuzz/targets.h"

namespace hearth::fuzz {

// tokenizer.json, and a text that it encodes.
bool Tokenizer(std::string_view bytes) {
  tokenizer::ConfigToken(bytes, "eos_token", "tokenizer_config.json").status().IgnoreError();
  const auto made = tokenizer::BpeTokenizer::Parse(bytes, "tokenizer.json");
  if (!made.ok()) {
    return false;
  }
  using Special = tokenizer::BpeTokenizer::SpecialTokens;
  const auto tokens = (*made)->Encode("Hello, w\xc3\xb6rld 12345\n\t  <|end|>x", Special::kAdd);
  if (tokens.ok()) {
    (*made)->Decode(*tokens).status().IgnoreError();
  }
  return true;
}

}  // namespace hearth::fuzz
