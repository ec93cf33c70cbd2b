// The table of kinds of tokenizers. What opens one of a kind lives in common/dataset, keyed by
// TokenizerKind.
#pragma once

#include <cstdint>
#include <string_view>

#include "common/base/table_rows.h"

namespace hearth::tokenizer {

// kNone: the folder records none. kOther: a tokenizer.json that is not byte-level BPE as
// bpe_tokenizer.h reads it.
enum class TokenizerKind : uint8_t { kBytes, kSentencePiece, kBpe, kNone, kOther };

// Usual names of their files.
inline constexpr std::string_view kSentencePieceFileName = "tokenizer.model";
inline constexpr std::string_view kBpeFileName = "tokenizer.json";

struct TokenizerKindRow {
  TokenizerKind kind;
  std::string_view name;  // in dataset.json, hearth_tokenizer.json and TokenizerFacts.kind
  std::string_view file;  // its usual name in a folder; empty: the kind has no file
  // dataset.json and hearth_tokenizer.json may say it.
  bool recorded;
  // TokenizerFacts has the tokens of a fixed text: files of other programs may be the same
  // tokenizer although their bytes differ.
  bool probed;
};

inline constexpr TokenizerKindRow kTokenizerKinds[] = {
    {TokenizerKind::kBytes, "bytes", "", true, false},
    {TokenizerKind::kSentencePiece, "sentencepiece", kSentencePieceFileName, true, false},
    {TokenizerKind::kBpe, "bpe", kBpeFileName, true, true},
    {TokenizerKind::kNone, "none", "", true, false},
    {TokenizerKind::kOther, "other", kBpeFileName, false, false},
};

// Null: no kind has this name.
constexpr const TokenizerKindRow* FindTokenizerKind(std::string_view name) {
  return FindRow(kTokenizerKinds, &TokenizerKindRow::name, name);
}

constexpr const TokenizerKindRow& RowOf(TokenizerKind kind) {
  return *FindRow(kTokenizerKinds, &TokenizerKindRow::kind, kind);
}

constexpr std::string_view NameOf(TokenizerKind kind) {
  return RowOf(kind).name;
}

}  // namespace hearth::tokenizer
