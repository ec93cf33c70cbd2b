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

TEST(StoredFormats, EveryFormat_DecodesToWithinItsStep) {
  std::vector<float> values;
  for (int i = 0; i < 64; ++i) {
    values.push_back(std::sin(static_cast<float>(i)) * 3.0F);
  }
  const struct {
    const StoredFormat* format;
    float error;  // half a step; a q4_0 block's positive end is a whole one
  } cases[] = {{&kStoredF32, 0.0F},
               {&kStoredBf16, 3.0F / 256},
               {&kStoredF16, 3.0F / 2048},
               {&kStoredQ8_0, 3.0F / 127 * 0.51F},
               {&kStoredQ4_0, 3.0F / 8 * 1.01F}};
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
  EXPECT_EQ(StoredFormatNames(), "f32, bf16, f16, q8_0, q4_0");
}

}  // namespace
}  // namespace hearth::formats
