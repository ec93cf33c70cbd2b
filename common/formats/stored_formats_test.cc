#include "common/formats/stored_formats.h"

#include <cmath>
#include <cstdio>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace hearth::formats {
namespace {

std::string Hex(const std::vector<uint8_t>& bytes) {
  std::string hex;
  for (const uint8_t byte : bytes) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", byte);
    hex += digits;
  }
  return hex;
}

std::string Encoded(const StoredFormat& format, const std::vector<float>& values) {
  std::vector<uint8_t> out(static_cast<size_t>(format.Bytes(static_cast<int64_t>(values.size()))));
  format.encode(values.data(), static_cast<int64_t>(values.size()) / format.block, out.data());
  return Hex(out);
}

// Blocks computed with NumPy in fp32 after ggml's reference quantisers, one rounding an operation.
TEST(StoredFormats, QuantisedBlocks_AreTheRecordedOnes) {
  const struct {
    const char* name;
    float (*value)(int i);
    const char* q8_0;
    const char* q4_0;
  } cases[] = {
      {"mixed", [](int i) { return static_cast<float>((i * 37 + 11) % 64 - 31) * 0.1F; },
       "4026ae46d76f009129ba52e37b0c9e35c75ef08119aa42d36bfc8d25b64edf77089a",
       "3336730ca53fc851fb841da63fd962fb942e"},
      {"ramp", [](int i) { return static_cast<float>(i - 16) / 8.0F; },
       "082481899199a1a9b1b9c0c8d0d8e0e8f0f8000810182028303840474f575f676f77",
       "0034809191a2a2b3b3c4c4d5d5e6e6f7f7f8"},
      {"the first of equal magnitudes decides",
       [](int i) { return (i % 2 == 0 ? 3.0F : -3.0F) * (i < 4 ? 1.0F : 0.51F); },
       "0c267f817f8141bf41bf41bf41bf41bf41bf41bf41bf41bf41bf41bf41bf41bf41bf",
       "00b640cf40cf44cc44cc44cc44cc44cc44cc"},
      {"large", [](int i) { return static_cast<float>((i * 29) % 61 - 30) * 3000.0F; },
       "896181fc77ef6ae25dd650c944bc37b02aa31e961189047ff872eb66de59d14cc540",
       "7e71a0189f178ff67ef57de56ce45bd34bc2"},
      {"too small for 1 / d", [](int i) { return static_cast<float>(i - 9) * 0x1p-140F; },
       "00000000000000000000000000000000000000000000000000000000000000000000",
       "008088888888888888888888888888888888"},
      {"zero", [](int) { return 0.0F; },
       "00000000000000000000000000000000000000000000000000000000000000000000",
       "008088888888888888888888888888888888"},
  };
  for (const auto& c : cases) {
    std::vector<float> values;
    for (int i = 0; i < 32; ++i) {
      values.push_back(c.value(i));
    }
    EXPECT_EQ(Encoded(kStoredQ8_0, values), c.q8_0) << c.name;
    EXPECT_EQ(Encoded(kStoredQ4_0, values), c.q4_0) << c.name;
  }
}

// The same of NVFP4, computed with NumPy by a search over all codes and all scales: the least scale
// that is not below amax / 6, then the nearest code, the even one of two.
TEST(StoredFormats, Nvfp4Blocks_AreTheRecordedOnes) {
  const struct {
    const char* name;
    float (*value)(int i);
    const char* bytes;
  } cases[] = {
      {"mixed", [](int i) { return static_cast<float>((i * 37 + 11) % 64 - 31) * 0.001F; },
       "4b4b4b4b6eb57c17e04fd46df93fd26eb57c16e8c46d96fa37e25eb517e05ec46d96fa37"},
      {"ramp", [](int i) { return static_cast<float>(i - 32) / 1024.0F; },
       "4b43424befefefefefdedededfdfcfcebeae9e9d50616262637474756565656576767676"},
      {"groups of their own, the first at the largest value",
       [](int i) {
         const int group = i / 16;
         return std::ldexp(2.625F, -5 * group) * (i % 3 == 0 ? -0.5F : 1.0F);
       },
       "7e562e077dd7777dd7777dd7d7777dd7777dd777777dd7777dd7777d7dd7777dd7777dd7"},
      {"below the least scale", [](int i) { return static_cast<float>(i - 20) * 0x1p-30F; },
       "010101018888888888888888080808080000000000000000000000000000000000000000"},
      {"zero", [](int) { return 0.0F; },
       "000000000000000000000000000000000000000000000000000000000000000000000000"},
  };
  for (const auto& c : cases) {
    std::vector<float> values;
    for (int i = 0; i < 64; ++i) {
      values.push_back(c.value(i));
    }
    EXPECT_EQ(Encoded(kStoredNvfp4, values), c.bytes) << c.name;
  }
}

// ggml's dequantize_row_nvfp4 (ggml/src/ggml-quants.c), written out: twice E2M1's values times half
// of the scale, for every scale and every code.
TEST(StoredFormats, Nvfp4Blocks_HoldWhatGgmlReads_TimesTheTensorScale) {
  constexpr float kTwice[16] = {0, 1, 2, 3, 4, 6, 8, 12, -0.0F, -1, -2, -3, -4, -6, -8, -12};
  for (int scale = 0; scale < 0x7F; ++scale) {
    const int exponent = scale >> 3;
    const auto mantissa = static_cast<float>(scale & 7);
    const float half = 0.5F * (exponent == 0 ? std::ldexp(mantissa, -9)
                                             : std::ldexp(1.0F + mantissa / 8, exponent - 7));
    std::vector<uint8_t> block(36);
    for (size_t group = 0; group < 4; ++group) {
      block[group] = static_cast<uint8_t>((scale + 31 * static_cast<int>(3 - group)) % 0x7F);
    }
    constexpr size_t kGroup = 3;
    for (size_t j = 0; j < 8; ++j) {
      block[4 + 8 * kGroup + j] = static_cast<uint8_t>(j | (15 - j) << 4);
    }
    std::vector<float> values(64);
    kStoredNvfp4.decode(block.data(), 1, values.data());
    for (size_t j = 0; j < 8; ++j) {
      const float unit = half * kStoredNvfp4.tensor_scale;
      EXPECT_EQ(values[16 * kGroup + j], kTwice[j] * unit) << scale;
      EXPECT_EQ(values[16 * kGroup + 8 + j], kTwice[15 - j] * unit) << scale;
    }
  }
}

TEST(StoredFormats, LargestValueOfBlocks_IsHeld) {
  for (const StoredFormat* format : kStoredFormats) {
    if (format->block == 1) {
      continue;
    }
    std::vector<uint8_t> bytes(static_cast<size_t>(format->block_bytes));
    std::vector<float> values(static_cast<size_t>(format->block), -format->largest);
    std::vector<float> back(values.size());
    format->encode(values.data(), 1, bytes.data());
    format->decode(bytes.data(), 1, back.data());
    for (const float value : back) {
      EXPECT_NEAR(value, -format->largest, 1e-3F * format->largest) << format->name;
    }
  }
}

TEST(StoredFormats, EveryFormat_DecodesToWithinItsStep) {
  std::vector<float> values;
  for (int i = 0; i < 64; ++i) {
    values.push_back(std::sin(static_cast<float>(i)) * 2.5F);
  }
  const struct {
    const StoredFormat* format;
    float error;  // half a step; a q4_0 block's positive end is a whole one
  } cases[] = {{&kStoredF32, 0.0F},
               {&kStoredBf16, 2.5F / 256},
               {&kStoredF16, 2.5F / 2048},
               {&kStoredQ8_0, 2.5F / 127 * 0.51F},
               {&kStoredQ4_0, 2.5F / 8 * 1.01F},
               {&kStoredNvfp4, 2.5F / 6 * 1.13F}};
  for (const auto& c : cases) {
    const int64_t blocks = static_cast<int64_t>(values.size()) / c.format->block;
    std::vector<uint8_t> bytes(static_cast<size_t>(blocks * c.format->block_bytes));
    std::vector<float> back(values.size(), -1.0F);
    c.format->encode(values.data(), blocks, bytes.data());
    c.format->decode(bytes.data(), blocks, back.data());
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_LE(std::fabs(back[i] - values[i]), c.error) << c.format->name << ' ' << i;
    }
  }
}

TEST(StoredFormats, Rows_AreFoundByNameAndNumber) {
  for (const StoredFormat* format : kStoredFormats) {
    EXPECT_EQ(FindStoredFormat(format->name), format);
    EXPECT_EQ(FindStoredFormat(format->ggml_type), format);
  }
  EXPECT_EQ(FindStoredFormat("q5_0"), nullptr);
  EXPECT_EQ(FindStoredFormat(6U), nullptr);
  EXPECT_EQ(StoredFormatNames(), "f32, bf16, f16, q8_0, q4_0, nvfp4");
}

}  // namespace
}  // namespace hearth::formats
