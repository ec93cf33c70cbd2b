// Input that somebody made to break a build: an error with file and place, or a count in the
// report; nothing of a dataset stays.
#include <zlib.h>
#include <zstd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "common/dataset/build/build.h"
#include "common/dataset/dataset.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/common/temp_dir.h"

namespace hearth::dataset {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class HostileInputTest : public ::testing::Test {
 protected:
  HostileInputTest() {
    fs::create_directories(dir_ / "in");
    Write("a.txt", "a good document\n");
  }

  void Write(const std::string& name, const std::string& bytes) {
    std::ofstream(dir_ / "in" / name, std::ios::binary) << bytes;
  }
  void WriteGzip(const std::string& name, const std::string& bytes) {
    const gzFile file = gzopen((dir_ / "in" / name).c_str(), "wb9");
    gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
    gzclose(file);
  }
  void WriteZstd(const std::string& name, const std::string& bytes) {
    std::string packed(ZSTD_compressBound(bytes.size()), '\0');
    packed.resize(ZSTD_compress(packed.data(), packed.size(), bytes.data(), bytes.size(), 3));
    Write(name, packed);
  }

  absl::StatusOr<BuildReport> Try() {
    BuildOptions options;
    options.inputs = {(dir_ / "in").string()};
    options.field = "text";
    options.tokenizer = "bytes";
    options.out = (dir_ / "out").string();
    options.threads = 2;
    return Build(options);
  }

  // The build is refused with all of `needles`, and leaves nothing.
  void ExpectRefused(const std::vector<std::string>& needles) {
    const absl::Status status = Try().status();
    EXPECT_FALSE(status.ok());
    for (const std::string& needle : needles) {
      EXPECT_THAT(std::string(status.message()), HasSubstr(needle));
    }
    for (const fs::directory_entry& entry : fs::directory_iterator(dir_)) {
      EXPECT_EQ(entry.path().filename(), "in") << "nothing partial stays";
    }
  }

  const TempDir temp_;
  const fs::path dir_ = temp_.path();
};

TEST_F(HostileInputTest, BadUtf8_InJsonIsAnErrorInTextIsCounted) {
  Write("b.jsonl", "{\"text\": \"good\"}\n{\"text\": \"bad \xC3\x28 here\"}\n");
  ExpectRefused({"b.jsonl:2", "byte"});
  fs::remove(dir_ / "in/b.jsonl");
  Write("overlong.txt", "\xC0\xAF");
  Write("surrogate.txt", "\xED\xA0\x80");
  Write("cut.txt", "end \xF0\x9F\x98");
  Write("row.csv", "id,text\n1,\xFF\xFE\n2,fine\n");
  const auto report = Try();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->binary, 4);
  EXPECT_EQ(report->lengths.count(), 2);
}

TEST_F(HostileInputTest, LineOf100Megabytes_IsSkippedOrCut) {
  constexpr int64_t kLong = 100'000'000;
  Write("long.jsonl", "{\"text\": \"" + std::string(kLong, 'x') + "\"}\n{\"text\": \"short\"}\n");
  Write("long.txt", std::string(kLong, 'y'));
  const auto report = Try();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->oversized, 1) << "the line of JSON";
  EXPECT_GT(report->lengths.count(), 2);
  EXPECT_LE(report->lengths.longest(), int64_t{16} << 20);
  EXPECT_GT(report->duplicates, 50) << "pieces of one letter are alike";
}

TEST_F(HostileInputTest, CsvRecordWithoutEnd_NamesWhereItBegins) {
  std::string text = "id,text\n1,\"";
  text.append(40'000'000, 'z');
  Write("b.csv", text);
  ExpectRefused({"b.csv:2", "exceeds"});
}

TEST_F(HostileInputTest, Bombs_AreRefused) {
  Write("good.jsonl", "{\"text\": \"good\"}\n");
  std::string zeros;
  zeros.append(50'000'000, '0');
  WriteGzip("bomb.gz", zeros);
  ExpectRefused({"bomb.gz", "more than 300 times"});
  fs::remove(dir_ / "in/bomb.gz");
  WriteZstd("bomb.jsonl.zst", zeros);
  ExpectRefused({"bomb.jsonl.zst", "more than 300 times"});
}

TEST_F(HostileInputTest, DeepJson_IsAnError) {
  Write("b.jsonl", "{\"text\": " + std::string(1'000'000, '[') + "\n");
  ExpectRefused({"b.jsonl:1"});
}

}  // namespace
}  // namespace hearth::dataset
