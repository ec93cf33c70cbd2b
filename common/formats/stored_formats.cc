#include "common/formats/stored_formats.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/formats/codecs.h"
#include "common/formats/weight_codecs.h"

namespace hearth::formats {
namespace {

constexpr int64_t kBlock = 32;

template <typename Code, typename Encode>
void EncodeEach(const float* in, int64_t count, uint8_t* out, const Encode& encode) {
  for (int64_t i = 0; i < count; ++i) {
    const Code code = encode(in[i]);
    std::memcpy(out + i * static_cast<int64_t>(sizeof code), &code, sizeof code);
  }
}

template <typename Code, typename Decode>
void DecodeEach(const uint8_t* in, int64_t count, float* out, const Decode& decode) {
  for (int64_t i = 0; i < count; ++i) {
    Code code;
    std::memcpy(&code, in + i * static_cast<int64_t>(sizeof code), sizeof code);
    out[i] = decode(code);
  }
}

void EncodeRowsF32(const float* in, int64_t count, uint8_t* out) {
  std::memcpy(out, in, static_cast<size_t>(count) * sizeof(float));
}
void DecodeRowsF32(const uint8_t* in, int64_t count, float* out) {
  std::memcpy(out, in, static_cast<size_t>(count) * sizeof(float));
}
void EncodeRowsBf16(const float* in, int64_t count, uint8_t* out) {
  EncodeEach<uint16_t>(in, count, out, EncodeBf16);
}
void DecodeRowsBf16(const uint8_t* in, int64_t count, float* out) {
  DecodeEach<uint16_t>(in, count, out, DecodeBf16);
}
void EncodeRowsF16(const float* in, int64_t count, uint8_t* out) {
  EncodeEach<uint16_t>(in, count, out, EncodeF16);
}
void DecodeRowsF16(const uint8_t* in, int64_t count, float* out) {
  DecodeEach<uint16_t>(in, count, out, DecodeF16);
}

// Where 1 / d is infinite, d rounds to zero in f16 and every element decodes to zero.
float Inverse(float d) {
  const float inverse = d == 0.0F ? 0.0F : 1.0F / d;
  return std::isfinite(inverse) ? inverse : 0.0F;
}

void PutScale(float d, uint8_t* out) {
  const uint16_t bits = EncodeF16(d);
  std::memcpy(out, &bits, sizeof bits);
}

float ScaleOf(const uint8_t* in) {
  uint16_t bits;
  std::memcpy(&bits, in, sizeof bits);
  return DecodeF16(bits);
}

void EncodeRowsQ8_0(const float* in, int64_t blocks, uint8_t* out) {
  for (int64_t b = 0; b < blocks; ++b, in += kBlock, out += 2 + kBlock) {
    float amax = 0.0F;
    for (int64_t j = 0; j < kBlock; ++j) {
      amax = std::max(amax, std::fabs(in[j]));
    }
    const float d = amax / 127.0F;
    const float inverse = Inverse(d);
    PutScale(d, out);
    for (int64_t j = 0; j < kBlock; ++j) {
      const auto code = static_cast<int8_t>(std::round(MulRn(in[j], inverse)));
      out[2 + j] = static_cast<uint8_t>(code);
    }
  }
}

void DecodeRowsQ8_0(const uint8_t* in, int64_t blocks, float* out) {
  for (int64_t b = 0; b < blocks; ++b, in += 2 + kBlock, out += kBlock) {
    const float d = ScaleOf(in);
    for (int64_t j = 0; j < kBlock; ++j) {
      out[j] = static_cast<float>(static_cast<int8_t>(in[2 + j])) * d;
    }
  }
}

uint8_t Code4(float value, float inverse) {
  const auto code = static_cast<int8_t>(AddRn(MulRn(value, inverse), 8.5F));
  return static_cast<uint8_t>(std::min<int8_t>(15, code));
}

void EncodeRowsQ4_0(const float* in, int64_t blocks, uint8_t* out) {
  constexpr int64_t kHalf = kBlock / 2;
  for (int64_t b = 0; b < blocks; ++b, in += kBlock, out += 2 + kHalf) {
    float largest = 0.0F;
    for (int64_t j = 0; j < kBlock; ++j) {
      if (std::fabs(largest) < std::fabs(in[j])) {
        largest = in[j];
      }
    }
    const float d = largest / -8.0F;
    const float inverse = Inverse(d);
    PutScale(d, out);
    for (int64_t j = 0; j < kHalf; ++j) {
      out[2 + j] = static_cast<uint8_t>(Code4(in[j], inverse) | Code4(in[kHalf + j], inverse) << 4);
    }
  }
}

void DecodeRowsQ4_0(const uint8_t* in, int64_t blocks, float* out) {
  constexpr int64_t kHalf = kBlock / 2;
  for (int64_t b = 0; b < blocks; ++b, in += 2 + kHalf, out += kBlock) {
    const float d = ScaleOf(in);
    for (int64_t j = 0; j < kHalf; ++j) {
      out[j] = static_cast<float>((in[2 + j] & 15) - 8) * d;
      out[kHalf + j] = static_cast<float>((in[2 + j] >> 4) - 8) * d;
    }
  }
}

using Nvfp4 = WeightCode<WeightCodec::kNvfp4>;
constexpr WeightCodecRow kNvfp4 = RowOf(WeightCodec::kNvfp4);

void EncodeRowsNvfp4(const float* in, int64_t blocks, uint8_t* out) {
  std::memset(out, 0, static_cast<size_t>(blocks * kNvfp4.block_bytes));
  for (int64_t b = 0; b < blocks; ++b, in += kNvfp4.block, out += kNvfp4.block_bytes) {
    for (int i = 0; i < kNvfp4.block; ++i) {
      const int group = i / kNvfp4.group;
      if (i % kNvfp4.group == 0) {
        const auto [least, largest] = std::minmax_element(in + i, in + i + kNvfp4.group);
        Nvfp4::PutScale(out, group, Nvfp4::NextScale(0.0F, {*least, *largest}));
      }
      const uint32_t code = Nvfp4::Nearest(in[i], Nvfp4::Scale(out, group));
      uint8_t& byte = out[CodeByte<WeightCodec::kNvfp4>(i)];
      byte = static_cast<uint8_t>(byte | code << CodeShift<WeightCodec::kNvfp4>(i));
    }
  }
}

void DecodeRowsNvfp4(const uint8_t* in, int64_t blocks, float* out) {
  for (int64_t b = 0; b < blocks; ++b, in += kNvfp4.block_bytes, out += kNvfp4.block) {
    for (int i = 0; i < kNvfp4.block; ++i) {
      out[i] = Nvfp4::Value(CodeOf<WeightCodec::kNvfp4>(in, i), Nvfp4::Scale(in, i / kNvfp4.group));
    }
  }
}

constexpr float kLargestF16 = 65504.0F;
constexpr float kLargestNvfp4 = 448.0F * kE2m1Max * Nvfp4::kTensorScale;

}  // namespace

// clang-format off
constinit const StoredFormat kStoredF32 = {"f32", 1, 4, EncodeRowsF32, DecodeRowsF32, 0, 0, "float32"};
constinit const StoredFormat kStoredBf16 = {"bf16", 1, 2, EncodeRowsBf16, DecodeRowsBf16, 30, 32, "bfloat16"};
constinit const StoredFormat kStoredF16 = {"f16", 1, 2, EncodeRowsF16, DecodeRowsF16, 1, 1, "float16"};
constinit const StoredFormat kStoredQ8_0 = {"q8_0", kBlock, 34, EncodeRowsQ8_0, DecodeRowsQ8_0, 8, 7, "", kLargestF16 * 127};
constinit const StoredFormat kStoredQ4_0 = {"q4_0", kBlock, 18, EncodeRowsQ4_0, DecodeRowsQ4_0, 2, 2, "", kLargestF16 * 8};
constinit const StoredFormat kStoredNvfp4 = {"nvfp4", kNvfp4.block, kNvfp4.block_bytes, EncodeRowsNvfp4, DecodeRowsNvfp4, 40, 39, "",
                                             kLargestNvfp4, Nvfp4::kTensorScale};
// clang-format on

const StoredFormat* FindStoredFormat(std::string_view name) {
  for (const StoredFormat* format : kStoredFormats) {
    if (format->name == name) {
      return format;
    }
  }
  return nullptr;
}

const StoredFormat* FindStoredFormat(uint32_t ggml_type) {
  for (const StoredFormat* format : kStoredFormats) {
    if (format->ggml_type == ggml_type) {
      return format;
    }
  }
  return nullptr;
}

std::string StoredFormatNames() {
  std::string names;
  for (const StoredFormat* format : kStoredFormats) {
    names += (names.empty() ? "" : ", ") + std::string(format->name);
  }
  return names;
}

}  // namespace hearth::formats
