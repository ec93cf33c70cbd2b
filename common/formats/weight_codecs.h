// Blocks in which weights are kept while they are trained (weights.store), in the bit layouts of
// ggml, so that a GGUF file takes them as they are. A table of codecs; host and device share
// encode and decode. C++17.
//
//   q8_0  : 32 elements, {f16 d; int8 q[32]};       x = q d, -127 <= q <= 127
//   q4_0  : 32 elements, {f16 d; u8 q[16]};         x = (code - 8) d; byte j has the code of
//           element j in its low and that of element j + 16 in its high half
//   nvfp4 : 64 elements, {e4m3 d[4]; u8 q[32]};     x = e2m1(code) d 2^-10: four groups of 16 with
//           a scale each; byte j of a group has element j low and element j + 8 high. ggml keeps
//           the 2^-10 beside the tensor. Values above 6 * 448 * 2^-10 = 2.625 saturate
//
// Scales stay. A value that is rounded stochastically on a grid of step d gains the variance
// f (1 - f) d^2, where f is the part cut off. On its own grid f is as small as the update. On
// another grid f can be anything, so scales that are made again at every step would add about
// d^2 / 6 each time. After some 70 steps of q4_0 that noise is as large as the weights. So a group
// keeps its scale as long as its values fit and use half of the codes. A new scale leaves room for
// the largest value to grow: an eighth (q8_0), a seventh (q4_0), or what E4M3 rounds up (nvfp4).
// Values that have not changed keep their codes, bit for bit.
//
// A group with a value that is not finite, or that no scale reaches, decodes to NaN. Memory of zero
// bytes decodes to zeros.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "common/formats/codecs.h"
#include "common/formats/hd.h"

namespace hearth::formats {

enum class WeightCodec : uint8_t { kNone = 0, kQ80, kQ40, kNvfp4 };
inline constexpr int kWeightCodecs = 4;

struct WeightCodecRow {
  const char* name;  // of the file format: StoredFormat::name
  int block;         // elements
  int block_bytes;
  int group;  // elements that share a scale; `block` is a multiple of it

  // Bytes of `elements`, a multiple of `block`.
  constexpr int64_t Bytes(int64_t elements) const { return elements / block * block_bytes; }
};
inline constexpr WeightCodecRow kWeightCodecRows[kWeightCodecs] = {
    {"none", 1, 0, 1},
    {"q8_0", 32, 34, 32},
    {"q4_0", 32, 18, 32},
    {"nvfp4", 64, 36, 16},
};
constexpr const WeightCodecRow& RowOf(WeightCodec codec) {
  return kWeightCodecRows[static_cast<int>(codec)];
}
// Every block is a divisor of this, so pieces of tensors that begin at its multiples share none.
inline constexpr int kWeightBlockUnit = 64;

// The extremes of a group; NaN if any value is.
struct WeightRange {
  float least = 0.0F;
  float largest = 0.0F;

  HEARTH_HD float amax() const { return -least > largest || least != least ? -least : largest; }
};
HEARTH_HD inline WeightRange Join(const WeightRange& a, const WeightRange& b) {
  return {a.least < b.least || a.least != a.least ? a.least : b.least,
          a.largest > b.largest || a.largest != a.largest ? a.largest : b.largest};
}

// The least f16 that is not below x >= 0; infinity above the largest.
HEARTH_HD inline float F16AtLeast(float x) {
  const uint16_t bits = EncodeF16(x);
  const float nearest = DecodeF16(bits);
  return nearest < x ? DecodeF16(static_cast<uint16_t>(bits + 1)) : nearest;
}

// x / d, NaN where that is no number; 0 where d is.
HEARTH_HD inline float OfScale(float x, float d) {
  return d == 0.0F ? 0.0F : DivRn(x, d);
}

// Whole numbers next to v, which is no larger than 2^20 in magnitude; 0 for NaN. Up with the
// probability of the part cut off, as exactly as floats have it.
HEARTH_HD inline int RoundUpWith(float v, uint32_t random) {
  if (!(v > -1048576.0F && v < 1048576.0F)) {
    return 0;
  }
  const int cut = static_cast<int>(v);
  const int low = cut - (static_cast<float>(cut) > v ? 1 : 0);
  const float rest = SubRn(v, static_cast<float>(low));
  return low + (MulRn(static_cast<float>(random), 0x1p-32F) < rest ? 1 : 0);
}
HEARTH_HD inline int RoundNear(float v) {
  if (!(v > -1048576.0F && v < 1048576.0F)) {
    return 0;
  }
  // Adding 1.5 * 2^23 leaves the nearest integer in the low bits, the even one of two.
  constexpr float kMagic = 12582912.0F;
  return static_cast<int>(FloatBits(AddRn(v, kMagic))) - static_cast<int>(FloatBits(kMagic));
}
HEARTH_HD inline int Within(int x, int least, int largest) {
  return x < least ? least : x > largest ? largest : x;
}

HEARTH_HD inline float LoadF16(const uint8_t* at) {
  return DecodeF16(static_cast<uint16_t>(at[0] | at[1] << 8));
}
HEARTH_HD inline void StoreF16(uint8_t* at, float x) {
  const uint16_t bits = EncodeF16(x);
  at[0] = static_cast<uint8_t>(bits & 0xFFU);
  at[1] = static_cast<uint8_t>(bits >> 8);
}

// What a codec has:
//   kHeader, kPair : where codes lie (CodeByte, CodeShift); kPair 0: a byte each
//   Scale, PutScale: of a group of a block; a scale is what NextScale gave
//   NextScale      : for values in the range, in place of `d`; d = 0: a new one
//   Nearest, Stochastic, Value : the code of x under d, and its value
template <WeightCodec kCodec>
struct WeightCode;

template <>
struct WeightCode<WeightCodec::kQ80> {
  static constexpr int kHeader = 2;
  static constexpr int kPair = 0;
  static constexpr int kLargest = 127;
  static constexpr float kFull = 112.0F;  // of the largest value under a new scale

  HEARTH_HD static float Scale(const uint8_t* block, int /*group*/) { return LoadF16(block); }
  HEARTH_HD static void PutScale(uint8_t* block, int /*group*/, float d) { StoreF16(block, d); }
  HEARTH_HD static float NextScale(float d, const WeightRange& range) {
    const float amax = range.amax();
    if (d > 0.0F && amax <= MulRn(d, 127.0F) && amax >= MulRn(d, kFull / 2)) {
      return d;
    }
    const float next = F16AtLeast(DivRn(amax, kFull));
    return next <= 65504.0F ? next : BitsFloat(0x7FC00000U);
  }
  HEARTH_HD static uint32_t Nearest(float x, float d) { return Code(RoundNear(OfScale(x, d))); }
  HEARTH_HD static uint32_t Stochastic(float x, float d, uint32_t random) {
    return Code(RoundUpWith(OfScale(x, d), random));
  }
  HEARTH_HD static float Value(uint32_t code, float d) {
    return MulRn(static_cast<float>(static_cast<int8_t>(code)), d);
  }

 private:
  HEARTH_HD static uint32_t Code(int q) {
    return static_cast<uint32_t>(Within(q, -kLargest, kLargest)) & 0xFFU;
  }
};

template <>
struct WeightCode<WeightCodec::kQ40> {
  static constexpr int kHeader = 2;
  static constexpr int kPair = 16;
  static constexpr float kFull = 7.0F;

  HEARTH_HD static float Scale(const uint8_t* block, int /*group*/) { return LoadF16(block); }
  HEARTH_HD static void PutScale(uint8_t* block, int /*group*/, float d) { StoreF16(block, d); }
  // Codes reach from -8 to 7 times d, whose sign is opposite to that of the largest magnitude when
  // it is made: there the eighth step is room.
  HEARTH_HD static float NextScale(float d, const WeightRange& range) {
    const float amax = range.amax();
    const float eighth = MulRn(d, -8.0F);
    const float seventh = MulRn(d, 7.0F);
    const bool fits = d > 0.0F ? range.least >= eighth && range.largest <= seventh
                               : range.least >= seventh && range.largest <= eighth;
    if (d != 0.0F && fits && amax >= MulRn(d < 0.0F ? -d : d, kFull / 2)) {
      return d;
    }
    const float next = F16AtLeast(DivRn(amax, kFull));
    if (!(next <= 65504.0F)) {
      return BitsFloat(0x7FC00000U);
    }
    return range.largest >= -range.least ? -next : next;
  }
  HEARTH_HD static uint32_t Nearest(float x, float d) { return Code(RoundNear(OfScale(x, d))); }
  HEARTH_HD static uint32_t Stochastic(float x, float d, uint32_t random) {
    return Code(RoundUpWith(OfScale(x, d), random));
  }
  HEARTH_HD static float Value(uint32_t code, float d) {
    return MulRn(static_cast<float>(static_cast<int>(code) - 8), d);
  }

 private:
  HEARTH_HD static uint32_t Code(int q) { return static_cast<uint32_t>(Within(q, -8, 7) + 8); }
};

template <>
struct WeightCode<WeightCodec::kNvfp4> {
  static constexpr int kHeader = 4;
  static constexpr int kPair = 8;
  // Scales of weights, of about 0.01, lie among the normals of E4M3 with it.
  static constexpr float kTensorScale = 0x1p-10F;

  HEARTH_HD static float Scale(const uint8_t* block, int group) {
    return MulRn(DecodeE4m3(block[group]), kTensorScale);
  }
  HEARTH_HD static void PutScale(uint8_t* block, int group, float d) {
    block[group] = EncodeE4m3(DivRn(d, kTensorScale));
  }
  HEARTH_HD static float NextScale(float d, const WeightRange& range) {
    const float amax = range.amax();
    if (d > 0.0F && amax <= MulRn(d, kE2m1Max) && amax >= MulRn(d, 2.5F)) {
      return d;
    }
    if (!(amax <= 3.0e38F)) {
      return BitsFloat(0x7FC00000U);
    }
    const float wanted = DivRn(DivRn(amax, kE2m1Max), kTensorScale);
    const uint8_t bits = EncodeE4m3(wanted);
    constexpr uint8_t kMax = 0x7E;
    const bool up = bits < kMax && DecodeE4m3(bits) < wanted;
    return MulRn(DecodeE4m3(static_cast<uint8_t>(bits + (up ? 1 : 0))), kTensorScale);
  }
  HEARTH_HD static uint32_t Nearest(float x, float d) { return EncodeE2m1(Finite(OfScale(x, d))); }
  HEARTH_HD static uint32_t Stochastic(float x, float d, uint32_t random) {
    return EncodeE2m1Stochastic(Finite(OfScale(x, d)), random >> 16);
  }
  HEARTH_HD static float Value(uint32_t code, float d) { return MulRn(DecodeE2m1(code), d); }

 private:
  HEARTH_HD static float Finite(float x) { return x != x ? 0.0F : x; }
};

// The byte of a block that has the code of its element i, and by how many bits it is shifted.
template <WeightCodec kCodec>
HEARTH_HD inline int CodeByte(int i) {
  using Code = WeightCode<kCodec>;
  if constexpr (Code::kPair == 0) {
    return Code::kHeader + i;
  } else {
    return Code::kHeader + i / (2 * Code::kPair) * Code::kPair + i % Code::kPair;
  }
}
template <WeightCodec kCodec>
HEARTH_HD inline int CodeShift(int i) {
  constexpr int kPair = WeightCode<kCodec>::kPair;
  if constexpr (kPair == 0) {
    return 0;
  } else {
    return i % (2 * kPair) >= kPair ? 4 : 0;
  }
}
template <WeightCodec kCodec>
HEARTH_HD inline uint32_t CodeOf(const uint8_t* block, int i) {
  constexpr uint32_t kMask = WeightCode<kCodec>::kPair == 0 ? 0xFFU : 0xFU;
  return static_cast<uint32_t>(block[CodeByte<kCodec>(i)]) >> CodeShift<kCodec>(i) & kMask;
}

// A codec as the type of an argument.
template <WeightCodec kCodec>
using WeightCodecTag = std::integral_constant<WeightCodec, kCodec>;

// Calls fn with the tag of a codec that is not kNone.
template <typename Fn>
auto DispatchWeightCodec(WeightCodec codec, const Fn& fn) {
  switch (codec) {
    case WeightCodec::kQ40:
      return fn(WeightCodecTag<WeightCodec::kQ40>());
    case WeightCodec::kNvfp4:
      return fn(WeightCodecTag<WeightCodec::kNvfp4>());
    case WeightCodec::kNone:
    case WeightCodec::kQ80:
      break;
  }
  return fn(WeightCodecTag<WeightCodec::kQ80>());
}

}  // namespace hearth::formats
