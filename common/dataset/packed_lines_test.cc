#include "common/dataset/packed_lines.h"

#include <zlib.h>
#include <zstd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hearth::dataset {
namespace {

using ::testing::HasSubstr;

class PackedLinesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = ::testing::TempDir() + "/packed_lines_" +
            ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

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

  // All lines; "<long>" for one that is too long, the error's text as the last.
  static std::vector<std::string> ReadAll(const std::string& path, int64_t max = 1000) {
    auto lines = PackedLines::Open(path, max);
    EXPECT_TRUE(lines.ok()) << lines.status();
    std::vector<std::string> all;
    std::string line;
    while (true) {
      const auto next = (*lines)->Read(&line);
      if (!next.ok()) {
        all.emplace_back(next.status().message());
        return all;
      }
      if (*next == PackedLines::Next::kEnd) {
        return all;
      }
      all.push_back(*next == PackedLines::Next::kTooLong ? "<long>" : line);
      EXPECT_EQ((*lines)->line_number(), static_cast<int64_t>(all.size()));
    }
  }

  std::string root_;
};

TEST_F(PackedLinesTest, Read_PlainGzipAndZstd_SameLines) {
  std::string text = "first\r\n\nthird\n";
  std::vector<std::string> want = {"first", "", "third"};
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

TEST_F(PackedLinesTest, Read_LongLine_IsPassedOver) {
  const std::string text = "a\n" + std::string(3'000'000, 'x') + "\nb\n" + std::string(1001, 'y');
  const std::vector<std::string> want = {"a", "<long>", "b", "<long>"};
  EXPECT_EQ(ReadAll(Write("long", text)), want);
  EXPECT_EQ(ReadAll(Write("limit", std::string(1000, 'z') + "\n")),
            std::vector<std::string>{std::string(1000, 'z')});
}

TEST_F(PackedLinesTest, Read_DamagedOrCutOff_ErrorNamesFile) {
  std::string text;
  for (int i = 0; i < 50000; ++i) {
    text += std::to_string(i * 2654435761u) + "\n";
  }
  const std::string gzip = Contents(WriteGzip("good.gz", text));
  const std::string zstd = Zstd(text);
  EXPECT_THAT(ReadAll(Write("cut.gz", gzip.substr(0, gzip.size() / 2))).back(),
              HasSubstr("cut.gz: behind line"));
  EXPECT_THAT(ReadAll(Write("cut.zst", zstd.substr(0, zstd.size() / 2))).back(),
              HasSubstr("zstd data ends early"));
  std::string bad = gzip;
  bad[bad.size() / 2] = static_cast<char>(bad[bad.size() / 2] ^ 0x55);
  EXPECT_THAT(ReadAll(Write("bad.gz", bad)).back(), HasSubstr("damaged gzip data"));
  EXPECT_THAT(ReadAll(Write("bad.zst", "no zstd at all")).back(), HasSubstr("damaged zstd data"));
  EXPECT_TRUE(absl::IsNotFound(PackedLines::Open(root_ + "/none.zst", 10).status()));
}

TEST_F(PackedLinesTest, Read_Bomb_IsRefused) {
  const std::string ends(4'000'000, '\n');
  EXPECT_THAT(ReadAll(Write("bomb.zst", Zstd(ends))).back(), HasSubstr("more than 300 times"));
  EXPECT_THAT(ReadAll(WriteGzip("bomb.gz", ends)).back(), HasSubstr("more than 300 times"));
}

}  // namespace
}  // namespace hearth::dataset
