// What dataset.json says. docs/formats.md describes the bytes on disk.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tokenizer/tokenizer_kind.h"

namespace hearth::dataset {

using tokenizer::TokenizerKind;

inline constexpr std::string_view kDatasetFileName = "dataset.json";
inline constexpr int kFormatVersion = 1;

enum class TokenWidth : int { kUint16 = 2, kUint32 = 4 };  // bytes per token on disk, little-endian

inline int Bytes(TokenWidth width) {
  return static_cast<int>(width);
}

struct TokenizerInfo {
  TokenizerKind kind = TokenizerKind::kNone;  // one that may be recorded
  std::string file;                           // inside the folder; empty: the kind has no file
  int32_t vocab = 0;
  int32_t eos = -1;  // -1 = none

  bool known() const { return kind != TokenizerKind::kNone; }
};

struct ShardInfo {
  std::string file;              // inside the folder, no path separators
  int64_t tokens = 0;            // file size = tokens * width
  std::string sha256;            // hex; empty = not recorded
  std::string mask = {};         // file of its mask, one byte a token; empty: the dataset has none
  std::string mask_sha256 = {};  // hex; empty = not recorded
};

// Bits of a mask's byte.
inline constexpr uint8_t kMaskCounts = 1;  // the token counts in the loss when it is predicted
inline constexpr uint8_t kMaskEnds = 2;    // a document ends behind the token
inline constexpr uint8_t kMaskBits = kMaskCounts | kMaskEnds;

struct DatasetInfo {
  std::string name;
  std::string split;  // train | validation | all
  TokenizerInfo tokenizer;
  int32_t vocab = 0;  // every token is < vocab
  TokenWidth width = TokenWidth::kUint16;
  int64_t documents = 0;
  int64_t tokens = 0;  // sum over shards
  int32_t eos = -1;    // token that ends each document, -1 = none; with a mask it may be in them
  int64_t loss_tokens = -1;  // that count by the mask; -1: there is no mask
  std::vector<ShardInfo> shards;

  bool has_mask() const { return loss_tokens >= 0; }
  // Whether it says where documents end.
  bool has_documents() const { return eos >= 0 || has_mask(); }
};

// Parses the text of dataset.json (`file_name` in errors). kInvalidArgument: not JSON, a field
// missing, of the wrong type or out of range, an unknown version, a shard name that leaves the
// folder.
absl::StatusOr<DatasetInfo> ParseDatasetInfo(std::string_view text, std::string_view file_name);

// {kind, file, vocab, eos}: the "tokenizer" object of dataset.json, and hearth_tokenizer.json.
absl::StatusOr<TokenizerInfo> ParseTokenizerInfo(std::string_view text, std::string_view file_name);
std::string ToJson(const TokenizerInfo& info);

std::string ToJson(const DatasetInfo& info);  // ends in a newline; the same bytes for the same info

}  // namespace hearth::dataset
