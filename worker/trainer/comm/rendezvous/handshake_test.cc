#include "worker/trainer/comm/rendezvous/handshake.h"

#include "gtest/gtest.h"

namespace hearth::trainer {
namespace {

constexpr GangSecret kSecret = {1, 2, 3};
constexpr GangSecret kOtherSecret = {1, 2, 4};

Handshake::Nonce NonceOf(uint8_t first) {
  return {first};
}

// Moves what `from` has to say to `to`, `piece` bytes at a time.
absl::Status Pass(Handshake& from, Handshake& to, size_t piece = 1000) {
  std::string bytes;
  bytes.swap(from.output());
  while (!bytes.empty()) {
    const size_t n = std::min({piece, bytes.size(), to.wanted()});
    if (n == 0) {
      return absl::OutOfRangeError("bytes that nobody wants");
    }
    if (absl::Status status = to.Take(std::string_view(bytes).substr(0, n)); !status.ok()) {
      return status;
    }
    bytes.erase(0, n);
  }
  return absl::OkStatus();
}

TEST(Handshake, TwoRanks_BothDoneAndNamed) {
  for (const size_t piece : {size_t{1}, size_t{7}, size_t{1000}}) {
    Handshake dialler = Handshake::Dialler(kSecret, 3, 1, NonceOf(1));
    Handshake listener = Handshake::Listener(kSecret, 1, NonceOf(2));
    EXPECT_EQ(listener.peer(), -1);
    ASSERT_TRUE(Pass(dialler, listener, piece).ok());
    EXPECT_EQ(listener.peer(), 3);
    EXPECT_FALSE(listener.done());
    ASSERT_TRUE(Pass(listener, dialler, piece).ok());
    EXPECT_FALSE(dialler.done());
    ASSERT_TRUE(Pass(dialler, listener, piece).ok());
    EXPECT_TRUE(listener.done());
    ASSERT_TRUE(Pass(listener, dialler, piece).ok());
    EXPECT_TRUE(dialler.done());
    EXPECT_EQ(dialler.wanted() + listener.wanted(), 0u);
  }
}

TEST(Handshake, OtherFirstBytes_RefusedAtTheFirstOfThem) {
  Handshake listener = Handshake::Listener(kSecret, 0, NonceOf(2));
  EXPECT_TRUE(absl::IsPermissionDenied(listener.Take("G")));
  Handshake later = Handshake::Listener(kSecret, 0, NonceOf(2));
  EXPECT_TRUE(later.Take("hea").ok());
  EXPECT_TRUE(absl::IsPermissionDenied(later.Take("ven")));
}

TEST(Handshake, OtherSecret_RefusedByEitherSide) {
  Handshake dialler = Handshake::Dialler(kOtherSecret, 1, 0, NonceOf(1));
  Handshake listener = Handshake::Listener(kSecret, 0, NonceOf(2));
  ASSERT_TRUE(Pass(dialler, listener).ok());
  EXPECT_TRUE(absl::IsPermissionDenied(Pass(listener, dialler)));

  // A stranger who does not check the answer and guesses the proof.
  Handshake guesser = Handshake::Dialler(kOtherSecret, 1, 0, NonceOf(1));
  Handshake careful = Handshake::Listener(kSecret, 0, NonceOf(2));
  ASSERT_TRUE(Pass(guesser, careful).ok());
  EXPECT_TRUE(absl::IsPermissionDenied(careful.Take(std::string(careful.wanted(), 'x'))));
  EXPECT_FALSE(careful.done());
}

TEST(Handshake, GreetingForAnotherRank_Refused) {
  Handshake dialler = Handshake::Dialler(kSecret, 3, 1, NonceOf(1));
  Handshake listener = Handshake::Listener(kSecret, 2, NonceOf(2));
  EXPECT_TRUE(absl::IsPermissionDenied(Pass(dialler, listener)));
}

TEST(Handshake, ProofOfAnotherConnection_IsOfNoUse) {
  Handshake dialler = Handshake::Dialler(kSecret, 1, 0, NonceOf(1));
  const std::string greeting = dialler.output();
  Handshake first = Handshake::Listener(kSecret, 0, NonceOf(2));
  ASSERT_TRUE(Pass(dialler, first).ok());
  ASSERT_TRUE(Pass(first, dialler).ok());
  const std::string proof = dialler.output();
  Handshake second = Handshake::Listener(kSecret, 0, NonceOf(3));
  ASSERT_TRUE(second.Take(greeting).ok());
  EXPECT_TRUE(absl::IsPermissionDenied(second.Take(proof)));
  EXPECT_TRUE(first.Take(proof).ok());
}

}  // namespace
}  // namespace hearth::trainer
