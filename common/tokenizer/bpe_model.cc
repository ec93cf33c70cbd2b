#include "common/tokenizer/bpe_model.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <utility>

namespace hearth::tokenizer {
namespace {

constexpr size_t kShortPiece = 48;   // above it a heap beats looking at all pairs
constexpr size_t kCachedBytes = 31;  // the key's last byte is the length
constexpr size_t kCachedTokens = 7;
constexpr int kCacheBits = 16;
constexpr uint64_t kHashFactor = 0x9e3779b97f4a7c15u;

struct Key {
  uint64_t words[4];
  bool operator==(const Key& other) const {
    return ((words[0] ^ other.words[0]) | (words[1] ^ other.words[1]) |
            (words[2] ^ other.words[2]) | (words[3] ^ other.words[3])) == 0;
  }
};

// From byte sizeof(Key) - n on: n ones, then zeros.
constexpr auto kMasks = [] {
  std::array<uint8_t, 2 * sizeof(Key)> masks{};
  std::fill_n(masks.begin(), sizeof(Key), 0xff);
  return masks;
}();

// A piece of at most kCachedBytes bytes, zeros, its length. `end`: of readable memory.
inline Key MakeKey(std::string_view piece, const char* end) {
  Key key = {};
  if (static_cast<size_t>(end - piece.data()) >= sizeof key) {
    // Copies of a fixed size stay in registers.
    Key mask;
    std::memcpy(&key, piece.data(), sizeof key);
    std::memcpy(&mask, kMasks.data() + sizeof key - piece.size(), sizeof mask);
    for (size_t i = 0; i < std::size(key.words); ++i) {
      key.words[i] &= mask.words[i];
    }
  } else {
    std::memcpy(key.words, piece.data(), piece.size());
  }
  key.words[3] |= static_cast<uint64_t>(piece.size()) << 56;
  return key;
}

size_t CacheSlot(const Key& key) {
  uint64_t h = key.words[0] * kHashFactor;
  h = (h ^ (h >> 32) ^ key.words[1]) * kHashFactor;
  h = (h ^ (h >> 32) ^ key.words[2]) * kHashFactor;
  h = (h ^ (h >> 32) ^ key.words[3]) * kHashFactor;
  return h >> (64 - kCacheBits);
}

struct alignas(64) CacheEntry {  // a line of the processor's cache
  Key key;                       // all zero: empty, as no piece has the length 0
  int32_t count;
  int32_t tokens[kCachedTokens];
};
static_assert(sizeof(CacheEntry) == 64);

// A piece that waits for its entry, which the processor fetches meanwhile: the cache is larger than
// those near to it.
struct Waiting {
  Key key;
  std::string_view piece;
  CacheEntry* entry;  // null: it is too long for one
};
constexpr size_t kMostWaiting = 16;

}  // namespace

struct BpeModel::HeapEntry {
  uint32_t rank;
  uint32_t at;
  int32_t left;
  int32_t right;
  bool operator<(const HeapEntry& other) const {  // the heap's top is the best, leftmost
    return rank != other.rank ? rank > other.rank : at > other.at;
  }
};

struct BpeModel::Scratch::State {
  std::vector<CacheEntry> cache = std::vector<CacheEntry>(size_t{1} << kCacheBits);
  std::array<Waiting, kMostWaiting> waiting;  // a ring
  size_t added = 0;
  size_t encoded = 0;
  std::vector<int32_t> tokens;  // of the piece at hand
  std::vector<uint32_t> previous;
  std::vector<uint32_t> next;
  std::vector<HeapEntry> heap;
};

BpeModel::Scratch::Scratch() : state_(std::make_unique<State>()) {}
BpeModel::Scratch::~Scratch() = default;

BpeModel::BpeModel(Parts parts) : parts_(std::move(parts)) {
  int bits = 4;
  // At most half full: Find ends at an empty slot, so there always has to be one.
  while (size_t{1} << bits < parts_.merges.size() * 2 + 1) {
    ++bits;
  }
  shift_ = 64 - bits;
  table_.resize(size_t{1} << bits);
  const size_t mask = table_.size() - 1;
  for (size_t i = 0; i < parts_.merges.size(); ++i) {
    const Merge& merge = parts_.merges[i];
    const uint64_t pair = Pair(merge.left, merge.right);
    size_t at = (pair * kHashFactor) >> shift_;
    while (table_[at].pair != kNoPair && table_[at].pair != pair) {
      at = (at + 1) & mask;
    }
    table_[at] = {pair, static_cast<uint32_t>(i), merge.result};
  }
  parts_.merges.clear();
  parts_.merges.shrink_to_fit();
}

const BpeModel::Slot* BpeModel::Find(int32_t left, int32_t right) const {
  const uint64_t pair = Pair(left, right);
  const size_t mask = table_.size() - 1;
  for (size_t at = (pair * kHashFactor) >> shift_;; at = (at + 1) & mask) {
    const Slot& slot = table_[at];
    if (slot.pair == pair) {
      return &slot;
    }
    if (slot.pair == kNoPair) {
      return nullptr;
    }
  }
}

uint32_t BpeModel::Rank(int32_t left, int32_t right) const {
  const Slot* slot = Find(left, right);
  return slot == nullptr ? kNoRank : slot->rank;
}

size_t BpeModel::MergeShort(int32_t* tokens, size_t n) const {
  uint32_t ranks[kShortPiece];
  for (size_t i = 0; i + 1 < n; ++i) {
    ranks[i] = Rank(tokens[i], tokens[i + 1]);
  }
  while (n > 1) {
    // The leftmost of equal ranks, as BPE has it.
    const size_t best = static_cast<size_t>(std::min_element(ranks, ranks + n - 1) - ranks);
    if (ranks[best] == kNoRank) {
      break;
    }
    tokens[best] = Find(tokens[best], tokens[best + 1])->result;
    std::copy(tokens + best + 2, tokens + n, tokens + best + 1);
    --n;
    if (best + 1 < n) {
      std::copy(ranks + best + 2, ranks + n, ranks + best + 1);
      ranks[best] = Rank(tokens[best], tokens[best + 1]);
    }
    if (best > 0) {
      ranks[best - 1] = Rank(tokens[best - 1], tokens[best]);
    }
  }
  return n;
}

void BpeModel::MergeLong(Scratch::State* state) const {
  std::vector<int32_t>& tokens = state->tokens;
  const uint32_t n = static_cast<uint32_t>(tokens.size());
  state->previous.resize(n);
  state->next.resize(n);
  std::vector<HeapEntry>& heap = state->heap;
  heap.clear();
  for (uint32_t i = 0; i < n; ++i) {
    state->previous[i] = i - 1;
    state->next[i] = i + 1;
    if (i + 1 < n) {
      if (const uint32_t rank = Rank(tokens[i], tokens[i + 1]); rank != kNoRank) {
        heap.push_back({rank, i, tokens[i], tokens[i + 1]});
      }
    }
  }
  std::make_heap(heap.begin(), heap.end());
  const auto push = [&](uint32_t at, uint32_t after) {
    if (const uint32_t rank = Rank(tokens[at], tokens[after]); rank != kNoRank) {
      heap.push_back({rank, at, tokens[at], tokens[after]});
      std::push_heap(heap.begin(), heap.end());
    }
  };
  while (!heap.empty()) {
    const HeapEntry top = heap.front();
    std::pop_heap(heap.begin(), heap.end());
    heap.pop_back();
    const uint32_t after = state->next[top.at];
    // A token that was merged into the one before it is -1, so entries of earlier pairs fail here.
    if (tokens[top.at] != top.left || after >= n || tokens[after] != top.right) {
      continue;
    }
    tokens[top.at] = Find(top.left, top.right)->result;
    tokens[after] = -1;
    const uint32_t following = state->next[after];
    state->next[top.at] = following;
    if (following < n) {
      state->previous[following] = top.at;
      push(top.at, following);
    }
    if (top.at > 0) {
      push(state->previous[top.at], top.at);
    }
  }
  tokens.erase(std::remove(tokens.begin(), tokens.end(), -1), tokens.end());
}

void BpeModel::EncodeUncached(std::string_view piece, Scratch::State* state) const {
  std::vector<int32_t>& tokens = state->tokens;
  if (!parts_.whole.empty()) {
    if (const auto it = parts_.whole.find(absl::string_view(piece.data(), piece.size()));
        it != parts_.whole.end()) {
      tokens.assign(1, it->second);
      return;
    }
  }
  tokens.resize(piece.size());
  for (size_t i = 0; i < piece.size(); ++i) {
    tokens[i] = parts_.byte_tokens[static_cast<uint8_t>(piece[i])];
  }
  if (tokens.size() <= kShortPiece) {
    tokens.resize(MergeShort(tokens.data(), tokens.size()));
  } else {
    MergeLong(state);
  }
}

void BpeModel::Add(std::string_view piece, const char* end, Scratch* scratch, Output* out) const {
  Scratch::State* state = scratch->state_.get();
  if (state->added - state->encoded == kMostWaiting) {
    EncodeNext(state, out);
  }
  Waiting& waiting = state->waiting[state->added++ % kMostWaiting];
  waiting.piece = piece;
  waiting.entry = nullptr;
  if (piece.size() <= kCachedBytes) {
    waiting.key = MakeKey(piece, end);
    waiting.entry = &state->cache[CacheSlot(waiting.key)];
    __builtin_prefetch(waiting.entry);
  }
}

void BpeModel::Finish(Scratch* scratch, Output* out) const {
  Scratch::State* state = scratch->state_.get();
  while (state->encoded != state->added) {
    EncodeNext(state, out);
  }
}

void BpeModel::EncodeNext(Scratch::State* state, Output* out) const {
  const Waiting& next = state->waiting[state->encoded++ % kMostWaiting];
  // A hit below copies kCachedTokens, however many count, so there has to be room for all.
  if (out->tokens.size() < out->size + kCachedTokens) {
    out->tokens.resize(out->size + out->size / 2 + 1024);
  }
  CacheEntry* const entry = next.entry;
  if (entry != nullptr && entry->key == next.key) {
    std::memcpy(out->tokens.data() + out->size, entry->tokens, sizeof entry->tokens);
    out->size += static_cast<size_t>(entry->count);
    return;
  }
  EncodeUncached(next.piece, state);
  const std::vector<int32_t>& tokens = state->tokens;
  if (entry != nullptr && tokens.size() <= kCachedTokens) {
    entry->key = next.key;
    entry->count = static_cast<int32_t>(tokens.size());
    std::copy(tokens.begin(), tokens.end(), entry->tokens);
  }
  if (out->tokens.size() < out->size + tokens.size()) {
    out->tokens.resize(out->size + out->size / 2 + tokens.size() + 1024);
  }
  std::copy(tokens.begin(), tokens.end(),
            out->tokens.begin() + static_cast<std::ptrdiff_t>(out->size));
  out->size += tokens.size();
}

}  // namespace hearth::tokenizer
