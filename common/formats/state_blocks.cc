#include "common/formats/state_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace hearth::formats {
namespace {

// NaN if any element is.
float LargestMagnitude(const float* x, int64_t count) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    largest = std::max(largest, FloatBits(x[i]) & 0x7FFFFFFFU);
  }
  return BitsFloat(largest);
}

template <StateCodec kCodec>
void EncodeAll(const float* x, int64_t count, uint8_t* codes, float* scales) {
  static constexpr StateDecades kDecades = StateCode<kCodec>::Decades();
  constexpr int kBits = RowOf(kCodec).bits;
  constexpr int kBlock = RowOf(kCodec).block;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t end = std::min<int64_t>(count, begin + kBlock);
    const float largest = LargestMagnitude(x + begin, end - begin);
    const bool zeros = largest < kLeastStateScale;
    const float inverse = zeros ? 0.0F : 1.0F / largest;
    scales[begin / kBlock] = zeros ? 0.0F : largest;
    const auto encode = [&](int64_t i) {
      return i < end ? StateCode<kCodec>::Encode(x[i] * inverse, kDecades.rows) : 0U;
    };
    for (int64_t i = begin; i < end; i += 8 / kBits) {
      const uint32_t code = kBits == 8 ? encode(i) : encode(i) | encode(i + 1) << 4;
      codes[i * kBits / 8] = static_cast<uint8_t>(code);
    }
  }
}

template <StateCodec kCodec>
void DecodeAll(const uint8_t* codes, const float* scales, int64_t count, float* x) {
  static constexpr StateDecades kDecades = StateCode<kCodec>::Decades();
  constexpr int kBits = RowOf(kCodec).bits;
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t byte = codes[i * kBits / 8];
    const uint32_t code = kBits == 8 ? byte : byte >> (i % 2 * 4) & 15U;
    x[i] = StateCode<kCodec>::Decode(code, kDecades.rows) * scales[i / RowOf(kCodec).block];
  }
}

// Calls `with` with the codec as a constant.
template <typename With>
void Dispatch(StateCodec codec, With with) {
  switch (codec) {
    case StateCodec::kNone:
      return;
    case StateCodec::kDynamicSigned8:
      return with.template operator()<StateCodec::kDynamicSigned8>();
    case StateCodec::kDynamicUnsigned8:
      return with.template operator()<StateCodec::kDynamicUnsigned8>();
    case StateCodec::kLinearSigned8:
      return with.template operator()<StateCodec::kLinearSigned8>();
    case StateCodec::kDynamicSigned4:
      return with.template operator()<StateCodec::kDynamicSigned4>();
    case StateCodec::kLinearUnsigned4:
      return with.template operator()<StateCodec::kLinearUnsigned4>();
    case StateCodec::kLeadingSigned4:
      std::abort();  // not one of this file's
  }
}

}  // namespace

void EncodeStateBlocks(
    StateCodec codec, const float* x, int64_t count, uint8_t* codes, float* scales) {
  Dispatch(codec, [&]<StateCodec kCodec>() { EncodeAll<kCodec>(x, count, codes, scales); });
}

void DecodeStateBlocks(
    StateCodec codec, const uint8_t* codes, const float* scales, int64_t count, float* x) {
  Dispatch(codec, [&]<StateCodec kCodec>() { DecodeAll<kCodec>(codes, scales, count, x); });
}

}  // namespace hearth::formats
