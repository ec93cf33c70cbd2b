// Learning a byte-level BPE from text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"

namespace hearth::tokenizer {

// How often each piece occurs, cut as by Llama-3. Not thread-safe: each thread counts its own
// texts, and the sums do not depend on which thread had which.
class PieceCounts {
 public:
  // Pieces longer than this are left out: they are data, not words.
  static constexpr size_t kMaxPiece = 256;

  // `text`: valid UTF-8.
  void Add(std::string_view text);
  void Add(const PieceCounts& other);

 private:
  friend class Trainer;
  absl::flat_hash_map<std::string, int64_t> counts_;
};

// Token that ends a document; the last id of a trained tokenizer.
inline constexpr std::string_view kEndOfText = "<|endoftext|>";

// The text of a tokenizer.json with `vocab` tokens: 256 bytes, merges, kEndOfText. The next merge
// is the pair that occurs most often, of equals the one with the lower ids; the same counts give
// the same bytes. kInvalidArgument: `vocab` below 257, or too few pairs of the text occur twice.
absl::StatusOr<std::string> TrainBpe(const PieceCounts& counts, int32_t vocab);

// The tokenizer_config.json that belongs to it.
std::string TrainedTokenizerConfig();

}  // namespace hearth::tokenizer
