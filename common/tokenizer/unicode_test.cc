#include "common/tokenizer/unicode.h"

#include <utf8proc.h>

#include <cstdlib>
#include <random>
#include <string>

#include "common/tokenizer/byte_alphabet.h"
#include "gtest/gtest.h"
#include "tests/support/common/tokenizer_json.h"

namespace hearth::tokenizer {
namespace {

TEST(UnicodeTest, FirstInvalidUtf8_BadBytes_TheirOffset) {
  EXPECT_EQ(FirstInvalidUtf8("plain ascii that is longer than a word"), 38u);
  EXPECT_EQ(FirstInvalidUtf8("\xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80"), 9u);
  EXPECT_EQ(FirstInvalidUtf8("abcdefghij\xff"), 10u);
  EXPECT_EQ(FirstInvalidUtf8("ab\xc0\x80"), 2u);          // overlong
  EXPECT_EQ(FirstInvalidUtf8("ab\xed\xa0\x80"), 2u);      // surrogate
  EXPECT_EQ(FirstInvalidUtf8("ab\xf4\x90\x80\x80"), 2u);  // above U+10FFFF
  EXPECT_EQ(FirstInvalidUtf8("ab\xe4\xb8"), 2u);          // cut off
  EXPECT_EQ(FirstInvalidUtf8(std::string_view("a\0b", 3)), 3u);
}

TEST(UnicodeTest, NormalizeNfc_RandomText_EqualsUtf8procOnTheWhole) {
  for (uint32_t seed = 0; seed < 3000; ++seed) {
    std::mt19937 random(seed);
    const std::string text = RandomText(random, 1 + random() % 60);
    utf8proc_uint8_t* normal =
        utf8proc_NFC(reinterpret_cast<const utf8proc_uint8_t*>(text.c_str()));
    const std::string want(reinterpret_cast<const char*>(normal));
    std::free(normal);
    std::string got = text;
    const bool changed = NormalizeNfc(text, &got);
    ASSERT_EQ(got, want) << "seed " << seed;
    ASSERT_EQ(changed, want != text) << "seed " << seed;
  }
}

TEST(UnicodeTest, ByteAlphabet_EachByte_ComesBack) {
  std::string all;
  for (int b = 0; b < 256; ++b) {
    all.push_back(static_cast<char>(b));
  }
  EXPECT_EQ(BytesOfName(NameOfBytes(all)), all);
  EXPECT_EQ(NameOfBytes(" \n"), "\xc4\xa0\xc4\x8a");  // U+0120 U+010A
  EXPECT_EQ(BytesOfName("a b"), std::nullopt);
}

}  // namespace
}  // namespace hearth::tokenizer
