#include "worker/trainer/data/permutation.h"

#include <bit>

namespace hearth::trainer {
namespace {

// SplitMix64's finaliser: a bijection of 64-bit words that spreads every bit.
uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

constexpr int kRounds = 6;

}  // namespace

uint64_t MixKey(uint64_t a, uint64_t b, uint64_t c) {
  return Mix(Mix(Mix(a) ^ b) ^ c);
}

uint64_t Permute(uint64_t index, uint64_t n, uint64_t key) {
  if (n <= 1) {
    return 0;
  }
  // Halves of equal width: the network permutes [0, 4^half), less than 4 n, so the walk below takes
  // under 4 steps on average.
  const int half = (static_cast<int>(std::bit_width(n - 1)) + 1) / 2;
  const uint64_t mask = (uint64_t{1} << half) - 1;
  uint64_t x = index;
  do {
    // A Feistel network: a round can be undone whatever Mix gives, so no two numbers meet. Numbers
    // from n on walk on until one is below n.
    uint64_t left = x >> half;
    uint64_t right = x & mask;
    for (int round = 0; round < kRounds; ++round) {
      const uint64_t next =
          left ^ (Mix(key ^ Mix(right << 3 | static_cast<uint64_t>(round))) & mask);
      left = right;
      right = next;
    }
    x = left << half | right;
  } while (x >= n);
  return x;
}

}  // namespace hearth::trainer
