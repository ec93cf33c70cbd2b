// A keyed bijection of [0, n) computed without tables: a Feistel network over the next power of
// four, walked until it lands inside. Not for secrets.
#pragma once

#include <cstdint>

namespace hearth::trainer {

// `index` < n; n >= 1. The same on every machine.
uint64_t Permute(uint64_t index, uint64_t n, uint64_t key);

// Mixes words into a key (SplitMix64 finaliser).
uint64_t MixKey(uint64_t a, uint64_t b, uint64_t c);

}  // namespace hearth::trainer
