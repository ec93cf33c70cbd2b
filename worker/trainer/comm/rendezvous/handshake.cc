#include "worker/trainer/comm/rendezvous/handshake.h"

#include <openssl/crypto.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/system.h"
#include "common/io/hmac.h"

namespace hearth::trainer {
namespace {

constexpr std::string_view kMagic("hearth\x01\n", 8);
constexpr std::string_view kDiallerSide = "hearth gang: dialler";
constexpr std::string_view kListenerSide = "hearth gang: listener";
constexpr size_t kRankBytes = 4;
constexpr size_t kNonceBytes = sizeof(Handshake::Nonce);
constexpr size_t kGreetingBytes = kMagic.size() + 2 * kRankBytes + kNonceBytes;
constexpr char kWelcome = 'w';

// Little-endian.
std::string RankText(int rank) {
  std::string text;
  for (size_t i = 0; i < kRankBytes; ++i) {
    text += static_cast<char>(static_cast<uint32_t>(rank) >> (8 * i) & 0xff);
  }
  return text;
}

int RankOf(std::string_view text) {
  uint32_t rank = 0;
  for (size_t i = 0; i < kRankBytes; ++i) {
    rank |= static_cast<uint32_t>(static_cast<uint8_t>(text[i])) << (8 * i);
  }
  return static_cast<int>(rank);
}

std::string_view Text(const Handshake::Nonce& nonce) {
  return {reinterpret_cast<const char*>(nonce.data()), nonce.size()};
}

}  // namespace

absl::Status FillRandom(void* to, size_t bytes) {
  auto* next = static_cast<uint8_t*>(to);
  while (bytes > 0) {
    const ssize_t got = getrandom(next, bytes, 0);
    if (got < 0 && errno != EINTR) {
      return absl::InternalError(absl::StrCat("no random numbers: ", ErrnoText(errno)));
    }
    if (got > 0) {
      next += got;
      bytes -= static_cast<size_t>(got);
    }
  }
  return absl::OkStatus();
}

Handshake::Handshake(const GangSecret& secret, int self, int peer, const Nonce& nonce)
    : secret_(secret), self_(self), peer_(peer), nonce_(nonce) {}

Handshake Handshake::Dialler(const GangSecret& secret, int self, int peer, const Nonce& nonce) {
  Handshake made(secret, self, peer, nonce);
  made.transcript_ =
      absl::StrCat(std::string(kMagic), RankText(self), RankText(peer), std::string(Text(nonce)));
  // The dialler sends its numbers but no proof yet: first the listener proves that it knows the
  // secret.
  made.output_ = made.transcript_;
  made.Expect(Wants::kAnswer);
  return made;
}

Handshake Handshake::Listener(const GangSecret& secret, int self, const Nonce& nonce) {
  Handshake made(secret, self, -1, nonce);
  made.Expect(Wants::kGreeting);
  return made;
}

void Handshake::Expect(Wants wants) {
  wants_ = wants;
  input_.clear();
  switch (wants) {
    case Wants::kGreeting:
      expected_ = kGreetingBytes;
      break;
    case Wants::kAnswer:
      expected_ = kNonceBytes + kHmacBytes;
      break;
    case Wants::kProof:
      expected_ = kHmacBytes;
      break;
    case Wants::kWelcome:
      expected_ = 1;
      break;
  }
}

std::string Handshake::Mac(std::string_view side) const {
  return HmacSha256({reinterpret_cast<const char*>(secret_.data()), secret_.size()},
                    absl::StrCat(std::string(side), transcript_));
}

absl::Status Handshake::TakeMac(std::string_view side, std::string_view mac) const {
  // In constant time: how long it takes must not tell how many bytes were right.
  if (CRYPTO_memcmp(mac.data(), Mac(side).data(), kHmacBytes) != 0) {
    return absl::PermissionDeniedError("it does not know the gang's secret");
  }
  return absl::OkStatus();
}

absl::Status Handshake::TakeGreeting() {
  const std::string_view ranks = std::string_view(input_).substr(kMagic.size());
  peer_ = RankOf(ranks);
  if (RankOf(ranks.substr(kRankBytes)) != self_) {
    return absl::PermissionDeniedError("its greeting is for another rank");
  }
  // Both proofs are over both nonces, so that neither can be replayed on another connection.
  transcript_ = absl::StrCat(input_, std::string(Text(nonce_)));
  absl::StrAppend(&output_, std::string(Text(nonce_)), Mac(kListenerSide));
  Expect(Wants::kProof);
  return absl::OkStatus();
}

absl::Status Handshake::Take(std::string_view bytes) {
  HEARTH_CHECK(bytes.size() <= wanted(), "nobody reads more than the handshake wants");
  input_.append(bytes);
  // The first bytes tell a rank from a client of another protocol.
  if (wants_ == Wants::kGreeting) {
    const size_t seen = std::min(input_.size(), kMagic.size());
    if (std::string_view(input_).substr(0, seen) != kMagic.substr(0, seen)) {
      return absl::PermissionDeniedError("its first bytes are no greeting");
    }
  }
  if (input_.size() < expected_) {
    return absl::OkStatus();
  }
  switch (wants_) {
    case Wants::kGreeting:
      return TakeGreeting();
    case Wants::kAnswer:
      transcript_.append(input_, 0, kNonceBytes);
      HEARTH_RETURN_IF_ERROR(TakeMac(kListenerSide, std::string_view(input_).substr(kNonceBytes)));
      output_.append(Mac(kDiallerSide));
      Expect(Wants::kWelcome);
      return absl::OkStatus();
    case Wants::kProof:
      // The sides have names in the proofs, so that neither can be sent back as the other.
      HEARTH_RETURN_IF_ERROR(TakeMac(kDiallerSide, input_));
      output_.push_back(kWelcome);
      done_ = true;
      return absl::OkStatus();
    case Wants::kWelcome:
      if (input_[0] != kWelcome) {
        return absl::PermissionDeniedError("it sends something else than a welcome");
      }
      done_ = true;
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

}  // namespace hearth::trainer
