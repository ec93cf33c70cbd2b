#include "common/dataset/build/record_reader.h"

#include <zlib.h>
#include <zstd.h>

#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/common/temp_dir.h"

namespace hearth::dataset {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class RecordReaderTest : public ::testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& bytes) {
    std::ofstream(root_ + "/" + name, std::ios::binary) << bytes;
    return root_ + "/" + name;
  }

  std::string WriteGzip(const std::string& name, const std::string& text) {
    gzFile file = gzopen((root_ + "/" + name).c_str(), "wb");
    EXPECT_EQ(gzwrite(file, text.data(), static_cast<unsigned>(text.size())),
              static_cast<int>(text.size()));
    gzclose(file);
    return root_ + "/" + name;
  }

  static std::string Zstd(const std::string& text) {
    std::string packed(ZSTD_compressBound(text.size()), '\0');
    packed.resize(ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 3));
    return packed;
  }

  static std::string Contents(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }

  // All documents; "<long>" for one that is too long, the error's text as the last.
  static std::vector<std::string> ReadAll(const std::string& path,
                                          int64_t max = 1000,
                                          const std::string& format = "jsonl",
                                          const std::string& field = "") {
    std::vector<std::string> all;
    const auto reader = RecordReader::Open(path, *FindInputFormat(format), field, max);
    if (!reader.ok()) {
      return {std::string(reader.status().message())};
    }
    ByteBuffer buffer;
    TextSpace space;
    for (int i = 0;; ++i) {
      // Now and then into another buffer, as batches do.
      if (i % 5 == 4) {
        (*reader)->Leave(&buffer);
        buffer.Clear();
      }
      auto record = (*reader)->Read(&buffer);
      if (!record.ok()) {
        all.emplace_back(record.status().message());
        return all;
      }
      if (!record->has_value()) {
        return all;
      }
      if ((*record)->too_long) {
        all.emplace_back("<long>");
      } else if (field.empty()) {
        all.emplace_back(buffer.view().substr((*record)->begin, (*record)->size));
      } else {
        const auto text = (*reader)->parser()->TextOf(**record, &buffer, &space);
        all.emplace_back(text.ok() ? text->text : std::string(text.status().message()));
      }
    }
  }

  const TempDir temp_;
  const std::string root_ = temp_.path();
};

TEST_F(RecordReaderTest, Read_PlainGzipAndZstd_SameLines) {
  std::string text = "first\r\n\nthird\n";
  std::vector<std::string> want = {"first", "third"};
  for (int i = 0; i < 200000; ++i) {  // more than one chunk, unpacked and packed
    want.push_back(std::to_string(i * 2654435761u));
    text += want.back() + "\n";
  }
  want.push_back("the last line has no end");
  text += want.back();
  EXPECT_EQ(ReadAll(Write("a.jsonl", text)), want);
  EXPECT_EQ(ReadAll(WriteGzip("a.jsonl.gz", text)), want);
  EXPECT_EQ(ReadAll(Write("a.jsonl.zst", Zstd(text))), want);
  const size_t half = text.find('\n', text.size() / 2) + 1;
  EXPECT_EQ(ReadAll(Write("b.zst", Zstd(text.substr(0, half)) + Zstd(text.substr(half)))), want);
  EXPECT_TRUE(ReadAll(Write("empty", "")).empty());
}

TEST_F(RecordReaderTest, Read_LongLine_IsPassedOver) {
  const std::string text = "a\n" + std::string(3'000'000, 'x') + "\nb\n" + std::string(1001, 'y');
  const std::vector<std::string> want = {"a", "<long>", "b", "<long>"};
  EXPECT_EQ(ReadAll(Write("long", text)), want);
  EXPECT_EQ(ReadAll(Write("limit", std::string(1000, 'z') + "\n")),
            std::vector<std::string>{std::string(1000, 'z')});
}

TEST_F(RecordReaderTest, Read_BlankLines_TakeNoMemory) {
  const std::string blank(8'000'000, '\n');
  for (const char* const format : {"jsonl", "csv"}) {
    const std::string path = Write("blank", "text\n" + blank + "last");
    const auto reader = RecordReader::Open(path, *FindInputFormat(format), "text", 1000);
    ASSERT_TRUE(reader.ok()) << reader.status();
    ByteBuffer buffer;
    std::string last;
    for (auto record = (*reader)->Read(&buffer); record.ok() && record->has_value();
         record = (*reader)->Read(&buffer)) {
      last = buffer.view().substr((*record)->begin, (*record)->size);
    }
    EXPECT_EQ(last, "last");
    EXPECT_LT(buffer.size(), 1'000'000u) << format;
  }
}

TEST_F(RecordReaderTest, Read_DamagedOrCutOff_ErrorNamesFile) {
  std::string text;
  for (int i = 0; i < 50000; ++i) {
    text += std::to_string(i * 2654435761u) + "\n";
  }
  const std::string gzip = Contents(WriteGzip("good.gz", text));
  const std::string zstd = Zstd(text);
  EXPECT_THAT(ReadAll(Write("cut.gz", gzip.substr(0, gzip.size() / 2))).back(),
              HasSubstr("cut.gz: behind byte"));
  EXPECT_THAT(ReadAll(Write("cut.zst", zstd.substr(0, zstd.size() / 2))).back(),
              HasSubstr("zstd data ends early"));
  std::string bad = gzip;
  bad[bad.size() / 2] = static_cast<char>(bad[bad.size() / 2] ^ 0x55);
  EXPECT_THAT(ReadAll(Write("bad.gz", bad)).back(), HasSubstr("damaged gzip data"));
  EXPECT_THAT(ReadAll(Write("bad.zst", "no zstd at all")).back(), HasSubstr("damaged zstd data"));
  EXPECT_THAT(ReadAll(Write("plain.gz", "no gzip at all")).back(), HasSubstr("not gzip data"));
  EXPECT_TRUE(absl::IsNotFound(PackedBytes::Open(root_ + "/none.zst").status()));
}

TEST_F(RecordReaderTest, Read_LargeText_IsCutBehindLineEnds) {
  const std::string line = "a line of text that is not short\n";
  std::string text;
  while (text.size() < size_t{5} << 20) {
    text += line;
  }
  EXPECT_EQ(ReadAll(Write("whole.txt", text), int64_t{5} << 20 | 1000, "text").size(), 1u);
  for (const std::string& path : {Write("a.txt", text), WriteGzip("a.txt.gz", text)}) {
    const std::vector<std::string> parts = ReadAll(path, int64_t{4} << 20, "text");
    EXPECT_GT(parts.size(), 4u);
    std::string joined;
    for (const std::string& part : parts) {
      EXPECT_LE(part.size(), size_t{1} << 20);
      EXPECT_EQ(part.back(), '\n');
      joined += part;
    }
    EXPECT_TRUE(joined == text);
  }
  // Without line ends, characters stay whole.
  std::string euros;
  for (int i = 0; i < 1000; ++i) {
    euros += "€";
  }
  const std::vector<std::string> parts = ReadAll(Write("euros", euros), 1000, "text");
  std::string joined;
  for (const std::string& part : parts) {
    EXPECT_EQ(part.size() % 3, 0u);
    joined += part;
  }
  EXPECT_EQ(joined, euros);
  const std::string binary = "\x7f" + std::string(1000, '\0') + text;
  EXPECT_EQ(ReadAll(Write("binary", binary), 1000, "text").size(), 1u);
}

TEST_F(RecordReaderTest, Read_Csv_AsRfc4180Says) {
  const std::string csv =
      "\xef\xbb\xbfid,\"the \"\"text\"\"\"\r\n"
      "1,plain\r\n"
      "\r\n"
      "2,\"two\nlines, \"\"quoted\"\"\"\n"
      "3,\n"
      "4,\"the last has no line end\"";
  EXPECT_THAT(ReadAll(Write("a.csv", csv), 1000, "csv", "the \"text\""),
              ElementsAre("plain", "two\nlines, \"quoted\"", "", "the last has no line end"));
  // Records longer than a chunk.
  const std::string large(700'000, 'x');
  EXPECT_EQ(ReadAll(Write("b.csv", "t\n\"" + large + "\n" + large + "\"\n" + large + "\n"),
                    2'000'000, "csv", "t"),
            (std::vector<std::string>{large + "\n" + large, large}));
}

TEST_F(RecordReaderTest, Read_BadCsv_ErrorNamesFileLineAndByte) {
  const auto last = [&](const std::string& csv) {
    return ReadAll(Write("bad.csv", csv), 1000, "csv", "text").back();
  };
  EXPECT_THAT(last(""), HasSubstr("bad.csv: has no header"));
  EXPECT_THAT(last("id,body\n"), HasSubstr("bad.csv:1: the header has no field \"text\""));
  EXPECT_THAT(last("id,text\n1,a\n2\n"), HasSubstr("bad.csv:3: has 1 fields, the header has 2"));
  EXPECT_THAT(last("id,text\n1,\"a\nb\"c\n"),
              HasSubstr("bad.csv:2: byte 8: a comma must follow the closing quote"));
  EXPECT_THAT(last("id,text\n1,a \"b\" c\n"),
              HasSubstr("bad.csv:2: byte 5: a quote inside a field that is not in quotes"));
  EXPECT_THAT(last("id,text\n1,\"a\n2,b\n"),
              HasSubstr("bad.csv:2: this record never ends; a quote is left open"));
  EXPECT_THAT(last("id,text\n1,\"" + std::string(2000, 'a')), HasSubstr("exceeds 1000 bytes"));
}

TEST(FormatOfFile, Endings_SayIt) {
  const InputFormat& text = *FindInputFormat("text");
  EXPECT_EQ(FormatOfFile("a/b.jsonl.zst", text).name, "jsonl");
  EXPECT_EQ(FormatOfFile("b.csv.gz", text).name, "csv");
  EXPECT_EQ(FormatOfFile("notes.md", *FindInputFormat("csv")).name, "text");
  EXPECT_EQ(FormatOfFile("b.parts", *FindInputFormat("csv")).name, "csv");
  EXPECT_EQ(FindInputFormat("parquet"), nullptr);
}

TEST_F(RecordReaderTest, Read_Bomb_IsRefused) {
  const std::string ends(4'000'000, '\n');
  EXPECT_THAT(ReadAll(Write("bomb.zst", Zstd(ends))).back(), HasSubstr("more than 300 times"));
  EXPECT_THAT(ReadAll(WriteGzip("bomb.gz", ends)).back(), HasSubstr("more than 300 times"));
}

}  // namespace
}  // namespace hearth::dataset
