// Byte-pair merges inside one piece of text.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"

namespace hearth::tokenizer {

struct Merge {
  int32_t left = 0;
  int32_t right = 0;
  int32_t result = 0;  // the token of both, one after the other
};

// The tokens and merges of a model. Immutable, so thread-safe.
class BpeModel {
 public:
  struct Parts {
    std::array<int32_t, 256> byte_tokens = {};  // byte -> token
    std::vector<Merge> merges;                  // best first; each pair once
    // Pieces that are a token of their own, whatever the merges say (ignore_merges); may be empty.
    absl::flat_hash_map<std::string, int32_t> whole;
  };

  // What a thread keeps from piece to piece: 4 MiB of the words it met, and buffers that grow with
  // the longest piece (28 bytes a byte of it). Not thread-safe.
  class Scratch {
   public:
    Scratch();
    ~Scratch();

   private:
    friend class BpeModel;
    struct State;
    std::unique_ptr<State> state_;
  };

  explicit BpeModel(Parts parts);

  // Where tokens go: behind tokens[size], which is raised. The vector grows as it has to and never
  // shrinks.
  struct Output {
    std::vector<int32_t> tokens;
    size_t size = 0;
  };

  // Makes a piece (any bytes, not empty) into tokens: at each step the best merge, the leftmost of
  // equals. They come out when some more pieces were added, at the latest with Finish; the bytes
  // must live until then. `end`: up to it memory behind the piece may be read. A Scratch serves one
  // model only.
  void Add(std::string_view piece, const char* end, Scratch* scratch, Output* out) const;
  void Finish(Scratch* scratch, Output* out) const;

 private:
  struct Slot {
    uint64_t pair = kNoPair;
    uint32_t rank = 0;
    int32_t result = 0;
  };
  struct HeapEntry;
  static constexpr uint64_t kNoPair = ~uint64_t{0};
  static constexpr uint32_t kNoRank = ~uint32_t{0};

  static uint64_t Pair(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  const Slot* Find(int32_t left, int32_t right) const;
  uint32_t Rank(int32_t left, int32_t right) const;
  // `tokens` holds a token for each byte; the tokens that remain go to its front. Returns how many.
  size_t MergeShort(int32_t* tokens, size_t n) const;
  void MergeLong(Scratch::State* state) const;
  void EncodeUncached(std::string_view piece, Scratch::State* state) const;
  void EncodeNext(Scratch::State* state, Output* out) const;

  Parts parts_;
  std::vector<Slot> table_;  // open addressing, a power of two
  int shift_ = 0;
};

}  // namespace hearth::tokenizer
