#include "common/dataset/text_files.h"

#include <zlib.h>

#include <cstring>

#include "gtest/gtest.h"

namespace hearth::dataset {
namespace {

std::string Gzip(const std::string& text) {
  z_stream stream = {};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(text.size() + 1000, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(out.size() - stream.avail_out);
  deflateEnd(&stream);
  return out;
}

TEST(IsText, Utf8_IsRecognised) {
  using namespace std::literals;
  for (const auto good : {""sv, "plain\n"sv, "ü€🙂"sv, "\xf4\x8f\xbf\xbf"sv}) {
    EXPECT_TRUE(IsText(good)) << good;
  }
  for (const auto bad : {"a\0b"sv, "\xff"sv, "caf\xe9"sv, "\xe2\x82"sv, "\xc0\x80"sv,
                         "\xed\xa0\x80"sv, "\xf4\x90\x80\x80"sv, "\x80"sv, "\xe0\x80\x80"sv}) {
    EXPECT_FALSE(IsText(bad)) << bad;
  }
}

TEST(Gunzip, OneAndTwoMembers_Unpack) {
  const std::string text(300000, 'x');
  EXPECT_EQ(*Gunzip(Gzip(text), 1 << 20), text);
  EXPECT_EQ(*Gunzip(Gzip("ab") + Gzip("cd"), 100), "abcd");
}

TEST(Gunzip, DamagedOrHuge_IsAnError) {
  const std::string packed = Gzip(std::string(300000, 'x'));
  EXPECT_TRUE(absl::IsInvalidArgument(Gunzip("not gzip", 100).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(Gunzip("", 100).status()));
  EXPECT_TRUE(
      absl::IsInvalidArgument(Gunzip(packed.substr(0, packed.size() / 2), 1 << 20).status()));
  EXPECT_TRUE(absl::IsResourceExhausted(Gunzip(packed, 1000).status()));
}

}  // namespace
}  // namespace hearth::dataset
