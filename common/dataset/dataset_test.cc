#include "common/dataset/dataset.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "common/dataset/dataset_writer.h"
#include "common/io/faulty_env.h"
#include "common/io/sha256.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/common/temp_dir.h"

namespace hearth::dataset {
namespace {

using ::testing::HasSubstr;

class DatasetTest : public ::testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& bytes) {
    const std::string path = dir_ + "/" + name;
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }

  // 10 documents of 7 tokens and an end token, vocabulary `vocab`, shards of 16 tokens.
  std::string WriteFolder(int32_t vocab, Env& env = Env::Real()) {
    DatasetWriter::Options options;
    options.info.name = "t";
    options.info.vocab = vocab;
    options.info.eos = 0;
    options.shard_tokens = 16;
    auto writer = DatasetWriter::Create(dir_ + "/d", options, env);
    EXPECT_TRUE(writer.ok()) << writer.status();
    for (int d = 0; d < 10; ++d) {
      std::vector<int32_t> tokens(7);
      for (int i = 0; i < 7; ++i) {
        tokens[i] = vocab - 1 - d * 7 - i;
      }
      EXPECT_TRUE((*writer)->AddDocument(tokens).ok());
    }
    const auto info = (*writer)->Finish();
    EXPECT_TRUE(info.ok()) << info.status();
    return dir_ + "/d";
  }

  const TempDir temp_;
  const std::string dir_ = temp_.path();
};

template <typename T>
std::string Bytes(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

std::string LlmcHeader(int32_t magic, int32_t version, int32_t tokens) {
  std::vector<int32_t> header(256, 0);
  header[0] = magic;
  header[1] = version;
  header[2] = tokens;
  return Bytes(header);
}

void ExpectRoundTrip(const std::string& path, int32_t vocab) {
  const auto data = Dataset::Open(path);
  ASSERT_TRUE(data.ok()) << data.status();
  ASSERT_EQ((*data)->tokens(), 80);
  EXPECT_EQ((*data)->info().documents, 10);
  EXPECT_EQ((*data)->info().shards.size(), 5u);
  std::vector<int32_t> all(80);
  ASSERT_TRUE((*data)->Read(0, absl::MakeSpan(all), vocab).ok());
  for (int i = 0; i < 80; ++i) {
    const int d = i / 8;
    EXPECT_EQ(all[i], i % 8 == 7 ? 0 : vocab - 1 - d * 7 - i % 8);
  }
  std::vector<int32_t> part(20);  // from the middle of one shard into the third
  ASSERT_TRUE((*data)->Read(14, absl::MakeSpan(part), vocab).ok());
  EXPECT_TRUE(std::equal(part.begin(), part.end(), all.begin() + 14));
  EXPECT_TRUE(absl::IsOutOfRange((*data)->Read(61, absl::MakeSpan(part), vocab)));
  EXPECT_TRUE(absl::IsOutOfRange((*data)->Read(-1, absl::MakeSpan(part), vocab)));
  // Nothing is added to the place before it is checked, not even for the text.
  EXPECT_TRUE(absl::IsOutOfRange((*data)->Read(INT64_MAX, absl::MakeSpan(part), vocab)));
}

TEST_F(DatasetTest, Open_Uint16Folder_RoundTrips) {
  ExpectRoundTrip(WriteFolder(65536), 65536);
}

TEST_F(DatasetTest, Open_Uint32Folder_RoundTrips) {
  ExpectRoundTrip(WriteFolder(65537), 65537);
}

TEST_F(DatasetTest, FindEnds_AnyRange_GivesWhatLiesInIt) {
  for (const int32_t vocab : {1000, 100000}) {
    SCOPED_TRACE(vocab);
    std::filesystem::remove_all(dir_ + "/e");
    DatasetWriter::Options options;
    options.info.vocab = vocab;
    options.info.eos = vocab - 1;
    options.shard_tokens = 700;
    auto writer = DatasetWriter::Create(dir_ + "/e", options);
    ASSERT_TRUE(writer.ok()) << writer.status();
    std::vector<int64_t> want;
    int64_t at = 0;
    for (const int length : {1, 1, 300, 2, 255, 256, 257, 900, 1, 40}) {
      ASSERT_TRUE((*writer)->AddDocument(std::vector<int32_t>(length - 1, 3)).ok());
      want.push_back(at += length);
    }
    ASSERT_TRUE((*writer)->Finish().ok());
    const auto data = Dataset::Open(dir_ + "/e");
    ASSERT_TRUE(data.ok()) << data.status();
    for (const int64_t first : {0, 1, 2, 303, 699, 700, 1000}) {
      for (const int64_t last : {first, first + 1, first + 500, at}) {
        std::vector<int64_t> inside;
        std::copy_if(want.begin(), want.end(), std::back_inserter(inside),
                     [&](int64_t end) { return end > first && end <= last; });
        std::vector<int64_t> got;
        (*data)->FindEnds(first, last, got);
        EXPECT_EQ(got, inside) << first << " " << last;
      }
    }
  }
}

TEST_F(DatasetTest, Open_LlmcBin_ReadsBothVariants) {
  const std::string a =
      Write("a.bin", LlmcHeader(20240520, 1, 3) + Bytes(std::vector<uint16_t>{5, 50256, 7}));
  const std::string b =
      Write("b.bin", LlmcHeader(20240801, 7, 2) + Bytes(std::vector<uint32_t>{128000, 9}));
  auto data = Dataset::Open(a);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ((*data)->kind(), Kind::kLlmcBin);
  std::vector<int32_t> tokens(3);
  ASSERT_TRUE((*data)->Read(0, absl::MakeSpan(tokens), 50257).ok());
  EXPECT_EQ(tokens, (std::vector<int32_t>{5, 50256, 7}));
  const absl::Status bad = (*data)->Read(0, absl::MakeSpan(tokens), 50256);
  EXPECT_TRUE(absl::IsDataLoss(bad));
  EXPECT_THAT(std::string(bad.message()), HasSubstr("a.bin: token 50256 at byte offset 1026"));
  data = Dataset::Open(b);
  ASSERT_TRUE(data.ok()) << data.status();
  ASSERT_TRUE((*data)->Read(0, absl::MakeSpan(tokens).first(2), 0).ok());
  EXPECT_EQ(tokens[0], 128000);
}

TEST_F(DatasetTest, Open_RawBin_IsUint16) {
  const auto data = Dataset::Open(Write("r.bin", Bytes(std::vector<uint16_t>{1, 2, 65535})));
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ((*data)->kind(), Kind::kRawBin);
  EXPECT_EQ((*data)->tokens(), 3);
  EXPECT_EQ((*data)->vocab(), 0);
}

TEST_F(DatasetTest, Open_BadFile_SaysWhat) {
  const struct {
    std::string path;
    absl::StatusCode code;
    const char* error;
  } cases[] = {
      {dir_ + "/none", absl::StatusCode::kNotFound, "none: no such dataset"},
      {dir_, absl::StatusCode::kInvalidArgument, "has no dataset.json"},
      {Write("empty.bin", ""), absl::StatusCode::kDataLoss, "empty file"},
      {Write("odd.bin", "abc"), absl::StatusCode::kDataLoss, "3 bytes is not a whole number"},
      {Write("notes.txt", "abcd"), absl::StatusCode::kInvalidArgument, "not a dataset"},
      {Write("short.bin", LlmcHeader(20240520, 1, 9).substr(0, 100)), absl::StatusCode::kDataLoss,
       "shorter than the 1024-byte"},
      {Write("v.bin", LlmcHeader(20240520, 3, 9)), absl::StatusCode::kInvalidArgument, "version 3"},
      {Write("neg.bin", LlmcHeader(20240520, 1, -9)), absl::StatusCode::kDataLoss, "count -9"},
      {Write("torn.bin", LlmcHeader(20240520, 1, 9) + "ab"), absl::StatusCode::kDataLoss,
       "truncated: 1026 bytes, expected 1042"},
  };
  for (const auto& c : cases) {
    const auto data = Dataset::Open(c.path);
    EXPECT_EQ(data.status().code(), c.code) << data.status();
    EXPECT_THAT(std::string(data.status().message()), HasSubstr(c.error));
  }
}

TEST_F(DatasetTest, Open_DamagedFolder_NamesTheShard) {
  const std::string folder = WriteFolder(300);
  std::filesystem::resize_file(folder + "/shard-00002.bin", 30);
  auto data = Dataset::Open(folder);
  EXPECT_TRUE(absl::IsDataLoss(data.status()));
  EXPECT_THAT(std::string(data.status().message()),
              HasSubstr("shard-00002.bin: truncated: 30 bytes, expected 32"));
  std::filesystem::remove(folder + "/shard-00002.bin");
  data = Dataset::Open(folder);
  EXPECT_TRUE(absl::IsNotFound(data.status()));
  EXPECT_THAT(std::string(data.status().message()), HasSubstr("shard-00002.bin"));
}

TEST_F(DatasetTest, Inspect_FlippedByte_FindsIt) {
  const std::string folder = WriteFolder(300);
  auto summary = Inspect(folder, true);
  ASSERT_TRUE(summary.ok());
  EXPECT_EQ(summary->max_token, 299);
  EXPECT_TRUE(summary->problems.empty());
  {
    std::fstream f(folder + "/shard-00001.bin", std::ios::in | std::ios::out | std::ios::binary);
    f.seekp(5);
    f.put('\x7f');
  }
  summary = Inspect(folder, true);
  ASSERT_TRUE(summary.ok());
  EXPECT_FALSE(summary->checksums_ok);
  ASSERT_EQ(summary->problems.size(), 2u);  // out of range, and the checksum
  EXPECT_THAT(summary->problems[0], HasSubstr("byte offset 4"));
  EXPECT_THAT(ToText(*summary), HasSubstr("SHA-256"));
  EXPECT_THAT(ToJson(*summary), HasSubstr("\"kind\": \"dataset\""));
}

TEST_F(DatasetTest, Writer_FailureAtAnyOperation_LeavesNoDataset) {
  FaultyEnv env(Env::Real());
  WriteFolder(300, env);
  const int64_t operations = env.operations();
  for (int64_t n = 1; n <= operations; ++n) {
    std::filesystem::remove_all(dir_ + "/d");
    std::filesystem::remove_all(dir_ + "/d.tmp");
    FaultyEnv faulty(Env::Real());
    faulty.FailAfter(n, absl::ResourceExhaustedError("disk full"));
    DatasetWriter::Options options;
    options.info.vocab = 300;
    options.info.eos = 0;
    options.shard_tokens = 16;
    absl::Status status;
    {
      auto writer = DatasetWriter::Create(dir_ + "/d", options, faulty);
      status = writer.status();
      const std::vector<int32_t> tokens(79, 3);
      if (status.ok()) {
        status = (*writer)->AddDocument(tokens);
      }
      if (status.ok()) {
        status = (*writer)->Finish().status();
      }
    }
    if (faulty.operations() < n) {
      break;
    }
    // The last operation syncs the parent after the rename: then the dataset is there.
    if (std::filesystem::exists(dir_ + "/d")) {
      EXPECT_TRUE(Dataset::Open(dir_ + "/d").ok()) << n;
    } else {
      EXPECT_FALSE(status.ok()) << n;
    }
  }
}

// What Add puts into the list is written later, while more is added; shards and masks included.
TEST_F(DatasetTest, Writer_AddedAheadOfWriting_SameFiles) {
  const auto contents = [](const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  std::string packed;
  std::string mask;
  for (int32_t token = 0; token < 50; ++token) {
    AppendToken(TokenWidth::kUint16, token, &packed);
    mask.push_back(static_cast<char>(token % 2));
  }
  std::vector<std::string> json;
  for (const bool ahead : {false, true}) {
    const std::string dir = dir_ + (ahead ? "/ahead" : "/plain");
    DatasetWriter::Options options;
    options.info.name = "same";
    options.info.vocab = 300;
    options.info.loss_tokens = 0;
    options.shard_tokens = 16;
    auto writer = DatasetWriter::Create(dir, options);
    ASSERT_TRUE(writer.ok()) << writer.status();
    std::vector<DatasetWriter::Writes> lists;
    for (const auto& [begin, count, documents] :
         {std::array<size_t, 3>{0, 10, 1}, {10, 32, 3}, {42, 8, 2}}) {
      const std::string_view tokens = std::string_view(packed).substr(begin * 2, count * 2);
      const std::string_view bits = std::string_view(mask).substr(begin, count);
      (*writer)->Add(tokens, static_cast<int64_t>(documents), static_cast<int64_t>(count), bits,
                     &lists.emplace_back());
      if (!ahead) {
        ASSERT_TRUE((*writer)->Carry(lists.back()).ok());
      }
    }
    for (const DatasetWriter::Writes& list : lists) {
      ASSERT_TRUE(!ahead || (*writer)->Carry(list).ok());
    }
    const auto info = (*writer)->Finish();
    ASSERT_TRUE(info.ok()) << info.status();
    EXPECT_EQ(info->documents, 6);
    EXPECT_EQ(info->tokens, 50);
    EXPECT_EQ(info->loss_tokens, 25);
    ASSERT_EQ(info->shards.size(), 4u);
    std::string all;
    for (const ShardInfo& shard : info->shards) {
      all += contents(dir + "/" + shard.file);
      EXPECT_EQ(shard.sha256, Sha256Hex(contents(dir + "/" + shard.file)));
      EXPECT_EQ(shard.mask_sha256, Sha256Hex(contents(dir + "/" + shard.mask)));
    }
    EXPECT_EQ(all, packed);
    json.push_back(ToJson(*info));
  }
  EXPECT_EQ(json[0], json[1]);
}

TEST_F(DatasetTest, Writer_BadToken_Refused) {
  DatasetWriter::Options options;
  options.info.vocab = 10;
  auto writer = DatasetWriter::Create(dir_ + "/d", options);
  ASSERT_TRUE(writer.ok());
  EXPECT_TRUE(absl::IsInvalidArgument((*writer)->AddDocument({10})));
  EXPECT_TRUE(absl::IsInvalidArgument((*writer)->AddDocument({-1})));
}

TEST_F(DatasetTest, Writer_FolderNotEmpty_Refused) {
  Write("x", "y");
  DatasetWriter::Options options;
  options.info.vocab = 10;
  EXPECT_TRUE(absl::IsAlreadyExists(DatasetWriter::Create(dir_, options).status()));
}

}  // namespace
}  // namespace hearth::dataset
