#include "common/formats/state_blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <random>
#include <sstream>
#include <string>
#include <vector>

namespace hearth::formats {
namespace {

// The map as bitsandbytes publishes it (functional.py, create_dynamic_map), in double.
std::vector<double> DynamicMapOf(bool is_signed, int exponent_bits, int total_bits) {
  const int bits = total_bits - 1;
  std::vector<double> map = {0.0, 1.0};
  for (int i = 0; i < exponent_bits; ++i) {
    const int shift = i + bits - exponent_bits;
    const int items = is_signed ? 1 << shift : 1 << (shift + 1);
    const double power = std::pow(10.0, i - (exponent_bits - 1));
    for (int j = 0; j < items; ++j) {
      const double low = 0.1 + 0.9 * j / items;
      const double high = 0.1 + 0.9 * (j + 1) / items;
      map.push_back(power * (low + high) / 2);
      if (is_signed) {
        map.push_back(-power * (low + high) / 2);
      }
    }
  }
  std::sort(map.begin(), map.end());
  return map;
}

std::vector<double> MapOf(StateCodec codec) {
  std::vector<double> map;
  switch (codec) {
    case StateCodec::kNone:
    case StateCodec::kLeadingSigned4:  // has no map of its own
      break;
    case StateCodec::kDynamicSigned8:
      return DynamicMapOf(true, 7, 8);
    case StateCodec::kDynamicUnsigned8:
      return DynamicMapOf(false, 7, 8);
    case StateCodec::kDynamicSigned4:
      return DynamicMapOf(true, 3, 4);
    case StateCodec::kLinearSigned8:
      for (int code = 0; code < 256; ++code) {
        map.push_back(static_cast<int8_t>(code) / 127.0);
      }
      break;
    case StateCodec::kLinearUnsigned4:
      for (int code = 0; code < 16; ++code) {
        map.push_back((code + 1) / 16.0);
      }
      break;
  }
  return map;
}

// One element between a block's largest and nothing else: its value and code.
struct One {
  float value;
  uint32_t code;
};
One RoundTrip(StateCodec codec, float x) {
  const float in[2] = {x, 1.0F};
  uint8_t codes[2] = {};
  float scale = 0;
  EncodeStateBlocks(codec, in, 2, codes, &scale);
  EXPECT_EQ(scale, 1.0F);
  float out[2];
  DecodeStateBlocks(codec, codes, &scale, 2, out);
  return {out[0], RowOf(codec).bits == 8 ? codes[0] : codes[0] & 15U};
}

class StateCodecTest : public testing::TestWithParam<int> {
 protected:
  StateCodec codec() const { return static_cast<StateCodec>(GetParam()); }
  bool is_signed() const {
    const std::vector<double> map = MapOf(codec());
    return *std::min_element(map.begin(), map.end()) < 0;
  }
};
INSTANTIATE_TEST_SUITE_P(All, StateCodecTest, testing::Range(1, kBlockStateCodecs));

TEST_P(StateCodecTest, EveryCode_DecodesToTheMap_AndEncodesToItself) {
  const std::vector<double> map = MapOf(codec());
  ASSERT_EQ(map.size(), size_t{1} << RowOf(codec()).bits);
  for (uint32_t code = 0; code < map.size(); ++code) {
    if (std::abs(map[code]) > 1) {
      continue;  // -128 / 127, which nothing encodes to
    }
    const One one = RoundTrip(codec(), static_cast<float>(map[code]));
    EXPECT_EQ(one.code, code) << map[code];
    EXPECT_NEAR(one.value, map[code], 2e-7 * std::abs(map[code])) << code;
  }
}

// Against a plain search over all values: every middle between two, what lies right beside it, and
// a sweep.
TEST_P(StateCodecTest, Encode_GivesTheNearestValue) {
  std::vector<double> map = MapOf(codec());
  std::sort(map.begin(), map.end());
  std::vector<float> probes;
  for (size_t i = 0; i + 1 < map.size(); ++i) {
    for (const double factor : {1 - 1e-5, 1.0, 1 + 1e-5}) {
      probes.push_back(static_cast<float>((map[i] + map[i + 1]) / 2 * factor));
    }
  }
  std::mt19937 random(11);
  for (int i = 0; i < 4000; ++i) {
    const double exponent = -8.0 * static_cast<double>(random()) / 4294967296.0;
    probes.push_back(static_cast<float>(std::pow(10.0, exponent)));
    probes.push_back(is_signed() ? -probes.back() : probes.back() / 2);
  }
  for (const float x : probes) {
    if (std::abs(x) > 1 || (!is_signed() && x < 0)) {
      continue;
    }
    double best = 2;
    for (const double value : map) {
      best = std::min(best, std::abs(value - static_cast<double>(x)));
    }
    const double error =
        std::abs(static_cast<double>(RoundTrip(codec(), x).value) - static_cast<double>(x));
    EXPECT_LE(error, best + 1e-6 * std::abs(x) + 1e-12) << x;
  }
}

TEST_P(StateCodecTest, Blocks_HaveTheirOwnScales_AndTheLastMayBeShort) {
  const int block = RowOf(codec()).block;
  const int64_t count = 2 * block + 5;
  std::vector<float> x(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const double sign = is_signed() && i % 3 == 0 ? -1 : 1;
    const int64_t block_of = i / block;
    x[static_cast<size_t>(i)] =
        static_cast<float>(sign * std::pow(10.0, static_cast<double>(block_of)) *
                           (0.2 + 0.08 * static_cast<double>((i * 7) % 11)));
  }
  std::vector<uint8_t> codes(x.size());
  std::vector<float> scales(3), y(x.size());
  EncodeStateBlocks(codec(), x.data(), count, codes.data(), scales.data());
  DecodeStateBlocks(codec(), codes.data(), scales.data(), count, y.data());
  EXPECT_FLOAT_EQ(scales[1], 10.0F);
  for (int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<size_t>(i);
    const double unit = scales[static_cast<size_t>(i / block)];
    EXPECT_NEAR(y[at], x[at], unit * (RowOf(codec()).bits == 8 ? 0.008 : 0.13)) << i;
  }
}

TEST_P(StateCodecTest, Zeros_TinyValuesAndZeroMemory_DecodeToZero_AndNanStays) {
  std::vector<uint8_t> codes(512, 0);
  for (const float value : {0.0F, 1e-39F}) {
    const std::vector<float> x(300, value);
    std::vector<float> scales(3, 7.0F), y(300, 5.0F);
    EncodeStateBlocks(codec(), x.data(), 300, codes.data(), scales.data());
    DecodeStateBlocks(codec(), codes.data(), scales.data(), 300, y.data());
    EXPECT_EQ(y, std::vector<float>(300, 0.0F));
  }
  std::vector<float> scales(3, 0.0F), y(300, 5.0F);
  std::fill(codes.begin(), codes.end(), 0);
  DecodeStateBlocks(codec(), codes.data(), scales.data(), 300, y.data());
  EXPECT_EQ(y, std::vector<float>(300, 0.0F));
  y[3] = std::numeric_limits<float>::quiet_NaN();
  EncodeStateBlocks(codec(), y.data(), 300, codes.data(), scales.data());
  DecodeStateBlocks(codec(), codes.data(), scales.data(), 300, y.data());
  EXPECT_TRUE(std::isnan(y[0]) && std::isnan(y[3]));
}

// Values of bitsandbytes' maps as its algorithm gives them.
TEST(StateBlocksTest, DynamicMaps_HaveThePublishedValues) {
  constexpr auto k8 = StateCodec::kDynamicSigned8;
  EXPECT_FLOAT_EQ(RoundTrip(k8, -1.0F).value, -0.99296875F);
  EXPECT_FLOAT_EQ(RoundTrip(k8, 0.99F).value, 0.99296875F);
  EXPECT_FLOAT_EQ(RoundTrip(k8, 5e-7F).value, 5.5e-7F);
  EXPECT_FLOAT_EQ(RoundTrip(k8, 3.0e-6F).value, 3.25e-6F);
  EXPECT_FLOAT_EQ(RoundTrip(k8, 0.1071F).value, 0.10703125F);
  EXPECT_EQ(RoundTrip(k8, 0.0F).code, 127U);
  EXPECT_EQ(RoundTrip(k8, 1.0F).code, 255U);
  constexpr auto kUnsigned = StateCodec::kDynamicUnsigned8;
  EXPECT_FLOAT_EQ(RoundTrip(kUnsigned, 3e-7F).value, 3.25e-7F);
  EXPECT_FLOAT_EQ(RoundTrip(kUnsigned, 0.995F).value, 0.996484375F);
  constexpr float kFour[] = {-0.8875F, -0.6625F, -0.4375F, -0.2125F, -0.0775F, -0.0325F,
                             -0.0055F, 0.0F,     0.0055F,  0.0325F,  0.0775F,  0.2125F,
                             0.4375F,  0.6625F,  0.8875F,  1.0F};
  for (uint32_t code = 0; code < 16; ++code) {
    const One one = RoundTrip(StateCodec::kDynamicSigned4, kFour[code]);
    EXPECT_EQ(one.code, code);
    EXPECT_FLOAT_EQ(one.value, kFour[code]);
  }
}

// tests/numerics/low_bit_vectors.py wrote these: the study of docs/low-bit-limits.md rounds as the
// engine does.
TEST(StateBlocksTest, RecordedBlocks_AreThoseOfTheStudy) {
  // Read once, before any thread: ctest names the source folder.
  const char* source = std::getenv("HEARTH_SOURCE_DIR");  // NOLINT(concurrency-mt-unsafe)
  std::ifstream file(std::string(source == nullptr ? "." : source) +
                     "/tests/numerics/data/state_blocks.txt");
  std::string line;
  int codecs = 0;
  while (std::getline(file, line)) {
    std::istringstream in(line);
    int number = 0;
    size_t count = 0;
    size_t blocks = 0;
    in >> number >> count >> blocks >> std::hex;
    SCOPED_TRACE(number);
    const auto codec = static_cast<StateCodec>(number);
    const auto read = [&in] {
      uint32_t value = 0;
      in >> value;
      return value;
    };
    std::vector<float> x(count), scales(blocks);
    for (float& value : x) {
      value = BitsFloat(read());
    }
    std::vector<uint8_t> codes(count);
    EncodeStateBlocks(codec, x.data(), static_cast<int64_t>(count), codes.data(), scales.data());
    for (const float scale : scales) {
      EXPECT_EQ(FloatBits(scale), read());
    }
    const bool bytes = RowOf(codec).bits == 8;
    for (size_t i = 0; i < count; ++i) {
      const uint32_t code = bytes ? codes[i] : codes[i / 2] >> (i % 2 * 4) & 15U;
      EXPECT_EQ(code, read()) << "element " << i << ", " << x[i];
    }
    EXPECT_FALSE(in.fail());
    ++codecs;
  }
  EXPECT_EQ(codecs, kBlockStateCodecs - 1);
}

}  // namespace
}  // namespace hearth::formats
