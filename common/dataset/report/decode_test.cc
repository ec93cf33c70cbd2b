#include "common/dataset/report/decode.h"

#include <fstream>
#include <string>
#include <vector>

#include "common/dataset/dataset_writer.h"
#include "common/dataset/tokenize/tokenizer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/common/temp_dir.h"

namespace hearth::dataset {
namespace {

using ::testing::HasSubstr;

class DecodeTest : public ::testing::Test {
 protected:
  std::string Write(const std::vector<std::string>& documents) {
    const auto tokenizer = NewBytesTokenizer();
    DatasetWriter::Options options;
    options.info.name = "d";
    options.info.split = "all";
    options.info.tokenizer = tokenizer->info();
    options.info.vocab = tokenizer->vocab();
    options.info.eos = tokenizer->eos();
    options.shard_tokens = 7;
    auto writer = DatasetWriter::Create(dir_ + "/d", options);
    EXPECT_TRUE(writer.ok()) << writer.status();
    for (const std::string& document : documents) {
      EXPECT_TRUE((*writer)->AddDocument(*tokenizer->Encode(document)).ok());
    }
    EXPECT_TRUE((*writer)->Finish().ok());
    return dir_ + "/d";
  }

  static std::vector<DecodedPart> Parts(const std::string& path, const DecodeOptions& options) {
    const auto parts = DecodeParts(path, options);
    EXPECT_TRUE(parts.ok()) << parts.status();
    return parts.value_or(std::vector<DecodedPart>());
  }

  const TempDir temp_;
  const std::string dir_ = temp_.path();
};

TEST_F(DecodeTest, Documents_FromTheFirst_HaveTheirTextAndPlace) {
  const std::string path = Write({"one", "", "three\nlines\n", "four"});
  const std::vector<DecodedPart> parts = Parts(path, {.parts = 9});
  ASSERT_EQ(parts.size(), 4U);
  EXPECT_EQ(parts[0].text, "one");
  EXPECT_EQ(parts[1].text, "");
  EXPECT_EQ(parts[2].text, "three\nlines\n");
  EXPECT_EQ(parts[3].text, "four");
  EXPECT_EQ(parts[2].document, 2);
  EXPECT_EQ(parts[2].first, 5);
  EXPECT_EQ(parts[2].tokens, 13);
  EXPECT_TRUE(parts[2].ends);
}

TEST_F(DecodeTest, Document_BeginsThere) {
  const std::string path = Write({"one", "two", "three"});
  const std::vector<DecodedPart> parts = Parts(path, {.parts = 1, .document = 2});
  ASSERT_EQ(parts.size(), 1U);
  EXPECT_EQ(parts[0].text, "three");
  EXPECT_EQ(parts[0].first, 8);
  const auto beyond = DecodeParts(path, {.parts = 1, .document = 3});
  EXPECT_TRUE(absl::IsOutOfRange(beyond.status()));
  EXPECT_THAT(std::string(beyond.status().message()), HasSubstr("has 3 documents"));
}

TEST_F(DecodeTest, From_WithinADocument_SaysWhich) {
  const std::string path = Write({"one", "two", "three"});
  std::vector<DecodedPart> parts = Parts(path, {.parts = 2, .from = 5});
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(parts[0].text, "wo");
  EXPECT_EQ(parts[0].document, 1);
  EXPECT_FALSE(parts[0].begins);
  EXPECT_EQ(parts[1].text, "three");
  EXPECT_TRUE(parts[1].begins);
  parts = Parts(path, {.parts = 1, .from = 4});
  EXPECT_EQ(parts[0].document, 1);
  EXPECT_TRUE(parts[0].begins);
  EXPECT_TRUE(absl::IsOutOfRange(DecodeParts(path, {.parts = 1, .from = 14}).status()));
}

TEST_F(DecodeTest, LongDocument_ShowsItsFirstTokens) {
  const std::string path = Write({std::string(5000, 'x')});
  const std::vector<DecodedPart> parts = Parts(path, {});
  EXPECT_EQ(parts[0].text, std::string(kDecodeMax, 'x'));
  EXPECT_EQ(parts[0].tokens, 5001);
  EXPECT_THAT(ToText(parts), HasSubstr("(904 more tokens)"));
}

TEST_F(DecodeTest, RawFile_HasWindowsOfNumbers) {
  const std::string path = dir_ + "/raw.bin";
  const std::vector<uint16_t> tokens(600, 7);
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(tokens.data()), 1200);
  const std::vector<DecodedPart> parts = Parts(path, {.parts = 5});
  ASSERT_EQ(parts.size(), 3U);
  EXPECT_EQ(parts[2].tokens, 600 - 2 * kDecodeWindow);
  EXPECT_EQ(parts[0].document, -1);
  EXPECT_EQ(parts[0].text.substr(0, 5), "7 7 7");
  EXPECT_THAT(ToText(parts), HasSubstr("no tokenizer is recorded"));
  EXPECT_TRUE(absl::IsOutOfRange(DecodeParts(path, {.parts = 1, .document = 0}).status()));
}

TEST_F(DecodeTest, ToText_IndentsEachLine) {
  const std::string path = Write({"a\ndocument 7"});
  EXPECT_EQ(ToText(Parts(path, {})), "document 0, tokens 0 to 12\n  a\n  document 7\n");
}

}  // namespace
}  // namespace hearth::dataset
