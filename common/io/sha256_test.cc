#include "common/io/sha256.h"

#include <algorithm>
#include <string>

#include "gtest/gtest.h"

namespace hearth {
namespace {

// FIPS 180-4 examples.
constexpr char kEmpty[] = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
constexpr char kAbc[] = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
constexpr char kTwoBlocks[] = "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1";
constexpr char kMillionA[] = "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0";

TEST(Sha256, FipsVectors_GiveTheirDigests) {
  EXPECT_EQ(Sha256Hex(""), kEmpty);
  EXPECT_EQ(Sha256Hex("abc"), kAbc);
  EXPECT_EQ(Sha256Hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"), kTwoBlocks);
}

TEST(Sha256, MillionBytesInOddPieces_EqualsTheVector) {
  Sha256 hash;
  const std::string piece(997, 'a');
  size_t left = 1'000'000;
  while (left > 0) {
    const size_t now = std::min(left, piece.size());
    hash.Update(std::string_view(piece).substr(0, now));
    left -= now;
  }
  EXPECT_EQ(hash.Hex(), kMillionA);
}

TEST(Sha256, AfterHex_StartsAnew) {
  Sha256 hash;
  hash.Update("junk");
  hash.Hex();
  hash.Update("abc");
  EXPECT_EQ(hash.Hex(), kAbc);
}

TEST(Sha256HexOfFile, Written_EqualsTheDigestOfItsBytes) {
  const std::string path = testing::TempDir() + "/sha256_test_file";
  ASSERT_TRUE(Env::Real().WriteFileAtomically(path, "abc").ok());
  EXPECT_EQ(Sha256HexOfFile(Env::Real(), path).value(), kAbc);
  EXPECT_EQ(Sha256HexOfFile(Env::Real(), path + ".absent").status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace hearth
