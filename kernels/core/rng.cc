#include "kernels/core/rng.h"

#include <cmath>
#include <numbers>

namespace hearth::kernels {
namespace {

// Two normals from two words. The first word is moved off zero so that the logarithm is finite.
std::array<double, 2> BoxMuller(uint32_t a, uint32_t b) {
  const double u = (static_cast<double>(a) + 0.5) * 0x1p-32;
  const double angle = 2.0 * std::numbers::pi * (static_cast<double>(b) * 0x1p-32);
  const double radius = std::sqrt(-2.0 * std::log(u));
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

template <typename T>
void FillNormalImpl(
    const RngKey& key, uint64_t first, double mean, double stddev, T* out, int64_t count) {
  for (int64_t i = 0; i < count;) {
    const uint64_t element = first + static_cast<uint64_t>(i);
    const auto words = RngBlock(key, element / 4);
    const uint64_t lane = element % 4;
    const auto pair = BoxMuller(words[lane & 2], words[(lane & 2) + 1]);
    for (uint64_t j = lane % 2; j < 2 && i < count; ++j, ++i) {
      out[i] = static_cast<T>(mean + stddev * pair[j]);
    }
  }
}

}  // namespace

double RngNormal(const RngKey& key, uint64_t element) {
  const auto words = RngBlock(key, element / 4);
  return BoxMuller(words[element & 2], words[(element & 2) + 1])[element & 1];
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
