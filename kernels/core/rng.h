// Counter-based random numbers, Philox4x32-10 (Salmon et al. 2011; same bits as Random123 and
// cuRAND's core). A number is a pure function of (seed, purpose, step, global micro-batch, tensor,
// element): independent of the order of calls, of threads and of the number of ranks.
#pragma once

#include <array>
#include <cstdint>

#include "common/formats/hd.h"

namespace hearth::kernels {

// What a stream is for. Part of the key, so values are never reused: append only.
enum class RngPurpose : uint8_t {
  kInit = 1,
  kDropout = 2,
  kDataOrder = 3,
  kStochasticRounding = 4,
  kSampling = 5,
  kHadamardSigns = 6,
  kBlockRounding = 7,
  kLeadingStart = 8,
  kTest = 255,
};

struct RngKey {
  uint64_t seed = 0;
  RngPurpose purpose = RngPurpose::kTest;
  uint32_t step = 0;
  uint32_t micro_batch = 0;  // global index within the step, not the rank's
  uint32_t tensor = 0;       // < 2^24
};

// One Philox4x32-10 block.
HEARTH_HD inline std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, uint64_t key) {
  // Philox's multipliers and, for the key, the golden ratio and sqrt(3) - 1 as fractions of 2^32.
  uint32_t k0 = static_cast<uint32_t>(key);
  uint32_t k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * counter[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ k0, static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return counter;
}

// The four words of elements 4*block .. 4*block+3. block < 2^32.
HEARTH_HD inline std::array<uint32_t, 4> RngBlock(const RngKey& key, uint64_t block) {
  return Philox4x32({static_cast<uint32_t>(block), key.step, key.micro_batch,
                     (static_cast<uint32_t>(key.purpose) << 24) | (key.tensor & 0xFFFFFF)},
                    key.seed);
}

// 32 random bits of one element. element < 2^34.
HEARTH_HD inline uint32_t RngWord(const RngKey& key, uint64_t element) {
  return RngBlock(key, element / 4)[element % 4];
}

// Uniform in [0, 1), a multiple of 2^-24.
HEARTH_HD inline float RngUniform(const RngKey& key, uint64_t element) {
  return static_cast<float>(RngWord(key, element) >> 8) * 0x1p-24F;
}

// Standard normal by Box-Muller over the element pair (element & ~1, element | 1); the same bits on
// every machine (core/normal_pair.h).
double RngNormal(const RngKey& key, uint64_t element);

// out[i] = mean + stddev * normal(first_element + i).
void FillNormal(const RngKey& key,
                uint64_t first_element,
                double mean,
                double stddev,
                float* out,
                int64_t count);
void FillNormal(const RngKey& key,
                uint64_t first_element,
                double mean,
                double stddev,
                double* out,
                int64_t count);

}  // namespace hearth::kernels
