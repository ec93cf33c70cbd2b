#include "kernels/core/rng.h"

#include <algorithm>

#include "kernels/core/cpu.h"
#include "kernels/core/normal_pair.h"

namespace hearth::kernels {
namespace {

// Philox blocks that are made at once: enough to fill vectors, little enough for the L1 cache.
constexpr int64_t kBlocks = 128;

// RngBlock of kBlocks blocks from `first` on, word by word.
HEARTH_INLINE void RngBlocks(const RngKey& key, uint64_t first, uint32_t (&words)[4][kBlocks]) {
#pragma omp simd
  for (int64_t i = 0; i < kBlocks; ++i) {
    const std::array<uint32_t, 4> block = RngBlock(key, first + static_cast<uint64_t>(i));
    words[0][i] = block[0];
    words[1][i] = block[1];
    words[2][i] = block[2];
    words[3][i] = block[3];
  }
}

// Normal numbers of the 4 * kBlocks elements of those blocks.
HEARTH_SIMD void NormalsOfBlocks(const RngKey& key, uint64_t first, double* out) {
  uint32_t words[4][kBlocks];
  double normals[4][kBlocks];
  RngBlocks(key, first, words);
  for (int pair = 0; pair < 4; pair += 2) {
#pragma omp simd
    for (int64_t i = 0; i < kBlocks; ++i) {
      const NormalPair normal = MakeNormalPair(words[pair][i], words[pair + 1][i]);
      normals[pair][i] = normal.first;
      normals[pair + 1][i] = normal.second;
    }
  }
  for (int64_t i = 0; i < kBlocks; ++i) {
    for (int64_t word = 0; word < 4; ++word) {
      out[4 * i + word] = normals[word][i];
    }
  }
}

template <typename T>
void FillNormalImpl(
    const RngKey& key, uint64_t first, double mean, double stddev, T* out, int64_t count) {
  double normals[4 * kBlocks];
  int64_t skipped = static_cast<int64_t>(first % 4);  // elements of the first block before `first`
  uint64_t block = first / 4;
  for (int64_t done = 0; done < count; block += kBlocks) {
    NormalsOfBlocks(key, block, normals);
    const int64_t taken = std::min(4 * kBlocks - skipped, count - done);
    for (int64_t i = 0; i < taken; ++i) {
      out[done + i] = static_cast<T>(mean + stddev * normals[skipped + i]);
    }
    done += taken;
    skipped = 0;
  }
}

}  // namespace

double RngNormal(const RngKey& key, uint64_t element) {
  const auto words = RngBlock(key, element / 4);
  const NormalPair pair = MakeNormalPair(words[element & 2], words[(element & 2) + 1]);
  return (element & 1) == 0 ? pair.first : pair.second;
}

void FillNormal(const RngKey& key,
                uint64_t first_element,
                double mean,
                double stddev,
                float* out,
                int64_t count) {
  FillNormalImpl(key, first_element, mean, stddev, out, count);
}

void FillNormal(const RngKey& key,
                uint64_t first_element,
                double mean,
                double stddev,
                double* out,
                int64_t count) {
  FillNormalImpl(key, first_element, mean, stddev, out, count);
}

}  // namespace hearth::kernels
