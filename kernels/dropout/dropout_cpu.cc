#include "kernels/core/cpu.h"
#include "kernels/core/rng.h"
#include "kernels/dropout/dropout.h"
#include "kernels/formats/span.h"

namespace hearth::kernels {
namespace {

constexpr int64_t kGrain = 8192;
constexpr int kLanes = 64;  // Philox blocks computed side by side

// Words of kLanes consecutive blocks of the key's stream: words[w][lane], as RngBlock gives them
// one by one, but with the rounds outside and the lanes inside so that they vectorise.
HEARTH_SIMD void RngLanes(const RngKey& key, uint64_t first_block, uint32_t (*words)[kLanes]) {
  const uint32_t tensor = (static_cast<uint32_t>(key.purpose) << 24) | (key.tensor & 0xFFFFFF);
  for (int lane = 0; lane < kLanes; ++lane) {
    words[0][lane] = static_cast<uint32_t>(first_block) + static_cast<uint32_t>(lane);
    words[1][lane] = key.step;
    words[2][lane] = key.micro_batch;
    words[3][lane] = tensor;
  }
  uint32_t k0 = static_cast<uint32_t>(key.seed);
  uint32_t k1 = static_cast<uint32_t>(key.seed >> 32);
  for (int round = 0; round < 10; ++round) {
#pragma omp simd
    for (int lane = 0; lane < kLanes; ++lane) {
      const uint64_t p0 = uint64_t{0xD2511F53} * words[0][lane];
      const uint64_t p1 = uint64_t{0xCD9E8D57} * words[2][lane];
      words[0][lane] = static_cast<uint32_t>(p1 >> 32) ^ words[1][lane] ^ k0;
      words[1][lane] = static_cast<uint32_t>(p1);
      words[2][lane] = static_cast<uint32_t>(p0 >> 32) ^ words[3][lane] ^ k1;
      words[3][lane] = static_cast<uint32_t>(p0);
    }
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
}

// keep[i] = whether element i of [0, 4 * kLanes) after the blocks' first is kept.
HEARTH_SIMD void KeepLanes(const uint32_t (*words)[kLanes], float p, float* keep) {
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int w = 0; w < 4; ++w) {
      keep[lane * 4 + w] =
          static_cast<float>(static_cast<int32_t>(words[w][lane] >> 8)) * 0x1p-24F >= p ? 1.0F
                                                                                        : 0.0F;
    }
  }
}

// Dropped elements are 0 whatever x is, as with a mask that selects rather than multiplies.
template <typename T>
HEARTH_INLINE void ApplyImpl(
    const float* keep, const T* x, const T* residual, T scale, int64_t n, T* y) {
  // NOLINTNEXTLINE(bugprone-branch-clone): they differ behind the pragmas
  if (residual != nullptr) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
      y[i] = residual[i] + (keep[i] != 0.0F ? x[i] * scale : T{0});
    }
  } else {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
      y[i] = keep[i] != 0.0F ? x[i] * scale : T{0};
    }
  }
}
HEARTH_SIMD void Apply(
    const float* keep, const float* x, const float* residual, float scale, int64_t n, float* y) {
  ApplyImpl(keep, x, residual, scale, n, y);
}
HEARTH_SIMD void Apply(const float* keep,
                       const double* x,
                       const double* residual,
                       double scale,
                       int64_t n,
                       double* y) {
  ApplyImpl(keep, x, residual, scale, n, y);
}

template <typename T>
absl::Status Impl(const Exec& exec, const DropoutArgs& args) {
  const T* x = args.x.as<T>();
  const T* residual = args.residual.as<T>();
  T* y = args.y.as<T>();
  const T scale = static_cast<T>(1.0 / (1.0 - args.p));
  RngKey key = args.key;
  if (args.position != nullptr) {
    key.step = static_cast<uint32_t>(args.position->step);
    key.micro_batch = args.position->micro_batch;
  }
  ParallelFor(exec, args.x.numel(), kGrain, [&](int64_t begin, int64_t end) {
    constexpr int64_t kStep = int64_t{4} * kLanes;
    uint32_t words[4][kLanes];
    float keep[kStep];
    for (int64_t i = begin; i < end; i += kStep) {
      RngLanes(key, (args.first_element + static_cast<uint64_t>(i)) / 4, words);
      KeepLanes(words, static_cast<float>(args.p), keep);
      Apply(keep, x + i, residual == nullptr ? nullptr : residual + i, scale,
            std::min(kStep, end - i), y + i);
    }
    RoundSpan(y + begin, end - begin, args.round_y);
  });
  return absl::OkStatus();
}

}  // namespace

namespace cpu {

absl::Status DropoutForward(const Exec& exec, const DropoutArgs& args) {
  return DispatchFloating(args.x.dtype, [&]<typename T>() { return Impl<T>(exec, args); });
}

}  // namespace cpu

}  // namespace hearth::kernels
