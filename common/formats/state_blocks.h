// Optimizer state in blocks: a code of 8 or 4 bits for each element, and one fp32 scale for each
// block of consecutive elements. A table of codecs; host and device share encode and decode. C++17.
//
//   value = map[code] * scale, scale = the largest magnitude of the block
//
// dynamic : the dynamic tree of bitsandbytes (functional.py, create_dynamic_map): decades of powers
//           of ten below 1, each with twice as many values as the one below it; 0 and 1 beside
//           them. With n values in decade e of D, value j is 10^(e+1-D) (0.1 + 0.9 (j + 1/2) / n).
//           signed: n = 2^e and both signs; unsigned: n = 2^(e+1). The largest negative magnitude
//           lies below 1 (0.99297 of 8 bits, 0.8875 of 4).
//           8 bits: create_dynamic_map(signed, 7, 8); 4 bits: create_dynamic_map(True, 3, 4).
//           Codes are the places in the sorted map.
// linear  : signed 8 bits: code / 127, two's complement in [-127, 127];
//           unsigned 4 bits: (code + 1) / 16, which has no zero (torchao: linspace(0, 1, 17)[1:]).
//
// Rounding is to the nearest value; within 1e-6 of the middle between two it may go either way, the
// same on every device. A block whose largest magnitude is below 2^-126 becomes zeros, scale 0. A
// block with a NaN decodes to NaN. Memory of zero bytes decodes to zeros.
// Codes of 4 bits: two a byte, the even element in the low half.
#pragma once

#include <cmath>
#include <cstdint>

#include "common/formats/codecs.h"
#include "common/formats/hd.h"

namespace hearth::formats {

// Append only: the numbers stand in no file, but tests walk them.
enum class StateCodec : uint8_t {
  kNone = 0,  // the state's own number format: fp32 or bf16
  kDynamicSigned8,
  kDynamicUnsigned8,
  kLinearSigned8,
  kDynamicSigned4,
  kLinearUnsigned4,
  kLeadingSigned4,  // common/formats/leading_blocks.h
};
inline constexpr int kStateCodecs = 7;
// Those of this file, with kNone: the first so many.
inline constexpr int kBlockStateCodecs = 6;

struct StateCodecRow {
  const char* name;
  int bits;             // of a code
  int block;            // elements that share a scale
  int scale_bits = 32;  // 32: fp32
  // Above 0: so many leading directions of each matrix lie beside its codes, in bf16, and an fp32
  // number by which its scales are multiplied.
  int rank = 0;

  // Codes of a part of a matrix do not follow from that part alone.
  constexpr bool needs_whole() const { return rank > 0; }
};
inline constexpr StateCodecRow kStateCodecRows[kStateCodecs] = {
    {"none", 0, 1},
    {"dynamic signed", 8, 256},
    {"dynamic unsigned", 8, 256},
    {"linear signed", 8, 256},
    {"dynamic signed", 4, 128},
    {"linear unsigned", 4, 128},
    {"leading signed", 4, 16, 8, 8},
};
constexpr const StateCodecRow& RowOf(StateCodec codec) {
  return kStateCodecRows[static_cast<int>(codec)];
}
// Every block is a divisor of this, so pieces of tensors that begin at its multiples share none.
inline constexpr int kStateBlockUnit = 256;
// A block whose largest magnitude is below this is stored as zeros: its inverse would overflow.
inline constexpr float kLeastStateScale = 1.17549435e-38F;

// A decade of a dynamic map: value j is j * step + first; a magnitude x lies nearest to value
// floor(x * scale + shift).
struct alignas(16) StateDecade {
  float step, first, scale, shift;
};
inline constexpr int kMaxDecades = 7;
struct StateDecades {
  StateDecade rows[kMaxDecades];
};

// kLead: values of the lowest decade as a power of two.
template <int kDecadeCount, int kLead>
struct DynamicMap {
  static constexpr int kDecades = kDecadeCount;
  static constexpr int kOne = 1 << (kDecades + kLead);  // of the magnitude 1

  static constexpr double Power(int e) {
    double power = 1;
    for (int i = e + 1; i < kDecades; ++i) {
      power /= 10;
    }
    return power;
  }
  static constexpr int Values(int e) { return 1 << (e + kLead); }
  static constexpr double First(int e) { return Power(e) * (0.1 + 0.45 / Values(e)); }
  static constexpr double Last(int e) { return Power(e) * (1.0 - 0.45 / Values(e)); }
  // The middle between decade e - 1 and decade e; e = 0: between 0 and the least value; e =
  // kDecades: between the largest and 1.
  static constexpr float Threshold(int e) {
    return static_cast<float>(((e == 0 ? 0.0 : Last(e - 1)) + (e == kDecades ? 1.0 : First(e))) /
                              2);
  }
  static constexpr StateDecades Decades() {
    StateDecades all = {};
    for (int e = 0; e < kDecades; ++e) {
      // shift is first / step less the 1/2 of rounding: (0.1 + 0.45 / n) / (0.9 / n) - 1/2 = n / 9.
      all.rows[e] = {static_cast<float>(Power(e) * 0.9 / Values(e)), static_cast<float>(First(e)),
                     static_cast<float>(Values(e) / (0.9 * Power(e))),
                     static_cast<float>(-Values(e) / 9.0)};
    }
    return all;
  }
};

// How many of the thresholds from kFrom up to that of 1 the magnitude exceeds. NaN: none.
template <typename Map, int kFrom>
HEARTH_HD inline int CountThresholds(float x) {
  constexpr float kThreshold = Map::Threshold(kFrom);
  const int here = x > kThreshold ? 1 : 0;
  if constexpr (kFrom == Map::kDecades) {
    return here;
  } else {
    return here + CountThresholds<Map, kFrom + 1>(x);
  }
}

HEARTH_HD inline int FloorLog2(uint32_t x) {
#ifdef __CUDA_ARCH__
  return 31 - __clz(static_cast<int>(x));
#else
  return 31 - __builtin_clz(x);
#endif
}

// Magnitudes of a dynamic map are numbered 2^kLead, ..., kOne; smaller numbers mean 0. In binary
// the leading bit is the decade and the rest the place in it.
template <typename Map, int kLead>
HEARTH_HD inline float DecodeMagnitude(uint32_t number, const StateDecade* decades) {
  if (number < (1U << kLead)) {
    return 0.0F;
  }
  if (number >= static_cast<uint32_t>(Map::kOne)) {
    return 1.0F;
  }
  const int lead = FloorLog2(number);
  const StateDecade decade = decades[lead - kLead];
  const auto place = static_cast<float>(number - (1U << lead));
  return AddRn(MulRn(place, decade.step), decade.first);
}

template <typename Map, int kLead>
HEARTH_HD inline uint32_t EncodeMagnitude(float x, const StateDecade* decades) {
  const int above = CountThresholds<Map, 0>(x);
  if (above == 0) {
    return (1U << kLead) - 1;
  }
  if (above > Map::kDecades) {
    return static_cast<uint32_t>(Map::kOne);
  }
  const StateDecade decade = decades[above - 1];
  const int values = 1 << (above - 1 + kLead);
  const int place = static_cast<int>(AddRn(MulRn(x, decade.scale), decade.shift));
  const int last = values - 1;
  // The gap to the next decade is wider than a step: what lies in it goes to the last value.
  return static_cast<uint32_t>(values + (place < 0 ? 0 : place > last ? last : place));
}

// What a codec has: Decades() of its map (none: empty rows), Decode(code, decades) in [-1, 1], and
// Encode(x, decades) of x in [-1, 1]. `decades` are the map's rows, in memory that is fast to read
// by index.
template <StateCodec kCodec>
struct StateCode;

template <int kDecades>
struct DynamicSignedCode {
  using Map = DynamicMap<kDecades, 0>;
  static constexpr bool kSigned = true;
  static constexpr int kLead = 0;
  static constexpr int kOffset = (1 << kDecades) - 1;  // code less number of a positive magnitude
  static constexpr uint32_t kZero = (1U << kDecades) - 1;  // place of 0 in the sorted map
  static constexpr StateDecades Decades() { return Map::Decades(); }
  HEARTH_HD static float Decode(uint32_t code, const StateDecade* decades) {
    const bool negative = code < kZero;
    const float x = DecodeMagnitude<Map, 0>(negative ? kZero - code : code - kZero, decades);
    return negative ? -x : x;
  }
  HEARTH_HD static uint32_t Encode(float x, const StateDecade* decades) {
    const float magnitude = x < 0 ? -x : x;
    const uint32_t number = EncodeMagnitude<Map, 0>(magnitude, decades);
    // There is no -1.
    return x < 0 ? kZero - (number < kZero ? number : kZero) : kZero + number;
  }
};
template <>
struct StateCode<StateCodec::kDynamicSigned8> : DynamicSignedCode<7> {};
template <>
struct StateCode<StateCodec::kDynamicSigned4> : DynamicSignedCode<3> {};

template <>
struct StateCode<StateCodec::kDynamicUnsigned8> {
  using Map = DynamicMap<7, 1>;
  static constexpr bool kSigned = false;
  static constexpr int kLead = 1;
  static constexpr int kOffset = -1;
  static constexpr StateDecades Decades() { return Map::Decades(); }
  HEARTH_HD static float Decode(uint32_t code, const StateDecade* decades) {
    return DecodeMagnitude<Map, 1>(code + 1, decades);
  }
  HEARTH_HD static uint32_t Encode(float x, const StateDecade* decades) {
    return EncodeMagnitude<Map, 1>(x, decades) - 1;
  }
};

template <>
struct StateCode<StateCodec::kLinearSigned8> {
  static constexpr StateDecades Decades() { return {}; }
  HEARTH_HD static float Decode(uint32_t code, const StateDecade* /*decades*/) {
    return MulRn(static_cast<float>(static_cast<int8_t>(code)), 1.0F / 127.0F);
  }
  HEARTH_HD static uint32_t Encode(float x, const StateDecade* /*decades*/) {
    // Adding 1.5 * 2^23 leaves the nearest integer in the low bits.
    constexpr float kMagic = 12582912.0F;
    return FloatBits(AddRn(MulRn(x, 127.0F), kMagic)) & 0xFFU;
  }
};

template <>
struct StateCode<StateCodec::kLinearUnsigned4> {
  static constexpr StateDecades Decades() { return {}; }
  HEARTH_HD static float Decode(uint32_t code, const StateDecade* /*decades*/) {
    return MulRn(static_cast<float>(code + 1), 0.0625F);
  }
  HEARTH_HD static uint32_t Encode(float x, const StateDecade* /*decades*/) {
    constexpr float kMagic = 8388608.0F;  // 2^23
    // There is no code for 0: the least value stands for what rounds to it, and for NaN.
    const float sixteenths = fmaxf(AddRn(MulRn(x, 16.0F), kMagic), kMagic + 1);
    return FloatBits(sixteenths) - FloatBits(kMagic + 1);
  }
};

// `count` elements in blocks of the codec, on the host: codes of DTypeBytes(bits, count) bytes and
// ceil(count / block) scales. The last block may be short. The codec is one of the first
// kBlockStateCodecs.
void EncodeStateBlocks(
    StateCodec codec, const float* x, int64_t count, uint8_t* codes, float* scales);
void DecodeStateBlocks(
    StateCodec codec, const uint8_t* codes, const float* scales, int64_t count, float* x);

}  // namespace hearth::formats
