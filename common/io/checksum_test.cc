#include "common/io/checksum.h"

#include <xxhash.h>

#include <filesystem>
#include <fstream>

#include "common/base/ids.h"
#include "common/io/sha256.h"
#include "gtest/gtest.h"

namespace hearth {
namespace {

class ChecksumTest : public ::testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }

  void Write(const std::string& bytes) { std::ofstream(path_, std::ios::binary) << bytes; }
  std::string Xxh3(int threads) {
    return ChecksumOfFile(Env::Real(), path_, ChecksumKind::kXxh3, threads).value().hex;
  }

  const std::string path_ = testing::TempDir() + "/checksum_test_" + RandomHex(6);
};

// Some bytes of no period.
std::string Bytes(int64_t size) {
  std::string bytes(static_cast<size_t>(size), '\0');
  uint64_t state = 1;
  for (char& byte : bytes) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    byte = static_cast<char>(state >> 56);
  }
  return bytes;
}

TEST_F(ChecksumTest, OfFile_Sha256_IsTheDigestOfItsBytes) {
  Write("abc");
  const auto sum = ChecksumOfFile(Env::Real(), path_, ChecksumKind::kSha256, 3);
  ASSERT_TRUE(sum.ok()) << sum.status();
  EXPECT_EQ(sum->hex, Sha256Hex("abc"));
}

// The format of files that exist must not change.
TEST_F(ChecksumTest, OfFile_Xxh3_IsTheHashOfTheHashesOfItsChunks) {
  Write("abc");
  XXH128_canonical_t inner;
  XXH128_canonicalFromHash(&inner, XXH3_128bits("abc", 3));
  const XXH128_hash_t outer = XXH3_128bits(inner.digest, sizeof inner.digest);
  char hex[33];
  std::snprintf(hex, sizeof hex, "%016llx%016llx", static_cast<unsigned long long>(outer.high64),
                static_cast<unsigned long long>(outer.low64));
  EXPECT_EQ(Xxh3(1), hex);
  Write("");
  EXPECT_EQ(Xxh3(2), "99aa06d3014798d86001c324468d497f");  // XXH3-128 of nothing
}

TEST_F(ChecksumTest, OfFile_AnyNumberOfThreads_SameSum) {
  Write(Bytes(3 * kFileChunkBytes + 4321));
  const std::string one = Xxh3(1);
  EXPECT_EQ(Xxh3(2), one);
  EXPECT_EQ(Xxh3(7), one);
}

TEST_F(ChecksumTest, OfFile_AnyChange_AnotherSum) {
  const std::string bytes = Bytes(2 * kFileChunkBytes + 7);
  Write(bytes);
  const std::string good = Xxh3(2);
  for (const int64_t at :
       {int64_t{0}, kFileChunkBytes - 1, kFileChunkBytes, static_cast<int64_t>(bytes.size()) - 1}) {
    std::string bad = bytes;
    bad[static_cast<size_t>(at)] ^= 1;
    Write(bad);
    EXPECT_NE(Xxh3(2), good) << at;
  }
  Write(bytes.substr(0, bytes.size() - 1));
  EXPECT_NE(Xxh3(2), good);
  // Whole chunks in another order.
  const auto chunk = static_cast<size_t>(kFileChunkBytes);
  Write(bytes.substr(chunk, chunk) + bytes.substr(0, chunk) + bytes.substr(2 * chunk));
  EXPECT_NE(Xxh3(2), good);
}

TEST_F(ChecksumTest, OfFile_Stopped_IsCancelled) {
  Write("abc");
  const std::atomic<bool> stop = true;
  for (const ChecksumRow& row : kChecksums) {
    const auto sum = ChecksumOfFile(Env::Real(), path_, row.kind, 2, &stop);
    EXPECT_TRUE(absl::IsCancelled(sum.status())) << sum.status();
  }
}

}  // namespace
}  // namespace hearth
