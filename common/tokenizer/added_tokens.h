// Finding added tokens in text.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/tokenizer/tokenizer_file.h"

namespace hearth::tokenizer {

// A set of added tokens. Immutable, so thread-safe.
class AddedTokens {
 public:
  struct Part {
    int32_t id = -1;        // -1: text between tokens
    std::string_view text;  // not empty; what lstrip and rstrip took belongs to the token
  };

  // The content that is looked for is `content`, in NFC where the text is.
  void Add(const AddedToken& token, std::string_view content);
  bool empty() const { return tokens_.empty(); }

  // The parts of `text` (valid UTF-8) in order: the leftmost token, of those the longest, then what
  // follows it.
  std::vector<Part> Split(std::string_view text) const;

 private:
  struct Entry {
    AddedToken token;
    size_t length = 0;
  };

  // The first place from `at` on whose byte begins a token; text.size(): none.
  size_t NextBegin(std::string_view text, size_t at) const;
  // The longest token at `at`, or nullptr.
  const Entry* Match(std::string_view text, size_t at) const;

  std::vector<Entry> tokens_;
  std::bitset<256> first_;  // bytes with which tokens begin
  char begin_ = 0;          // one of them
  // A trie: node and byte to node; node to entry, -1 for none.
  absl::flat_hash_map<uint64_t, uint32_t> edges_;
  std::vector<int32_t> entry_of_node_ = {-1};
};

}  // namespace hearth::tokenizer
