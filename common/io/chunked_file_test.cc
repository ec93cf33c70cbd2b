#include "common/io/chunked_file.h"

#include <atomic>
#include <cstring>
#include <filesystem>

#include "common/base/ids.h"
#include "common/io/chunk_threads.h"
#include "common/io/faulty_env.h"
#include "gtest/gtest.h"

namespace hearth {
namespace {

class ChunkedFileTest : public ::testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }

  static absl::Status Fill(int64_t offset, absl::Span<uint8_t> out) {
    for (size_t i = 0; i < out.size(); ++i) {
      const uint64_t at = static_cast<uint64_t>(offset) + i;
      out[i] = static_cast<uint8_t>((at * 0x9E3779B97F4A7C15U) >> 56);
    }
    return absl::OkStatus();
  }

  const std::string path_ = testing::TempDir() + "/chunked_file_test_" + RandomHex(6);
};

TEST_F(ChunkedFileTest, Write_AnySizeAndThreads_BytesOfFillAndTheirSum) {
  for (const int64_t bytes : {int64_t{0}, int64_t{1}, int64_t{4096}, int64_t{5000}, kFileChunkBytes,
                              2 * kFileChunkBytes + 4096 + 3}) {
    std::string first;
    for (const int threads : {1, 3}) {
      const auto facts = WriteChunkedFile(Env::Real(), path_, bytes, Fill, threads);
      ASSERT_TRUE(facts.ok()) << facts.status();
      EXPECT_EQ(facts->bytes, bytes);
      EXPECT_EQ(facts->checksum, *ChecksumOfFile(Env::Real(), path_, ChecksumKind::kXxh3, 2))
          << bytes;
      const std::string read = *Env::Real().ReadFile(path_);
      std::string expected(static_cast<size_t>(bytes), '\0');
      ASSERT_TRUE(
          Fill(0, absl::MakeSpan(reinterpret_cast<uint8_t*>(expected.data()), expected.size()))
              .ok());
      EXPECT_TRUE(read == expected) << bytes << " bytes, " << threads << " threads";
    }
  }
}

TEST_F(ChunkedFileTest, Write_FailureAtAnyOperation_IsReturned) {
  const int64_t bytes = 2 * kFileChunkBytes + 10;
  FaultyEnv counting(Env::Real());
  ASSERT_TRUE(WriteChunkedFile(counting, path_, bytes, Fill, 2).ok());
  EXPECT_EQ(counting.operations(), 7);  // open, allocate, three chunks, sync, close
  for (int64_t n = 1; n <= counting.operations(); ++n) {
    FaultyEnv env(Env::Real());
    env.FailAfter(n, absl::InternalError("injected"));
    EXPECT_TRUE(absl::IsInternal(WriteChunkedFile(env, path_, bytes, Fill, 2).status())) << n;
  }
}

TEST_F(ChunkedFileTest, Write_DiskFull_IsToldBeforeAnythingIsWritten) {
  FaultyEnv env(Env::Real());
  env.SetDiskSpace(100);
  std::atomic<int> filled = 0;
  const auto facts = WriteChunkedFile(
      env, path_, 101,
      [&filled](int64_t, absl::Span<uint8_t>) {
        ++filled;
        return absl::OkStatus();
      },
      1);
  EXPECT_TRUE(absl::IsResourceExhausted(facts.status())) << facts.status();
  EXPECT_EQ(filled, 0);
}

TEST_F(ChunkedFileTest, Write_FillFails_ItsError) {
  const auto facts = WriteChunkedFile(
      Env::Real(), path_, 10,
      [](int64_t, absl::Span<uint8_t>) { return absl::DataLossError("no bytes"); }, 2);
  EXPECT_TRUE(absl::IsDataLoss(facts.status())) << facts.status();
}

TEST(ForEachChunk, SeveralErrors_TheLowestOfThoseBegun) {
  std::atomic<int> calls = 0;
  const absl::Status status = ForEachChunk(1000, 4, [&calls](int64_t i) {
    ++calls;
    return i >= 2 ? absl::InternalError(i == 2 ? "the first" : "another") : absl::OkStatus();
  });
  EXPECT_EQ(status.message(), "the first");
  EXPECT_LT(calls, 1000);
  EXPECT_TRUE(ForEachChunk(0, 4, [](int64_t) { return absl::InternalError("none"); }).ok());
}

}  // namespace
}  // namespace hearth
