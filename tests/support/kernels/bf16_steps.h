// What every optimizer's step does with BF16 weights that it rounds at random.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/core/formats.h"

namespace hearth::kernels {

// The codes of `count` weights of 1 after a step of 0.001 down, a quarter of BF16's below 1.
using Bf16Step =
    std::function<std::vector<uint16_t>(int64_t count, uint32_t index, uint64_t first_element)>;

inline void ExpectMeanIsKept(const Bf16Step& step) {
  double sum = 0;
  for (const uint16_t code : step(40000, 1, 0)) {
    EXPECT_TRUE(DecodeBf16(code) == 1.0F || DecodeBf16(code) == 1.0F - 0x1p-8F);
    sum += double{DecodeBf16(code)};
  }
  // The deviation of the mean is 2^-8 * sqrt(0.19 / 40000) = 8.5e-6.
  EXPECT_NEAR(sum / 40000, 1.0 - 1e-3, 4.5e-5);
}

// The randomness of an element depends on its tensor and its place alone. `first`: where a part of
// a tensor may begin, below 3000.
inline void ExpectPlaceAlone(const Bf16Step& step, int64_t first) {
  const std::vector<uint16_t> whole = step(3000, 1, 0);
  EXPECT_EQ(step(3000 - first, 1, static_cast<uint64_t>(first)),
            std::vector<uint16_t>(whole.begin() + first, whole.end()));
  EXPECT_NE(step(3000, 2, 0), whole);
}

// `wide`: the same step of wide weights that are their own masters, as the CPU holds BF16 weights
// without masters.
inline void ExpectRoundedAsPacked(const std::vector<float>& wide, const Bf16Step& step) {
  const std::vector<uint16_t> packed = step(static_cast<int64_t>(wide.size()), 1, 0);
  for (size_t i = 0; i < wide.size(); ++i) {
    EXPECT_EQ(wide[i], DecodeBf16(packed[i])) << i;
  }
}

}  // namespace hearth::kernels
