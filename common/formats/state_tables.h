// The codecs of state_blocks.h as kernels use them: the same values and codes bit for bit, in fewer
// instructions and without branches. A dynamic map reads three tables, which a block of threads
// sets in shared memory; a linear map has none. C++17.
#pragma once

#include <cmath>
#include <cstdint>

#include "common/formats/codecs.h"
#include "common/formats/hd.h"
#include "common/formats/state_blocks.h"

namespace hearth::formats {

// Magnitudes of one binary exponent: up to `threshold` they are in `interval`, above it in the next
// one. Two thresholds of a map are more than a factor of two apart.
struct alignas(8) StateOctave {
  float threshold;
  uint32_t interval;
};
inline constexpr int kStateOctaves = 128;

// Magnitudes of one decade, of 0 or of 1. The code of x is `first`, which has 2^23 added, plus the
// whole part of x * scale + shift, of which `last` is the most.
struct alignas(16) StateInterval {
  float scale, shift, last, first;
};

// whole + x, x >= 0, without the part of x below 1. whole: 2^23 or more.
HEARTH_HD inline float AddWhole(float whole, float x) {
#ifdef __CUDA_ARCH__
  return __fadd_rz(whole, x);
#else
  return whole + static_cast<float>(static_cast<int32_t>(x));
#endif
}

// Linear maps: no entries to set.
template <StateCodec kCodec>
struct StateTables {
  static constexpr int kEntries = 0;
  HEARTH_HD void Set(int /*i*/, const StateDecade* /*decades*/) {}
  HEARTH_HD float Decode(uint32_t code) const { return StateCode<kCodec>::Decode(code, nullptr); }
  HEARTH_HD uint32_t Encode(float x) const { return StateCode<kCodec>::Encode(x, nullptr); }
};

template <StateCodec kCodec>
struct DynamicTables {
  using Code = StateCode<kCodec>;
  using Map = typename Code::Map;
  static constexpr float kWhole = 8388608.0F;  // 2^23: its last binary place is 1
  static constexpr auto kOffset = static_cast<float>(Code::kOffset);
  static constexpr int kCodes = 1 << RowOf(kCodec).bits;
  // 0, the decades, 1; and 0 and 1 again, side by side.
  static constexpr int kOne = Map::kDecades + 1;
  static constexpr int kIntervals = kOne + 3;
  static constexpr int kEntries = kCodes > kStateOctaves ? kCodes : kStateOctaves;
  static_assert(kIntervals <= kEntries, "Set");

  StateInterval intervals[kIntervals];
  StateOctave octaves[kStateOctaves];
  float values[kCodes];

  // Entry `i` of each table that has so many. Every i below kEntries has to be set; `decades` are
  // the map's rows.
  HEARTH_HD void Set(int i, const StateDecade* decades) {
    if (i < kCodes) {
      values[i] = Code::Decode(static_cast<uint32_t>(i), decades);
    }
    if (i < kStateOctaves) {
      octaves[i] = OctaveOf(static_cast<uint32_t>(i));
    }
    if (i < kIntervals) {
      intervals[i] = IntervalOf(i, decades);
    }
  }

  HEARTH_HD float Decode(uint32_t code) const { return values[code]; }

  // x in [-1, 1] or NaN, unsigned maps [0, 1]. Above its bits a code has others, which are not 0.
  HEARTH_HD uint32_t Encode(float x) const {
    const float magnitude = Code::kSigned ? fabsf(x) : x;
    const StateOctave octave = octaves[FloatBits(x) >> 23 & (kStateOctaves - 1)];
    const StateInterval& at = intervals[octave.interval + (magnitude > octave.threshold ? 1 : 0)];
    const float place = fminf(AddRn(MulRn(magnitude, at.scale), at.shift), at.last);
    const float code = AddWhole(at.first, place);
    if constexpr (Code::kSigned) {
      // Codes are symmetric to that of 0, and there is no -1.
      const float mirrored = fmaxf(2 * (kWhole + kOffset) - code, kWhole);
      return FloatBits(x < 0 ? mirrored : code);
    }
    return FloatBits(code);
  }

 private:
  HEARTH_HD static StateOctave OctaveOf(uint32_t i) {
    if (i == kStateOctaves - 1) {
      // 1, and NaN, which is above no threshold and becomes 0.
      return {0.5F, static_cast<uint32_t>(kOne + 1)};
    }
    const float least = BitsFloat(i << 23);
    const float end = BitsFloat((i + 1) << 23);
    const int below = CountThresholds<Map, 0>(least);
    return {ThresholdBelow<0>(below, end), static_cast<uint32_t>(below)};
  }

  // Threshold number e >= kFrom if it is less than `end`, else one that no magnitude exceeds.
  template <int kFrom>
  HEARTH_HD static float ThresholdBelow(int e, float end) {
    if constexpr (kFrom > Map::kDecades) {
      return 2.0F;
    } else {
      constexpr float kThreshold = Map::Threshold(kFrom);
      return e == kFrom ? (kThreshold < end ? kThreshold : 2.0F)
                        : ThresholdBelow<kFrom + 1>(e, end);
    }
  }

  HEARTH_HD static StateInterval IntervalOf(int i, const StateDecade* decades) {
    const int e = i - 1;
    if (e >= 0 && e < Map::kDecades) {
      const auto values = static_cast<float>(1 << (e + Code::kLead));
      return {decades[e].scale, decades[e].shift, values - 1, kWhole + kOffset + values};
    }
    const int number = i == kOne || i == kOne + 2 ? Map::kOne : (1 << Code::kLead) - 1;
    return {0.0F, 0.0F, 0.0F, kWhole + kOffset + static_cast<float>(number)};
  }
};
template <>
struct StateTables<StateCodec::kDynamicSigned8> : DynamicTables<StateCodec::kDynamicSigned8> {};
template <>
struct StateTables<StateCodec::kDynamicUnsigned8> : DynamicTables<StateCodec::kDynamicUnsigned8> {};
template <>
struct StateTables<StateCodec::kDynamicSigned4> : DynamicTables<StateCodec::kDynamicSigned4> {};

}  // namespace hearth::formats
